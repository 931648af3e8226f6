{{/* The namespace of the check's training. If trainings mount the agent's socket, Pod Security must admit a hostPath, as it
does in the agent's namespace. */}}
{{- define "wattloop.checkNamespace" -}}
{{- if .Values.check.namespace -}}
{{- .Values.check.namespace -}}
{{- else if and .Values.agent.enabled .Values.agent.mountSocket -}}
{{- .Values.agent.namespace -}}
{{- else -}}
{{- .Release.Namespace -}}
{{- end -}}
{{- end -}}
