{{- /* The objects of the manifests, with the chart's values in them. */ -}}
{{- /* A Deployment or a DaemonSet with the values of its program. It takes a list: the root, the manifest. */ -}}
{{- define "topogate.program" -}}
{{- $root := index . 0 }}
{{- $object := index . 1 | fromYaml }}
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
{{- toYaml $object }}
{{- end }}
{{- /* A ServiceAccount with the annotations of its program. It takes a list: the root, the manifest. */ -}}
{{- define "topogate.account" -}}
{{- $object := index . 1 | fromYaml }}
{{- with dig $object.metadata.name "serviceAccount" "annotations" dict (index . 0).Values.AsMap }}
{{- $_ := set $object.metadata "annotations" . }}
{{- end }}
{{- toYaml $object }}
{{- end }}
{{- /* A PodMonitor; or a ServiceMonitor of the same pods, with a Service. It takes a list: the root, the manifest. */ -}}
{{- define "topogate.monitor" -}}
{{- $object := index . 1 | fromYaml }}
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
{{- toYaml (dict "apiVersion" "v1" "kind" "Service" "metadata" $metadata "spec" $spec) }}
---
{{- $_ := set $object "kind" "ServiceMonitor" }}
{{- $_ := set $object.spec "selector" (dict "matchLabels" $labels) }}
{{- $_ := set $object "spec" (merge (dict "endpoints" $endpoints) (omit $object.spec "podMetricsEndpoints")) }}
{{- end }}
{{ toYaml $object }}
{{- end }}
