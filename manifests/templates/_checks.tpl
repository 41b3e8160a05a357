{{- /* What a schema of values cannot refuse. */ -}}
{{- define "topogate.check" -}}
{{- range $name, $image := .Values.images }}
{{- if or (not $image) (hasPrefix "REGISTRY/" $image) (hasPrefix "YOUR-REGISTRY/" $image) }}
{{- printf "\n- images.%s is %q, which names no image of yours. Build the images with hack/image build, push them to your registry, and name both: helm upgrade --install topogate CHART --namespace kube-system --set images.topogate=YOUR-REGISTRY/topogate:TAG --set images.labeler=YOUR-REGISTRY/topogate-labeler:TAG" $name $image }}
{{- end }}
{{- end }}
{{- if and .Values.createNamespaces (has .Release.Namespace (list "topogate-system" "topogate-labeler" "topogate-allocator")) }}
{{- printf "\n- the release is to be kept in namespace %s, which the chart itself makes. Keep it in another one, as --namespace kube-system; or make the namespaces yourself, and set createNamespaces=false." .Release.Namespace }}
{{- end }}
{{- if and .Values.inProcessGate.enabled (semverCompare "<1.36.0-0" .Capabilities.KubeVersion.Version) }}
{{- printf "\n- inProcessGate.enabled needs Kubernetes 1.36 or newer, and the cluster has %s. Set inProcessGate.enabled=false; strict.enabled=true refuses GPU pods instead while the webhook does not answer." .Capabilities.KubeVersion.Version }}
{{- end }}
{{- $found := lookup "v1" "ServiceAccount" "topogate-system" "sweeper" }}
{{- if $found }}
{{- $owner := dig "metadata" "annotations" "meta.helm.sh/release-name" "" $found }}
{{- $where := dig "metadata" "annotations" "meta.helm.sh/release-namespace" "" $found }}
{{- if and $owner (or (ne $owner .Release.Name) (ne $where .Release.Namespace)) }}
{{- printf "\n- topogate is in this cluster already, as release %s of namespace %s. A cluster has one topogate: upgrade that release (helm upgrade %s CHART --namespace %s), or uninstall it first." $owner $where $owner $where }}
{{- end }}
{{- end }}
{{- $facts := fromYaml .Values.labeler.facts }}
{{- if hasKey $facts "Error" }}
{{- printf "\n- labeler.facts is no YAML: %s. Give the whole text of the list of nodes, as docs/operators/topology.md shows it." $facts.Error }}
{{- end }}
{{- range $program, $values := .Values }}
{{- if kindIs "map" $values }}
{{- $there := list }}
{{- range $number, $variable := dig "env" list $values }}
{{- include "topogate.once" (list $there $variable.name (printf "%s.env[%d].name" $program $number)) }}
{{- $there = append $there $variable.name }}
{{- end }}
{{- range $name, $limit := dig "resources" "limits" dict $values }}
{{- $request := dig "resources" "requests" $name "0" $values }}
{{- if gt (include "topogate.amount" $request | float64) (include "topogate.amount" $limit | float64) }}
{{- printf "\n- %s.resources: the request of %s is %v, which is above its limit, %v. Set both." $program $name $request $limit }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- $config := include "topogate.config" . | fromJson }}
{{- include "topogate.checkConfig" $config }}
{{- /* Nodes whose levels are not those of the labeler as shipped may have their labels from elsewhere. */ -}}
{{- $shipped := include "topogate.document" (list . "base/labeler.yaml" "labeler.yaml" list) | fromJson }}
{{- if ne (toJson $shipped.levels) (toJson .Values.labeler.config.levels) }}
{{- $keys := (.Files.Get "defaults.json" | fromJson).topologyKeys }}
{{- with dig "topology" "levels" list $config }}
{{- $keys = list }}
{{- range . }}
{{- range . }}
{{- $keys = concat $keys (ternary . (list .) (kindIs "slice" .)) }}
{{- end }}
{{- end }}
{{- end }}
{{- range .Values.labeler.config.levels }}
{{- include "topogate.known" (list $keys . "labeler.config.levels, as a label of config.topology.levels") }}
{{- end }}
{{- end }}
{{- end -}}
{{- /* A quantity of Kubernetes as a number. */ -}}
{{- define "topogate.amount" -}}
{{- $number := regexFind "^[0-9.]+([eE][+-]?[0-9]+)?" (toString .) }}
{{- $size := get (dict "n" 1e-9 "u" 1e-6 "m" 1e-3 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 0x1p10 "Mi" 0x1p20 "Gi" 0x1p30 "Ti" 0x1p40 "Pi" 0x1p50 "Ei" 0x1p60) (toString . | trimPrefix $number) }}
{{- mulf (float64 $number) ($size | default 1) }}
{{- end }}
{{- /* What the programs would refuse of a configuration that a schema allows: names that occur twice, or nowhere. */ -}}
{{- define "topogate.checkConfig" -}}
{{- $tiers := list }}
{{- $classes := list }}
{{- range $number, $tier := .tiers }}
{{- $tier := $tier | default dict }}
{{- range $key := list "name" "priorityClassName" }}
{{- if not (get $tier $key) }}
{{- printf "\n- config.tiers[%d].%s is missing. A list of tiers replaces the shipped one, unless none of its tiers has both keys: then these change the shipped tiers at their places." $number $key }}
{{- end }}
{{- end }}
{{- include "topogate.once" (list $tiers $tier.name (printf "config.tiers[%d].name" $number)) }}
{{- include "topogate.once" (list $classes $tier.priorityClassName (printf "config.tiers[%d].priorityClassName" $number)) }}
{{- $tiers = append $tiers $tier.name }}
{{- $classes = append $classes $tier.priorityClassName }}
{{- end }}
{{- $models := list }}
{{- $named := dict }}
{{- range $number, $model := .models }}
{{- range concat (list $model.name) ($model.aliases | default list) }}
{{- $name := include "topogate.model" . }}
{{- include "topogate.once" (list $models $name (printf "config.models[%d]: %s" $number .)) }}
{{- $models = append $models $name }}
{{- $_ := set $named $name $model.name }}
{{- end }}
{{- end }}
{{- range $namespace, $rules := (.namespaces | default dict).rules }}
{{- $path := printf "config.namespaces.rules.%s" $namespace }}
{{- $rules := $rules | default dict }}
{{- include "topogate.known" (list $tiers $rules.defaultTier (printf "%s.defaultTier" $path)) }}
{{- include "topogate.known" (list $tiers $rules.maximumTier (printf "%s.maximumTier" $path)) }}
{{- include "topogate.known" (list $models (include "topogate.model" $rules.defaultModel) (printf "%s.defaultModel" $path)) }}
{{- $isAbove := false }}
{{- range $tiers }}
{{- if and $isAbove (eq . ($rules.defaultTier | default "")) }}
{{- printf "\n- %s.defaultTier: %s is above maximumTier %s. Lower the default, or raise the maximum." $path . $rules.maximumTier }}
{{- end }}
{{- $isAbove = or $isAbove (eq . ($rules.maximumTier | default "")) }}
{{- end }}
{{- end }}
{{- $order := .fairOrder | default dict }}
{{- $costs := list }}
{{- range $model, $cost := $order.modelCosts }}
{{- $name := include "topogate.model" $model }}
{{- include "topogate.known" (list $models $name (printf "config.fairOrder.modelCosts: %s" $model)) }}
{{- include "topogate.once" (list $costs (get $named $name) "config.fairOrder.modelCosts") }}
{{- $costs = append $costs (get $named $name) }}
{{- end }}
{{- range $account, $weight := $order.weights }}
{{- $label := regexFind "^.*=" $account | trimSuffix "=" }}
{{- if and (contains "=" $account) (ne $label ($order.accountLabel | default "")) }}
{{- printf "\n- config.fairOrder.weights: %s is of another label than config.fairOrder.accountLabel. Write a namespace, or that label and a value of it." $account }}
{{- end }}
{{- end }}
{{- $levels := list }}
{{- $families := list }}
{{- range $number, $level := (.topology | default dict).levels }}
{{- range $name, $keys := $level }}
{{- include "topogate.once" (list $levels $name (printf "config.topology.levels[%d]" $number)) }}
{{- $levels = append $levels $name }}
{{- $families = append $families (ternary $keys (list $keys) (kindIs "slice" $keys) | len) | uniq }}
{{- end }}
{{- end }}
{{- if gt (len $families) 1 }}
{{- printf "\n- config.topology.levels: each level needs one label key for each family. Give all levels as many." }}
{{- end }}
{{- $gangs := .gangs | default dict }}
{{- range $gangs.looseOwners }}
{{- include "topogate.once" (list ($gangs.owners | default list) . "config.gangs.looseOwners and config.gangs.owners") }}
{{- end }}
{{- end }}
{{- /* A name of a model without case, blanks and punctuation. */ -}}
{{- define "topogate.model" -}}
{{- regexReplaceAll "[^\\pL\\pN]" (. | default "" | lower) "" }}
{{- end }}
{{- /* Refuses a name that is there already. It takes a list: the names that are there, the name, its path. */ -}}
{{- define "topogate.once" -}}
{{- if and (index . 1) (has (index . 1) (index . 0)) }}
{{- printf "\n- %s: %s occurs twice. Remove one of the two." (index . 2) (index . 1) }}
{{- end }}
{{- end }}
{{- /* Refuses a name that nothing defines. It takes a list: the names that are there, the name, its path. */ -}}
{{- define "topogate.known" -}}
{{- if and (index . 1) (not (has (index . 1) (index . 0))) }}
{{- printf "\n- %s: there is no %s; there are %s." (index . 2) (index . 1) (join ", " (index . 0)) }}
{{- end }}
{{- end }}
