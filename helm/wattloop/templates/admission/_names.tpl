{{/* The name of a policy: unlike a role's, it has no colon. */}}
{{- define "wattloop.policyName" -}}
{{ include "wattloop.clusterName" . | replace ":" "." }}
{{- end -}}
