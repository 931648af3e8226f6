{{/* The URL that training pods and agents report to. */}}
{{- define "wattloop.reportUrl" -}}
{{- if .Values.reporting.url -}}
{{- .Values.reporting.url -}}
{{- else -}}
{{- $scheme := ternary "http" "https" (eq .Values.reporting.tls.mode "none") -}}
{{- printf "%s://%s.%s.svc:%s" $scheme (include "wattloop.operatorName" .) .Release.Namespace (include "wattloop.reportPort" .) -}}
{{- end -}}
{{- end -}}

{{/* Mode chart: validity of the certificate. An upgrade in the second half of that time renews it. */}}
{{- define "wattloop.validityDays" -}}1095{{- end -}}

{{/* The certificate's DNS names, as a YAML list: the Service's, and the host of reporting.url. */}}
{{- define "wattloop.reportNames" -}}
{{- $service := printf "%s.%s" (include "wattloop.operatorName" .) .Release.Namespace -}}
{{- $names := list (printf "%s.svc" $service) (printf "%s.svc.cluster.local" $service) $service -}}
{{- $host := include "wattloop.reportHost" . -}}
{{- if and $host (not (regexMatch "^[0-9.]+$|:" $host)) -}}
{{- $names = append $names $host -}}
{{- end -}}
{{- $names | uniq | toYaml -}}
{{- end -}}

{{/* The certificate's IP addresses: the host of reporting.url, if it is an address. */}}
{{- define "wattloop.reportAddresses" -}}
{{- $host := include "wattloop.reportHost" . -}}
{{- ternary (list $host) list (regexMatch "^[0-9.]+$|:" $host) | toYaml -}}
{{- end -}}

{{/* The host of reporting.url without port and brackets; empty by default. */}}
{{- define "wattloop.reportHost" -}}
{{- with .Values.reporting.url -}}
{{- regexReplaceAll ":[0-9]+$" (urlParse .).host "" | trimPrefix "[" | trimSuffix "]" -}}
{{- end -}}
{{- end -}}

{{/* The secret of the reporting API's certificate: tls.crt, tls.key and, except for a public issuer, ca.crt. */}}
{{- define "wattloop.reportingSecret" -}}
{{- default (printf "%s-reporting" (include "wattloop.fullname" .)) .Values.reporting.tls.secretName -}}
{{- end -}}

{{/* Not empty if this rendering can look up objects in the cluster. An installer may read the release's namespace or, before
that namespace exists, kube-system. */}}
{{- define "wattloop.seesCluster" -}}
{{- if or (lookup "v1" "Namespace" "" .Release.Namespace) (lookup "v1" "Namespace" "" "kube-system") -}}yes{{- end -}}
{{- end -}}

{{/* The secret of the chart's own authority; no pod mounts it. */}}
{{- define "wattloop.authoritySecret" -}}
{{- printf "%s-reporting-authority" (include "wattloop.fullname" .) -}}
{{- end -}}

{{/* The key of the authority in the reporting secret; empty: the images' authorities. */}}
{{- define "wattloop.authorityKey" -}}
{{- if eq .Values.reporting.tls.mode "chart" -}}ca.crt
{{- else if ne .Values.reporting.tls.mode "none" -}}{{ .Values.reporting.tls.authorityKey }}
{{- end -}}
{{- end -}}

{{/* The ConfigMap, or with cert-manager the secret, of the agent's namespace with the same authority as ca.crt. */}}
{{- define "wattloop.agentAuthority" -}}
{{- default (printf "%s-reporting-authority" (include "wattloop.fullname" .)) .Values.reporting.tls.agentConfigMap -}}
{{- end -}}

{{/* The agent's projected volume source for that authority; empty if the image's authorities apply. */}}
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
