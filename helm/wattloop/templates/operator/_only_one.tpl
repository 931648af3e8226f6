{{/* An operator acts on the jobs of all namespaces: a second one, of another release, would act on each of them too. */}}
{{- define "wattloop.refuseASecondOperator" -}}
{{- $own := printf "%s-operator" (include "wattloop.clusterName" .) -}}
{{- if gt (int .Values.operator.replicas) 0 -}}
{{- range (lookup "rbac.authorization.k8s.io/v1" "ClusterRole" "" "").items -}}
{{- $labels := default dict .metadata.labels -}}
{{- $isOperator := and (eq (get $labels "app.kubernetes.io/part-of") "wattloop") (eq (get $labels "app.kubernetes.io/component") "operator") -}}
{{- if and $isOperator (ne .metadata.name $own) -}}
{{- $annotations := default dict .metadata.annotations -}}
{{- $release := get $annotations "meta.helm.sh/release-name" -}}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" -}}
{{- fail (printf "this cluster has an operator of Wattloop already, by the release %q in the namespace %q (its ClusterRole is %s). Each acts on the RecurringTrainingJobs of all namespaces, so that two would on every one: upgrade that release, or uninstall it first" $release $namespace .metadata.name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
