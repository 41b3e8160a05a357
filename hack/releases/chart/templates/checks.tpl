{{- include "topogate.check" . -}}
