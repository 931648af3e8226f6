{{/* The URL that training pods and agents report to. */}}
{{- define "wattloop.reportUrl" -}}
{{- if .Values.reporting.url -}}
{{- .Values.reporting.url -}}
{{- else -}}
{{- $scheme := ternary "http" "https" (eq .Values.reporting.tls.mode "none") -}}
{{- printf "%s://%s.%s.svc:%v" $scheme (include "wattloop.operatorName" .) .Release.Namespace .Values.reporting.port -}}
{{- end -}}
{{- end -}}

{{/* The names that the certificate is for, as a YAML list: the Service's, and the host of a URL of one's own. */}}
{{- define "wattloop.reportNames" -}}
{{- $service := printf "%s.%s" (include "wattloop.operatorName" .) .Release.Namespace -}}
{{- $names := list (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) $service -}}
{{- $host := include "wattloop.reportHost" . -}}
{{- if and $host (not (regexMatch "^[0-9.]+$|:" $host)) -}}
{{- $names = append $names $host -}}
{{- end -}}
{{- $names | uniq | toYaml -}}
{{- end -}}

{{/* The same for a URL whose host is an address. */}}
{{- define "wattloop.reportAddresses" -}}
{{- $host := include "wattloop.reportHost" . -}}
{{- ternary (list $host) list (regexMatch "^[0-9.]+$|:" $host) | toYaml -}}
{{- end -}}

{{/* The host of a URL of one's own, without port and brackets; else empty. */}}
{{- define "wattloop.reportHost" -}}
{{- with .Values.reporting.url -}}
{{- regexReplaceAll ":[0-9]+$" (urlParse .).host "" | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}
{{- end -}}

{{/* The secret with what the reporting API serves: tls.crt, tls.key and, but for a public issuer, ca.crt. */}}
{{- define "wattloop.reportingSecret" -}}
{{- default (printf "%s-reporting" (include "wattloop.fullname" .)) .Values.reporting.tls.secretName -}}
{{- end -}}

{{/* Whether this rendering can look up what is in the cluster; empty where it cannot. Who may install in a namespace may see
it; before a namespace is made, whoever makes it may see others. */}}
{{- define "wattloop.seesCluster" -}}
{{- if or (lookup "v1" "Namespace" "" .Release.Namespace) (lookup "v1" "Namespace" "" "kube-system") -}}yes{{- end -}}
{{- end -}}

{{/* The secret with the key by which the chart signs; no pod mounts it. */}}
{{- define "wattloop.authoritySecret" -}}
{{- printf "%s-reporting-authority" (include "wattloop.fullname" .) -}}
{{- end -}}

{{/* The key of that secret with the certificates by which it is checked; empty: those of the images. */}}
{{- define "wattloop.authorityKey" -}}
{{- if eq .Values.reporting.tls.mode "chart" -}}ca.crt
{{- else if ne .Values.reporting.tls.mode "none" -}}{{ .Values.reporting.tls.authorityKey }}
{{- end -}}
{{- end -}}

{{/* The ConfigMap, or with cert-manager the secret, of the agent's namespace with the same certificates as ca.crt. */}}
{{- define "wattloop.agentAuthority" -}}
{{- default (printf "%s-reporting-authority" (include "wattloop.fullname" .)) .Values.reporting.tls.agentConfigMap -}}
{{- end -}}

{{/* The source of a projected volume that gives them to the agent; nothing where its image's own serve. */}}
{{- define "wattloop.agentAuthoritySource" -}}
{{- $tls := .Values.reporting.tls -}}
{{- $items := list (dict "key" "ca.crt" "path" "ca.crt") -}}
{{- $source := dict "name" (include "wattloop.agentAuthority" .) "items" $items -}}
{{- if or (eq $tls.mode "chart") (and (ne $tls.mode "none") $tls.agentConfigMap) -}}
{{- dict "configMap" $source | toYaml -}}
{{- else if and (eq $tls.mode "certManager") $tls.authorityKey -}}
{{- dict "secret" $source | toYaml -}}
{{- end -}}
{{- end -}}
