{{- /* The objects of base, components and overlays, with the chart's values in them. */ -}}
{{- with include "topogate.check" . | trim }}
{{- fail (printf "values cannot be used:\n%s" .) }}
{{- end }}
{{- $own := include "topogate.decides" (list . (include "topogate.presetConfig" . | fromJson)) | fromJson }}
{{- $given := include "topogate.decides" (list . (include "topogate.config" . | fromJson)) | fromJson }}
{{- $setters := dict
  "ConfigMap" "topogate.files"
  "DaemonSet" "topogate.program"
  "Deployment" "topogate.program"
  "PodMonitor" "topogate.monitor"
  "PrometheusRule" "topogate.rules"
  "ServiceAccount" "topogate.account"
}}
{{- $folders := include "topogate.folders" . | fromJsonArray }}
{{- range $object := include "topogate.objects" (list . $folders) | fromJsonArray }}
{{- if or $.Values.createNamespaces (ne $object.kind "Namespace") }}
{{- $object = include "topogate.followed" (list $object $own $given) | fromJson }}
{{- $name := printf "%s/%s" $object.kind $object.metadata.name }}
{{- $setter := ternary "topogate.tiers" (get $setters $object.kind) (eq $name "ValidatingAdmissionPolicy/topogate-tiers") }}
{{- with $setter }}
{{ include . (list $ $object) }}
{{- end }}
---
{{ toYaml $object }}
{{- end }}
{{- end }}
