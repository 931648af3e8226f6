{{/* The node's folder of the agent's socket, which training pods mount as a whole. */}}
{{- define "wattloop.socketFolder" -}}/run/wattloop{{- end -}}

{{/* The node's folder of leases and of the energy ledger. */}}
{{- define "wattloop.stateFolder" -}}/var/lib/wattloop{{- end -}}

{{/* The root folder of the node's kubelet. */}}
{{- define "wattloop.kubeletFolder" -}}/var/lib/kubelet{{- end -}}

{{/* The kubelet's folder of pods' logs. */}}
{{- define "wattloop.podLogsFolder" -}}/var/log/pods{{- end -}}
