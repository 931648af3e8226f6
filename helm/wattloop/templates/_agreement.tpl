{{/* What a schema cannot say: values that each may be, and not together. */}}
{{- define "wattloop.refuseWhatDisagrees" -}}
{{- $ports := dict -}}
{{- range list (list "reporting.port" .Values.reporting.port) (list "metrics.port" .Values.metrics.port) (list "health.port" .Values.health.port) -}}
{{- $port := last . | toString -}}
{{- if hasKey $ports $port -}}
{{- fail (printf "%s and %s are both %s: the operator listens on each" (get $ports $port) (first .) $port) -}}
{{- end -}}
{{- $_ := set $ports $port (first .) -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) -}}
{{- fail "metrics.podMonitor.enabled needs networkPolicy.metricsFrom, the peers that may read metrics, which are nobody by default: for a Prometheus in the namespace monitoring, [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" -}}
{{- end -}}
{{- $agent := .Values.agent -}}
{{- range list "PowerLimitWatts" "GraphicsClockMegahertz" "MemoryClockMegahertz" -}}
{{- $least := get $agent (printf "minimum%s" .) -}}
{{- $most := get $agent (printf "maximum%s" .) -}}
{{- if and $least $most (gt (float64 $least) (float64 $most)) -}}
{{- fail (printf "agent.minimum%s is %v, more than agent.maximum%s, %v: no GPU could be set to anything" . $least . $most) -}}
{{- end -}}
{{- end -}}
{{- end -}}
