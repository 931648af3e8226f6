{{/* The name of a policy, which unlike a role's name must not contain a colon. */}}
{{- define "wattloop.policyName" -}}
{{ include "wattloop.clusterName" . | replace ":" "." }}
{{- end -}}
