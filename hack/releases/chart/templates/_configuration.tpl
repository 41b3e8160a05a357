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
{{- /* The configuration, as JSON. */ -}}
{{- define "topogate.config" -}}
{{- $presets := (.Files.Get "presets.json" | fromJson).config }}
{{- $identity := pick $presets.shipped "apiVersion" "kind" }}
{{- include "topogate.preset" (list (merge dict $identity .Values.config) $presets.shipped (get $presets .Values.falldio | default dict)) }}
{{- end }}
{{- /* The labeler's own configuration, as JSON. */ -}}
{{- define "topogate.labeler" -}}
{{- $presets := (.Files.Get "presets.json" | fromJson).labeler }}
{{- include "topogate.preset" (list .Values.labeler.config $presets.shipped (get $presets .Values.labeler.source | default dict)) }}
{{- end }}
{{- /* What the API server's conditions depend on, with defaults, as JSON. */ -}}
{{- define "topogate.decides" -}}
{{- $presets := .Files.Get "presets.json" | fromJson }}
{{- $config := include "topogate.config" . | fromJson }}
{{- mergeOverwrite $presets.usual (pick $config "gatePrefix" "schedulerNames" "gpus" "namespaces" "gangs" "tiers") | toJson }}
{{- end }}
{{- define "topogate.gatePrefix" -}}
{{- (include "topogate.decides" . | fromJson).gatePrefix }}
{{- end }}
{{- define "topogate.isGated" -}}
object.spec.?schedulingGates.orValue([]).exists(g, g.name.startsWith('{{ include "topogate.gatePrefix" . }}'))
{{- end }}
{{- /* Whether a container asks for a GPU. It takes a list: the root, and further conditions. */ -}}
{{- define "topogate.asksForGpu" -}}
{{- $gpus := (include "topogate.decides" (index . 0) | fromJson).gpus -}}
(dyn(object.spec.containers) + dyn(object.spec.?initContainers.orValue([]))).exists(c, c.?resources.?requests.orValue({}).exists(k, (
{{- include "topogate.matches" $gpus.resources }}{{ index . 1 -}}
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
{{- define "topogate.schedulers" -}}
{{- include "topogate.texts" (concat (list "") (include "topogate.decides" . | fromJson).schedulerNames) }}
{{- end }}
{{- define "topogate.adopted" -}}
{{- if ne (include "topogate.decides" . | fromJson).gangs.native "leave" }} || object.spec.schedulingGroup.?podGroupName.orValue('') != ''{{ end }}
{{- end }}
{{- define "topogate.excluded" -}}
{{- $presets := .Files.Get "presets.json" | fromJson }}
{{- concat $presets.excluded (include "topogate.decides" . | fromJson).namespaces.excluded | uniq | sortAlpha | toYaml }}
{{- end }}
{{- /* The highest priority of each namespace that has a maximum, as JSON. */ -}}
{{- define "topogate.limits" -}}
{{- $classes := (.Files.Get "presets.json" | fromJson).priorityClasses }}
{{- $decides := include "topogate.decides" . | fromJson }}
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
{{- define "topogate.maximum" -}}
{{- $limits := include "topogate.limits" . | fromJson }}
{{- $all := get $limits "*" }}
{{- if not $limits }}optional.none()
{{- else if eq (toJson (keys $limits)) `["*"]` }}optional.of({{ int64 $all }})
{{- else }}{{ include "topogate.table" $limits }}[?request.namespace]
{{- if hasKey $limits "*" }}.or(optional.of({{ int64 $all }})){{ end }}
{{- end }}
{{- end }}
{{- define "topogate.maximumConditions" -}}
{{- $limits := include "topogate.limits" . | fromJson }}
{{- $exempt := list }}
{{- range $namespace := keys (include "topogate.decides" . | fromJson).namespaces.rules | sortAlpha }}
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
  expression: {{ printf "%s || %s" (include "topogate.asksForGpu" (list . "")) (include "topogate.isGated" .) | quote }}
{{- end }}
{{- end }}
