{{- /* What values change of an object of a kind. Each takes a list: the root, the object, in which it sets the values, */ -}}
{{- /* the configuration, and what decides by it. */ -}}
{{- /* A Deployment or a DaemonSet, by the values of its program. */ -}}
{{- define "topogate.program" -}}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- $values := index $root.Values $object.metadata.name }}
{{- $common := ternary (pick $root.Values "nodeSelector" "tolerations") dict (eq $object.kind "Deployment") }}
{{- if hasKey $object.spec "replicas" }}
{{- $_ := set $object.spec "replicas" $values.replicas }}
{{- end }}
{{- $template := $object.spec.template }}
{{- range $field, $given := dict "labels" $values.podLabels "annotations" $values.podAnnotations }}
{{- with $given }}
{{- $_ := set $template.metadata $field (merge dict (get $template.metadata $field | default dict) .) }}
{{- end }}
{{- end }}
{{- $pod := $template.spec }}
{{- with merge dict ($values.nodeSelector | default dict) ($common.nodeSelector | default dict) ($pod.nodeSelector | default dict) }}
{{- $_ := set $pod "nodeSelector" . }}
{{- end }}
{{- $given := merge (dict "imagePullSecrets" $root.Values.imagePullSecrets) (dict "tolerations" ($values.tolerations | default $common.tolerations)) (pick $values "affinity" "priorityClassName" "topologySpreadConstraints") }}
{{- range $field, $value := $given }}
{{- with $value }}
{{- $_ := set $pod $field . }}
{{- end }}
{{- end }}
{{- range $container := $pod.containers }}
{{- $_ := set $container "image" (get $root.Values.images (eq $container.image "topogate-labeler" | ternary "labeler" "topogate")) }}
{{- $_ := set $container "resources" $values.resources }}
{{- range $field, $more := dict "args" $values.extraArgs "env" $values.env }}
{{- with $more }}
{{- $_ := set $container $field (concat (get $container $field | default list) .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- /* A ServiceAccount, with the annotations of its program. */ -}}
{{- define "topogate.account" -}}
{{- $object := index . 1 }}
{{- with dig $object.metadata.name "serviceAccount" "annotations" dict (index . 0).Values.AsMap }}
{{- $_ := set $object.metadata "annotations" . }}
{{- end }}
{{- end }}
{{- /* A monitor or alerts, with the labels by which Prometheus selects them. */ -}}
{{- define "topogate.monitoringLabels" -}}
{{- with (index . 0).Values.monitoring.labels }}
{{- $_ := set (index $ 1).metadata "labels" . }}
{{- end }}
{{- end }}
{{- /* A PodMonitor, which becomes a ServiceMonitor of the same pods; the Service that it needs stands before it. */ -}}
{{- define "topogate.monitor" -}}
{{- $object := index . 1 }}
{{- include "topogate.monitoringLabels" . }}
{{- if eq (index . 0).Values.monitoring.kind "ServiceMonitor" }}
{{- $name := printf "%s-metrics" (trimPrefix "topogate-" $object.metadata.name) }}
{{- $labels := dict "app.kubernetes.io/part-of" "topogate" "app.kubernetes.io/component" $name }}
{{- $endpoints := $object.spec.podMetricsEndpoints }}
{{- $ports := list }}
{{- range $endpoints }}
{{- $ports = append $ports (dict "name" .port "port" 80 "targetPort" .port) }}
{{- end }}
{{- $namespace := dig "namespaceSelector" "matchNames" (list $object.metadata.namespace) $object.spec | first }}
{{- $metadata := dict "name" $name "namespace" $namespace "labels" $labels }}
{{- $spec := dict "clusterIP" "None" "selector" $object.spec.selector.matchLabels "ports" $ports }}
{{- print "---\n" (toYaml (dict "apiVersion" "v1" "kind" "Service" "metadata" $metadata "spec" $spec)) "\n" }}
{{- $_ := set $object "kind" "ServiceMonitor" }}
{{- $_ := set $object.spec "selector" (dict "matchLabels" $labels) }}
{{- $_ := set $object "spec" (merge (dict "endpoints" $endpoints) (omit $object.spec "podMetricsEndpoints")) }}
{{- end }}
{{- end }}
{{- /* Alerts, with the address of their runbooks. */ -}}
{{- define "topogate.rules" -}}
{{- include "topogate.monitoringLabels" . }}
{{- $base := (index . 0).Values.monitoring.runbookBase | trimSuffix "/" }}
{{- range (index . 1).spec.groups }}
{{- range .rules }}
{{- $path := trimPrefix "docs/" .annotations.runbook_url }}
{{- $_ := set .annotations "runbook_url" (printf "%s/%s" $base $path) }}
{{- end }}
{{- end }}
{{- end }}
{{- /* The files that an operator may give. */ -}}
{{- define "topogate.files" -}}
{{- $root := index . 0 }}
{{- $object := index . 1 }}
{{- if eq $object.metadata.name "topogate-configuration" }}
{{- $_ := set $object "data" (dict "configuration.yaml" (index . 2 | toYaml)) }}
{{- else if eq $object.metadata.name "labeler" }}
{{- $data := dict "labeler.yaml" (include "topogate.labeler" $root | fromJson | toYaml) }}
{{- with $root.Values.labeler.facts }}
{{- $_ := set $data "facts.yaml" . }}
{{- end }}
{{- $_ := set $object "data" $data }}
{{- end }}
{{- end }}
{{- /* The maximum of each namespace, in the policy that enforces it. */ -}}
{{- define "topogate.tiers" -}}
{{- $object := index . 1 }}
{{- if eq $object.metadata.name "topogate-tiers" }}
{{- $decides := index . 3 }}
{{- $limits := include "topogate.limits" (list (index . 0) $decides) | fromJson }}
{{- $_ := set $object.spec "matchConditions" (include "topogate.maximumConditions" (list $limits $decides) | fromYamlArray) }}
{{- $_ := set (first $object.spec.variables) "expression" (include "topogate.maximum" $limits) }}
{{- end }}
{{- end }}
