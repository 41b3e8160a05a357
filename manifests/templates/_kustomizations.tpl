{{- /* The manifests as kustomize reads them: the base, and the components that are chosen by values. */ -}}
{{- /* The folders whose kustomizations are read, as JSON. */ -}}
{{- define "topogate.folders" -}}
{{- $version := .Capabilities.KubeVersion.Version }}
{{- $options := dict
  "components/allocator" .Values.allocator.enabled
  "components/allocator-before-1.36" (and .Values.allocator.enabled (semverCompare "<1.36.0-0" $version))
  "components/cert-manager" .Values.certManager.enabled
  "components/falldio" .Values.falldio
  "components/falldio-resource" (eq .Values.falldio "resource")
  "components/in-process-gate" .Values.inProcessGate.enabled
  "components/labeler-eks" (eq .Values.labeler.source "eks")
  "components/labeler-extended-resources" .Values.labeler.extendedResources
  "components/labeler-gce" (eq .Values.labeler.source "gce")
  "components/labeler-nfd" (eq .Values.labeler.source "nfd")
  "components/monitoring" .Values.monitoring.enabled
  "components/reader" .Values.reader.enabled
  "components/scale-up" (dig "scaleUp" "provisioningClass" "" .Values.config)
  "components/ui" .Values.ui.enabled
  "overlays/strict" .Values.strict.enabled
}}
{{- $folders := list "base" }}
{{- range $folder, $isChosen := $options }}
{{- if $isChosen }}
{{- $folders = append $folders $folder }}
{{- end }}
{{- end }}
{{- toJson $folders }}
{{- end }}

{{- define "topogate.kustomization" -}}
{{- $path := printf "%s/kustomization.yaml" (index . 1) }}
{{- (index . 0).Files.Get $path | fromYaml | toJson }}
{{- end }}

{{- /* The objects in a file, as JSON. It takes a list: the root, the path. */ -}}
{{- define "topogate.objectsOf" -}}
{{- $objects := list }}
{{- range regexSplit "(?m)^---$" ((index . 0).Files.Get (index . 1)) -1 }}
{{- with fromYaml . }}
{{- $objects = append $objects . }}
{{- end }}
{{- end }}
{{- toJson $objects }}
{{- end }}

{{- /* The objects of folders with the patches of all of them, as JSON. It takes a list: the root, the folders. */ -}}
{{- define "topogate.objects" -}}
{{- $root := index . 0 }}
{{- $objects := list }}
{{- range $folder := index . 1 }}
{{- $kustomization := include "topogate.kustomization" (list $root $folder) | fromJson }}
{{- range $file := $kustomization.resources }}
{{- if hasSuffix ".yaml" $file }}
{{- $objects = concat $objects (include "topogate.objectsOf" (list $root (printf "%s/%s" $folder $file)) | fromJsonArray) }}
{{- end }}
{{- end }}
{{- range $kustomization.configMapGenerator }}
{{- $data := dict }}
{{- range $file := .files }}
{{- $_ := set $data $file ($root.Files.Get (printf "%s/%s" $folder $file)) }}
{{- end }}
{{- $metadata := merge (pick . "name" "namespace") (pick .options "labels") }}
{{- $objects = append $objects (dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" $metadata "data" $data) }}
{{- end }}
{{- end }}
{{- $patches := include "topogate.patches" . | fromJsonArray }}
{{- $patched := list }}
{{- range $objects }}
{{- with include "topogate.patched" (list . $patches) | fromJson }}
{{- $patched = append $patched . }}
{{- end }}
{{- end }}
{{- toJson $patched }}
{{- end }}

{{- /* The patches of folders, as JSON. It takes a list: the root, the folders. */ -}}
{{- define "topogate.patches" -}}
{{- $root := index . 0 }}
{{- $patches := list }}
{{- range index . 1 }}
{{- $kustomization := include "topogate.kustomization" (list $root .) | fromJson }}
{{- $patches = concat $patches ($kustomization.patches | default list) }}
{{- end }}
{{- toJson $patches }}
{{- end }}

{{- /* An object after the patches of kustomizations, as JSON; {} if one deletes it. It takes a list: both. */ -}}
{{- define "topogate.patched" -}}
{{- $object := index . 0 }}
{{- range index . 1 }}
{{- $merge := fromYaml .patch }}
{{- $isOperations := hasKey $merge "Error" }}
{{- $target := .target | default (dict "kind" $merge.kind "name" (dig "metadata" "name" "" $merge)) }}
{{- if and (eq $target.kind (get $object "kind" | default "")) (eq $target.name $object.metadata.name) }}
{{- if eq (get $merge "$patch" | default "") "delete" }}
{{- $object = dict }}
{{- else if $isOperations }}
{{- range $operation := fromYamlArray .patch }}
{{- $path := trimPrefix "/" $operation.path | splitList "/" }}
{{- $object = (include "topogate.operated" (list $object $path $operation) | fromJson).value }}
{{- end }}
{{- else }}
{{- $object = mergeOverwrite $object $merge }}
{{- end }}
{{- end }}
{{- end }}
{{- toJson $object }}
{{- end }}

{{- /* A value after an operation of JSON Patch, as {value: JSON}. It takes a list: the value, the path below it, the operation. */ -}}
{{- define "topogate.operated" -}}
{{- $value := index . 0 }}
{{- $path := index . 1 }}
{{- $operation := index . 2 }}
{{- if not (has $operation.op (list "add" "replace" "test")) }}
{{- fail (printf "the chart knows no operation %s of JSON Patch. Add it to templates/_kustomizations.tpl." $operation.op) }}
{{- else if eq $operation.op "test" }}
{{- else if not $path }}
{{- $value = $operation.value }}
{{- else if kindIs "map" $value }}
{{- $below := include "topogate.operated" (list (get $value (first $path)) (rest $path) $operation) | fromJson }}
{{- $_ := set $value (first $path) $below.value }}
{{- else if eq (first $path) "-" }}
{{- $value = append $value $operation.value }}
{{- else }}
{{- $items := list }}
{{- range $number, $item := $value }}
{{- if eq (toString $number) (first $path) }}
{{- $item = (include "topogate.operated" (list $item (rest $path) $operation) | fromJson).value }}
{{- end }}
{{- $items = append $items $item }}
{{- end }}
{{- $value = $items }}
{{- end }}
{{- dict "value" $value | toJson }}
{{- end }}
