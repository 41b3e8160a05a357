{{- /* The objects of base, components and overlays, with the chart's values in them. */ -}}
{{- with include "topogate.check" . | trim }}
{{- fail (printf "values cannot be used:\n%s" .) }}
{{- end }}
{{- $own := include "topogate.decides" (list . (include "topogate.presetConfig" . | fromJson)) | fromJson }}
{{- $config := include "topogate.config" . | fromJson }}
{{- $given := include "topogate.decides" (list . $config) | fromJson }}
{{- $setters := dict
  "ConfigMap" "topogate.files"
  "DaemonSet" "topogate.program"
  "Deployment" "topogate.program"
  "PodMonitor" "topogate.monitor"
  "PrometheusRule" "topogate.rules"
  "ServiceAccount" "topogate.account"
  "ValidatingAdmissionPolicy" "topogate.tiers"
}}
{{- $folders := include "topogate.folders" . | fromJsonArray }}
{{- range $object := include "topogate.objects" (list . $folders) | fromJsonArray }}
{{- if or $.Values.createNamespaces (ne $object.kind "Namespace") }}
{{- $object = include "topogate.followed" (list $object $own $given) | fromJson }}
{{- with get $setters $object.kind }}
{{ include . (list $ $object $config $given) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
