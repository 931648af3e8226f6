{{/* Where the check's training runs. Where trainings mount the agent's socket, Pod Security must allow a hostPath, which it does
in the agent's own namespace. */}}
{{- define "wattloop.checkNamespace" -}}
{{- if .Values.check.namespace -}}
{{- .Values.check.namespace -}}
{{- else if and .Values.agent.enabled .Values.agent.mountSocket -}}
{{- .Values.agent.namespace -}}
{{- else -}}
{{- .Release.Namespace -}}
{{- end -}}
{{- end -}}
