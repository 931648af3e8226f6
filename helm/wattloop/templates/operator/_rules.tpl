{{/* The rules of the operator for what is in a namespace. */}}
{{- define "wattloop.rulesOfNamespaces" -}}
# Users own their jobs; the operator owns the recurrences, and writes the status of both.
- apiGroups: [wattloop.dev]
  resources: [recurringtrainingjobs]
  verbs: [get, list, watch]
- apiGroups: [wattloop.dev]
  resources: [trainingrecurrences]
  verbs: [get, list, watch, create, delete]
- apiGroups: [wattloop.dev]
  resources: [recurringtrainingjobs/status, trainingrecurrences/status]
  verbs: [patch]
# To name an owner whose deletion waits for what it owns.
- apiGroups: [wattloop.dev]
  resources: [recurringtrainingjobs/finalizers, trainingrecurrences/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
# How a training ended, and whether whoever reports is a pod of the recurrence.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- range .Values.operator.workloadKinds }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .resource }}]
  verbs: [get, create, delete]
{{- end }}
{{- with .Values.rbac.extraRules }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A namespace of operator.namespaces that is not there. Without a cluster to look into, nothing is known of any. */}}
{{- define "wattloop.refuseMissingNamespaces" -}}
{{- if lookup "v1" "Namespace" "" "default" -}}
{{- range .Values.operator.namespaces -}}
{{- if and (ne . $.Release.Namespace) (not (lookup "v1" "Namespace" "" .)) -}}
{{- fail (printf "operator.namespaces: there is no namespace %s; create it (kubectl create namespace %s), or take it from the list" . .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
