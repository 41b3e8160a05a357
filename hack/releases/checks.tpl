{{- /* Made by hack/chart. What a schema of values cannot say. */ -}}
{{- /* Compares a value at a path with a shape of hack/releases/chart_shapes.py; page describes the file. */ -}}
{{- define "topogate.shape" -}}
{{- if not (has (kindOf .value) .shape.kinds) }}
{{- fail (printf "%s must be %s, not %s. Correct the text, as %s shows it." .path .shape.what (kindOf .value | replace "invalid" "nothing" | replace "slice" "a list" | replace "map" "a mapping" | replace "string" "text") .page) }}
{{- end }}
{{- if and (hasKey .shape "words") (not (has .value .shape.words)) }}
{{- fail (printf "%s must be %s, not %s." .path .shape.what .value) }}
{{- end }}
{{- range $name := .shape.required }}
{{- if not (hasKey $.value $name) }}
{{- fail (printf "%s lacks the key %s. Give the whole text, as %s shows it." $.path $name $.page) }}
{{- end }}
{{- end }}
{{- if kindIs "map" .value }}
{{- range $key, $value := .value }}
{{- if hasKey $.shape "keys" }}
{{- if not (hasKey $.shape.keys $key) }}
{{- fail (printf "%s: there is no key %s; there are %s." $.path $key (keys $.shape.keys | sortAlpha | join " ")) }}
{{- end }}
{{- include "topogate.shape" (dict "path" (printf "%s: %s" $.path $key) "value" $value "shape" (get $.shape.keys $key) "page" $.page) }}
{{- else if hasKey $.shape "each" }}
{{- include "topogate.shape" (dict "path" (printf "%s: %s" $.path $key) "value" $value "shape" $.shape.each "page" $.page) }}
{{- end }}
{{- end }}
{{- else if and (kindIs "slice" .value) (hasKey .shape "each") }}
{{- range $index, $value := .value }}
{{- include "topogate.shape" (dict "path" (printf "%s[%d]" $.path $index) "value" $value "shape" $.shape.each "page" $.page) }}
{{- end }}
{{- end }}
{{- end -}}
{{- define "topogate.check" -}}
{{- range $name, $image := .Values.images }}
{{- if or (not $image) (hasPrefix "REGISTRY/" $image) (hasPrefix "YOUR-REGISTRY/" $image) }}
{{- fail (printf "images.%s is %q, which names no image of yours. Build the images with hack/image build, push them to your registry, and name both: helm upgrade --install topogate CHART --namespace kube-system --set images.topogate=YOUR-REGISTRY/topogate:TAG --set images.labeler=YOUR-REGISTRY/topogate-labeler:TAG" $name $image) }}
{{- end }}
{{- end }}
{{- if and .Values.createNamespaces (has .Release.Namespace (list "topogate-system" "topogate-labeler" "topogate-allocator")) }}
{{- fail (printf "the release is to be kept in namespace %s, which the chart itself makes. Keep it in another one, as --namespace kube-system; or make the namespaces yourself, and set createNamespaces=false." .Release.Namespace) }}
{{- end }}
{{- if and .Values.inProcessGate.enabled (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) }}
{{- fail (printf "inProcessGate.enabled needs Kubernetes 1.36 or newer, and the cluster has %s. Set inProcessGate.enabled=false; strict.enabled=true refuses GPU pods instead while the webhook does not answer." .Capabilities.KubeVersion.Version) }}
{{- end }}
{{- $found := lookup "v1" "ServiceAccount" "topogate-system" "sweeper" }}
{{- if $found }}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found }}
{{- $where := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $found }}
{{- if and $owner (or (ne $owner .Release.Name) (ne $where .Release.Namespace)) }}
{{- fail (printf "topogate is in this cluster already, as release %s of namespace %s. A cluster has one topogate: upgrade that release (helm upgrade %s CHART --namespace %s), or uninstall it first." $owner $where $owner $where) }}
{{- end }}
{{- end }}
{{- $labeler := fromYaml .Values.labeler.config }}
{{- if hasKey $labeler "Error" }}
{{- fail (printf "labeler.config is no YAML: %s. Give the whole text of the labeler's file, as docs/operators/topology.md shows it." $labeler.Error) }}
{{- end }}
{{- if not $labeler.sources }}
{{- fail "labeler.config names no sources, so the labeler would not start. Leave labeler.config out to have the chart's default, or give the whole text." }}
{{- end }}
{{- include "topogate.shape" (dict "path" "labeler.config" "value" $labeler "shape" (fromJson `OF_LABELER`) "page" "docs/operators/topology.md") }}
{{- $facts := fromYaml .Values.labeler.facts }}
{{- if hasKey $facts "Error" }}
{{- fail (printf "labeler.facts is no YAML: %s. Give the whole text of the list of nodes, as docs/operators/topology.md shows it." $facts.Error) }}
{{- end }}
{{- if and .Values.labeler.source (ne (toJson $labeler) (toJson (fromJson `LABELER`))) }}
{{- fail (printf "labeler.source=%s comes with a configuration of its own, which would replace labeler.config. Set one of the two." .Values.labeler.source) }}
{{- end }}
{{- $config := .Values.config }}
{{- if and .Values.falldio (ne (toJson $config) (toJson (fromJson `SHIPPED`))) }}
{{- fail (printf "falldio=%s comes with a configuration of its own, which would replace yours. Leave config as the chart has it; or leave falldio empty, and name the label and the resource falldio.com/gpu in a checkout's manifests/base/configuration.yaml, run topogate config render and hack/chart, and install that chart." .Values.falldio) }}
{{- end }}
{{- range $path, $value := fromJson `RENDERED` }}
{{- $names := splitList "." $path }}
{{- $section := ternary (get $config (first $names) | default dict) $config (eq (len $names) 2) }}
{{- if ne (toJson (get $section (last $names) | default $value)) (toJson $value) }}
{{- fail (printf "config.%s differs from the one that the chart's conditions were rendered from, so the API server would not ask about the right pods. Change manifests/base/configuration.yaml in a checkout, run topogate config render and hack/chart, and install that chart." $path) }}
{{- end }}
{{- end }}
{{- if and (eq (dig "gangs" "native" "adopt" $config) "leave") (or .Values.strict.enabled .Values.inProcessGate.enabled) }}
{{- fail "config.gangs.native=leave changes what strict and inProcessGate are rendered from. Change manifests/base/configuration.yaml in a checkout, run topogate config render and hack/chart, and install that chart." }}
{{- end }}
{{- range $namespace, $rules := (($config.namespaces | default dict).rules | default dict) }}
{{- if hasKey ($rules | default dict) "maximumTier" }}
{{- fail (printf "config.namespaces.rules.%s.maximumTier is guarded by an admission policy that is rendered. Change manifests/base/configuration.yaml in a checkout, run topogate config render and hack/chart, and install that chart." $namespace) }}
{{- end }}
{{- end }}
{{- end -}}
