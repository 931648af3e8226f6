{{/* The operator's rules for namespaced objects. */}}
{{- define "wattloop.namespacedRules" -}}
# Users own their jobs; the operator owns the recurrences, and writes the status of both. Of a job it writes the
# annotation with its history, by which a restored job is known, and of a restored recurrence the owner.
- apiGroups: [wattloop.dev]
  resources: [recurringtrainingjobs]
  verbs: [get, list, watch, patch]
- apiGroups: [wattloop.dev]
  resources: [trainingrecurrences]
  verbs: [get, list, watch, create, patch, delete]
- apiGroups: [wattloop.dev]
  resources: [recurringtrainingjobs/status, trainingrecurrences/status, frequencyplans/status]
  verbs: [patch]
# Users and the operator make frequency plans; the operator deletes its old ones.
- apiGroups: [wattloop.dev]
  resources: [frequencyplans]
  verbs: [get, list, watch, create, delete]
# Needed to set blockOwnerDeletion in an owner reference.
- apiGroups: [wattloop.dev]
  resources: [recurringtrainingjobs/finalizers, trainingrecurrences/finalizers]
  verbs: [update]
- apiGroups: [batch]
  resources: [jobs]
  verbs: [get, list, watch, create, delete]
# For the exit of a training, and to check that a report comes from a pod of the recurrence.
- apiGroups: [""]
  resources: [pods]
  verbs: [get, list, watch]
{{- if .Values.operator.readPodLogs }}
# For the metric of trainings that print it.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
{{- end }}
{{- if .Values.operator.kueue }}
# For the reason why a training waits in a queue.
- apiGroups: [kueue.x-k8s.io]
  resources: [workloads]
  verbs: [list]
{{- end }}
# A headless Service for the pods of each indexed Job. It is deleted with its recurrence.
- apiGroups: [""]
  resources: [services]
  verbs: [get, create]
# For the reason why no pod of a training can be created.
- apiGroups: [""]
  resources: [events]
  verbs: [list]
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create]
{{- range .Values.operator.workloadKinds }}
- apiGroups: [{{ .group | quote }}]
  resources: [{{ .resource }}]
  verbs: [{{ if .readOnly }}get{{ else }}get, create, delete{{ end }}]
{{- if eq .kind "TrainJob" }}
- apiGroups: [{{ .group | quote }}]
  resources: [trainingruntimes]
  verbs: [get]
{{- end }}
{{- end }}
{{- end -}}

{{/* Rejects a namespace of operator.namespaces that does not exist, if the rendering has a cluster. */}}
{{- define "wattloop.rejectMissingNamespaces" -}}
{{- if lookup "v1" "Namespace" "" "default" -}}
{{- range .Values.operator.namespaces -}}
{{- if and (ne . $.Release.Namespace) (not (lookup "v1" "Namespace" "" .)) -}}
{{- fail (printf "operator.namespaces: there is no namespace %s; create it (kubectl create namespace %s), or remove it from the list" . .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
