{{/* Rejects combinations of values that a JSON schema cannot reject. */}}
{{- define "wattloop.rejectConflicts" -}}
{{- $ports := dict -}}
{{- range list (list "reporting.port" .Values.reporting.port) (list "metrics.port" .Values.metrics.port) (list "health.port" .Values.health.port) -}}
{{- $port := last . | toString -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "%s and %s are both %s; give each its own port" (get $ports $port) (first .) $port) -}}
{{- end -}}
{{- $_ := set $ports $port (first .) -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) -}}
{{- fail "metrics.podMonitor.enabled needs networkPolicy.metricsFrom, the peers that may scrape; it is empty. For a Prometheus in the namespace monitoring set [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" -}}
{{- end -}}
{{- $agent := .Values.agent -}}
{{- range list "PowerLimitWatts" "GraphicsClockMegahertz" "MemoryClockMegahertz" -}}
{{- $minimum := get $agent (printf "minimum%s" .) -}}
{{- $maximum := get $agent (printf "maximum%s" .) -}}
{{- if and $minimum $maximum (gt (float64 $minimum) (float64 $maximum)) -}}
{{- fail (printf "agent.minimum%s is %v, more than agent.maximum%s, %v: no value lies between them" . $minimum . $maximum) -}}
{{- end -}}
{{- end -}}
{{- end -}}
