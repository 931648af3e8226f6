{{/* Rejects combinations of values. The values' schema could reject some, but could not say what to do. */}}
{{- define "wattloop.rejectConflicts" -}}
{{- $database := .Values.database -}}
{{- if and (eq $database.type "sqlite") (gt (int .Values.operator.replicas) 1) -}}
{{- fail (printf "operator.replicas is %v, and a SQLite file serves one replica. Set database.type=postgresql and database.postgresql.secretName, the name of a secret whose key %s is the database's URL (docs/installation.md, Database), or operator.replicas=1" .Values.operator.replicas $database.postgresql.secretKey) -}}
{{- end -}}
{{- if and (eq $database.type "postgresql") (not $database.postgresql.secretName) -}}
{{- fail (printf "database.type is postgresql, and database.postgresql.secretName is empty. Create the secret and name it: kubectl --namespace %s create secret generic wattloop-database --from-literal=%s=postgresql://USER:PASSWORD@HOST/DATABASE" .Release.Namespace $database.postgresql.secretKey) -}}
{{- end -}}
{{- $tls := .Values.reporting.tls -}}
{{- if and (eq $tls.mode "secret") (not $tls.secretName) -}}
{{- fail (printf "reporting.tls.mode is secret, and reporting.tls.secretName is empty. Create the secret and name it: kubectl --namespace %s create secret generic wattloop-reporting --from-file=tls.crt --from-file=tls.key --from-file=ca.crt (docs/installation.md, Certificates)" .Release.Namespace) -}}
{{- end -}}
{{- if and (eq $tls.mode "certManager") (not $tls.certManager.issuer.name) -}}
{{- fail "reporting.tls.mode is certManager, and reporting.tls.certManager.issuer.name is empty. Name the ClusterIssuer that signs the certificates; kubectl get clusterissuers lists them" -}}
{{- end -}}
{{- if and (hasPrefix "http://" .Values.reporting.url) (ne $tls.mode "none") -}}
{{- fail (printf "reporting.url is %s, and reporting.tls.mode %s serves HTTPS. Begin the URL with https://, or set reporting.tls.mode=none, by which tokens cross the network unencrypted" .Values.reporting.url $tls.mode) -}}
{{- end -}}
{{- if and .Values.metrics.podMonitor.enabled .Values.networkPolicy.enabled (not .Values.networkPolicy.metricsFrom) -}}
{{- fail "metrics.podMonitor.enabled needs networkPolicy.metricsFrom, the peers that may scrape; it is empty. For a Prometheus in the namespace monitoring set [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" -}}
{{- end -}}
{{- $ui := .Values.ui -}}
{{- if $ui.enabled -}}
{{- if and $ui.hosts (not $ui.tlsSecretName) -}}
{{- fail (printf "ui.hosts is not empty, and ui.tlsSecretName is: viewers send their tokens to the page, so a host needs a certificate. Create the secret and name it: kubectl --namespace %s create secret tls wattloop-ui --cert=tls.crt --key=tls.key" .Release.Namespace) -}}
{{- end -}}
{{- if and $ui.tlsSecretName (not $ui.hosts) -}}
{{- fail "ui.tlsSecretName is not empty, and ui.hosts is: name the hosts by which browsers reach the page; without any, kubectl port-forward alone reaches it" -}}
{{- end -}}
{{- if and $ui.hosts .Values.networkPolicy.enabled (not .Values.networkPolicy.uiFrom) -}}
{{- fail "ui.hosts needs networkPolicy.uiFrom, the peers that may reach the page; it is empty. For an ingress controller in the namespace ingress set [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress}}}]" -}}
{{- end -}}
{{- end -}}
{{- end -}}
