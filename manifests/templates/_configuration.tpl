{{- /* The configuration, and what the API server decides by itself, as webhook/policy/rendering.py has it in CEL. */ -}}
{{- /* Values as JSON, with a preset where they are as shipped. It takes a list: values, shipped values, preset. */ -}}
{{- define "topogate.preset" -}}
{{- $values := deepCopy (index . 0) }}
{{- $shipped := index . 1 }}
{{- range $key, $value := index . 2 }}
{{- $given := get $values $key }}
{{- if eq (toJson $given) (get $shipped $key | toJson) }}
{{- $_ := set $values $key $value }}
{{- else if and (kindIs "map" $given) (kindIs "map" $value) }}
{{- $_ := set $values $key (include "topogate.preset" (list $given (get $shipped $key | default dict) $value) | fromJson) }}
{{- end }}
{{- end }}
{{- toJson $values }}
{{- end }}
{{- /* A document in a ConfigMap of the base, as JSON. It takes a list: the root, file and key, the folders that patch it. */ -}}
{{- define "topogate.document" -}}
{{- $key := index . 2 }}
{{- $patches := include "topogate.patches" (list (index . 0) (index . 3)) | fromJsonArray }}
{{- range include "topogate.objectsOf" (list (index . 0) (index . 1)) | fromJsonArray }}
{{- if and (eq .kind "ConfigMap") (hasKey .data $key) }}
{{- $object := include "topogate.patched" (list . $patches) | fromJson }}
{{- get $object.data $key | fromYaml | toJson }}
{{- end }}
{{- end }}
{{- end }}
{{- define "topogate.shippedConfig" -}}
{{- include "topogate.document" (list . "base/configuration.yaml" "configuration.yaml" list) }}
{{- end }}
{{- define "topogate.presetConfig" -}}
{{- $folders := include "topogate.folders" . | fromJsonArray }}
{{- include "topogate.document" (list . "base/configuration.yaml" "configuration.yaml" $folders) }}
{{- end }}
{{- /* Tiers, as JSON. It takes a list: the given tiers, the shipped ones. */ -}}
{{- /* As of config.tiers[0].name=x alone: if none is whole, they change the shipped tiers at their places. */ -}}
{{- define "topogate.completeTiers" -}}
{{- $given := index . 0 }}
{{- $shipped := index . 1 }}
{{- $isAnyWhole := false }}
{{- range $given }}
{{- $isAnyWhole = or $isAnyWhole (and . .name .priorityClassName) }}
{{- end }}
{{- $tiers := $given }}
{{- if and $given (not $isAnyWhole) }}
{{- $tiers = list }}
{{- range $place := until (max (len $given) (len $shipped) | int) }}
{{- $change := slice $given (min $place (len $given)) | first | default dict }}
{{- $tier := slice $shipped (min $place (len $shipped)) | first | default dict }}
{{- $tiers = append $tiers (merge dict $change $tier) }}
{{- end }}
{{- end }}
{{- toJson $tiers }}
{{- end }}
{{- /* The configuration, as JSON. */ -}}
{{- define "topogate.config" -}}
{{- $shipped := include "topogate.shippedConfig" . | fromJson }}
{{- $tiers := dict "tiers" (include "topogate.completeTiers" (list .Values.config.tiers $shipped.tiers) | fromJsonArray) }}
{{- $config := merge (pick $shipped "apiVersion" "kind") (ternary $tiers dict (hasKey .Values.config "tiers")) .Values.config }}
{{- include "topogate.preset" (list $config $shipped (include "topogate.presetConfig" . | fromJson)) }}
{{- end }}
{{- /* The labeler's own configuration, as JSON. */ -}}
{{- define "topogate.labeler" -}}
{{- $shipped := include "topogate.document" (list . "base/labeler.yaml" "labeler.yaml" list) | fromJson }}
{{- $folders := include "topogate.folders" . | fromJsonArray }}
{{- $preset := include "topogate.document" (list . "base/labeler.yaml" "labeler.yaml" $folders) | fromJson }}
{{- include "topogate.preset" (list .Values.labeler.config $shipped $preset) }}
{{- end }}
{{- /* What the API server's conditions depend on, with defaults, as JSON. It takes a list: the root, a configuration. */ -}}
{{- define "topogate.decides" -}}
{{- $defaults := (index . 0).Files.Get "defaults.json" | fromJson }}
{{- $decides := mergeOverwrite $defaults.configuration (index . 1) }}
{{- $excluded := concat $defaults.excludedNamespaces $decides.namespaces.excluded | uniq | sortAlpha }}
{{- set $decides "allExcluded" $excluded | toJson }}
{{- end }}
{{- define "topogate.isGated" -}}
object.spec.?schedulingGates.orValue([]).exists(g, g.name.startsWith('{{ .gatePrefix }}'))
{{- end }}
{{- /* Whether a container asks for a GPU. It takes a list: what decides, and further conditions. */ -}}
{{- define "topogate.asksForGpu" -}}
{{- $gpus := (index . 0).gpus }}
{{- $resources := $gpus.resources }}
{{- range ternary (list "*") $gpus.deviceClasses (has "*" $gpus.deviceClasses) }}
{{- $resources = append $resources (print "deviceclass.resource.kubernetes.io/" .) }}
{{- end -}}
(dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([]))).exists(c, c.?resources.?requests.orValue({}).exists(k, (
{{- include "topogate.matches" $resources }}{{ index . 1 -}}
) && string(c.?resources.?requests.orValue({})[k]) != '0'))
{{- if $gpus.deviceClasses }} || object.spec.?resourceClaims.orValue([]).size() > 0{{ end }}
{{- end }}
{{- /* Whether k is one of these resources, some of which are shell patterns. */ -}}
{{- define "topogate.matches" -}}
{{- $names := list }}
{{- $conditions := list }}
{{- range . }}
{{- if not (regexMatch "[*?[]" .) }}
{{- $names = append $names . }}
{{- else if regexMatch "^[^*?[]*\\*$" . }}
{{- $conditions = append $conditions (printf "k.startsWith('%s')" (trimSuffix "*" .)) }}
{{- else }}
{{- $conditions = append $conditions (printf "k.matches(r'^%s$')" (include "topogate.expression" .)) }}
{{- end }}
{{- end }}
{{- if $names }}
{{- $conditions = prepend $conditions (printf "k in %s" (include "topogate.texts" $names)) }}
{{- end }}
{{- join " || " $conditions }}
{{- end }}
{{- /* A shell pattern over the names of resources as a regular expression. */ -}}
{{- define "topogate.expression" -}}
{{- range regexFindAll "\\[(?:!.|[^!])[^]]*\\]|." . -1 }}
{{- if eq . "*" }}.*
{{- else if eq . "?" }}.
{{- else if gt (len .) 1 }}
{{- $class := . | replace "[!" "[^" }}
{{- $letters := "" }}
{{- range splitList "" "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./" }}
{{- if regexMatch $class . }}
{{- $letters = print $letters (regexQuoteMeta . | replace "-" "\\-") }}
{{- end }}
{{- end }}
{{- ternary (printf "[%s]" $letters) "[^\\s\\S]" (ne $letters "") }}
{{- else }}
{{- regexQuoteMeta . | replace "-" "\\-" }}
{{- end }}
{{- end }}
{{- end }}
{{- /* Texts as a list of CEL. */ -}}
{{- define "topogate.texts" -}}
[{{ range $number, $text := . }}{{ if $number }}, {{ end }}'{{ $text }}'{{ end }}]
{{- end }}
{{- /* The texts in the objects of `topogate config render` that follow from what decides, as JSON. */ -}}
{{- define "topogate.derived" -}}
{{- $asks := include "topogate.asksForGpu" (list . "") }}
{{- $asksOrIsIntel := include "topogate.asksForGpu" (list . " || k.startsWith('gpu.intel.com/')") }}
{{- $schedulers := include "topogate.texts" (concat (list "") .schedulerNames) }}
{{- $adopted := ternary "" " || object.spec.schedulingGroup.?podGroupName.orValue('') != ''" (eq .gangs.native "leave") }}
{{- toJson (list $asks $asksOrIsIntel $schedulers $adopted) }}
{{- end }}
{{- /* A manifest with what follows from the values in the place of what follows from its own configuration, as JSON. */ -}}
{{- /* It takes a list: the manifest, what decides by its own configuration, and what decides by the values. */ -}}
{{- define "topogate.followed" -}}
{{- $object := index . 0 }}
{{- $own := index . 1 }}
{{- $given := index . 2 }}
{{- $text := toJson $object }}
{{- if has $object.metadata.name (list "topogate" "topogate-tiers" "topogate-gate-required" "topogate-gate") }}
{{- $derived := include "topogate.derived" $given | fromJsonArray }}
{{- range $number, $old := include "topogate.derived" $own | fromJsonArray }}
{{- $text = replace (include "topogate.inJson" $old) (index $derived $number | include "topogate.inJson") $text }}
{{- end }}
{{- $text = replace (toJson $own.allExcluded) (toJson $given.allExcluded) $text }}
{{- end }}
{{- replace (include "topogate.inJson" $own.gatePrefix) (include "topogate.inJson" $given.gatePrefix) $text }}
{{- end }}
{{- /* A text as it is written between the quotes of a string in JSON. */ -}}
{{- define "topogate.inJson" -}}
{{- toJson . | trimPrefix "\"" | trimSuffix "\"" }}
{{- end }}
{{- /* The highest priority of each namespace that has a maximum, as JSON. It takes a list: the root, what decides. */ -}}
{{- define "topogate.limits" -}}
{{- $classes := dict }}
{{- range include "topogate.objectsOf" (list (index . 0) "base/priorityclasses.yaml") | fromJsonArray }}
{{- $_ := set $classes .metadata.name .value }}
{{- end }}
{{- $decides := index . 1 }}
{{- $limits := dict }}
{{- range $namespace, $rules := $decides.namespaces.rules }}
{{- range $tier := $decides.tiers }}
{{- if eq $tier.name (dig "maximumTier" "" ($rules | default dict)) }}
{{- $class := lookup "scheduling.k8s.io/v1" "PriorityClass" "" $tier.priorityClassName }}
{{- $value := get $classes $tier.priorityClassName | default (dig "value" "" ($class | default dict)) }}
{{- if eq (toString $value) "" }}
{{- fail (printf "config.namespaces.rules.%s.maximumTier: the cluster has no PriorityClass %s, whose value the maximum is. Create it first. helm template asks the cluster only with --dry-run=server." $namespace $tier.priorityClassName) }}
{{- end }}
{{- $_ := set $limits $namespace (int64 $value) }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $limits }}
{{- end }}
{{- /* The limits of single namespaces as a map of CEL. */ -}}
{{- define "topogate.table" -}}
{{- $pairs := list }}
{{- range $namespace, $value := omit . "*" }}
{{- $pairs = append $pairs (printf "'%s': %d" $namespace (int64 $value)) }}
{{- end -}}
{ {{- join ", " $pairs -}} }
{{- end }}
{{- /* The maximum of a pod's namespace. It takes the limits. */ -}}
{{- define "topogate.maximum" -}}
{{- $all := get . "*" }}
{{- if not . }}optional.none()
{{- else if eq (toJson (keys .)) `["*"]` }}optional.of({{ int64 $all }})
{{- else }}{{ include "topogate.table" . }}[?request.namespace]
{{- if hasKey . "*" }}.or(optional.of({{ int64 $all }})){{ end }}
{{- end }}
{{- end }}
{{- /* It takes a list: the limits, what decides. */ -}}
{{- define "topogate.maximumConditions" -}}
{{- $limits := index . 0 }}
{{- $decides := index . 1 }}
{{- $exempt := list }}
{{- range $namespace := keys $decides.namespaces.rules | sortAlpha }}
{{- if not (hasKey $limits $namespace) }}
{{- $exempt = append $exempt $namespace }}
{{- end }}
{{- end }}
{{- $condition := "false" }}
{{- if hasKey $limits "*" }}
{{- $condition = ternary (printf "!(request.namespace in %s)" (include "topogate.texts" $exempt)) "true" (not (empty $exempt)) }}
{{- else if $limits }}
{{- $condition = printf "request.namespace in %s" (include "topogate.table" $limits) }}
{{- end -}}
- name: namespace-has-a-maximum
  expression: {{ quote $condition }}
{{- if ne $condition "false" }}
- name: asks-for-gpu-or-is-gated
  expression: {{ printf "%s || %s" (include "topogate.asksForGpu" (list $decides "")) (include "topogate.isGated" $decides) | quote }}
{{- end }}
{{- end }}
