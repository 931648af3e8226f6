{{/* Rejects a second release with an operator, because each operator acts on the jobs of all namespaces. */}}
{{- define "wattloop.rejectSecondOperator" -}}
{{- $own := printf "%s-operator" (include "wattloop.clusterName" .) -}}
{{- if gt (int .Values.operator.replicas) 0 -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- $isOperator := and (eq (get $labels "app.kubernetes.io/part-of") "wattloop") (eq (get $labels "app.kubernetes.io/component") "operator") -}}
{{- if and $isOperator (ne .metadata.name $own) -}}
{{- $annotations := default dict .metadata.annotations -}}
{{- $release := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- fail (printf "this cluster already has a Wattloop operator, of the release %q in the namespace %q (its ClusterRole is %s). Both would act on every RecurringTrainingJob: upgrade that release, or uninstall it first" $release $namespace .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
