{{/* The chart's name, or nameOverride. */}}
{{- define "wattloop.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* The release's full name, which contains the chart's name once. */}}
{{- define "wattloop.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "wattloop.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The name of a cluster-scoped object, different for two releases in two namespaces. */}}
{{- define "wattloop.clusterName" -}}
{{- $fullname := include "wattloop.fullname" . -}}
{{- if eq $fullname .Release.Namespace -}}{{ $fullname }}{{- else -}}{{ printf "%s:%s" .Release.Namespace $fullname }}{{- end -}}
{{- end -}}

{{- define "wattloop.operatorName" -}}{{ include "wattloop.fullname" . }}-operator{{- end -}}
{{- define "wattloop.agentName" -}}{{ include "wattloop.fullname" . }}-agent{{- end -}}

{{- define "wattloop.tariffName" -}}{{ include "wattloop.fullname" . }}-tariff{{- end -}}

{{- define "wattloop.uiName" -}}{{ include "wattloop.fullname" . }}-ui{{- end -}}

{{- define "wattloop.operatorServiceAccount" -}}
{{- if .Values.operator.serviceAccount.create -}}
{{- default (include "wattloop.operatorName" .) .Values.operator.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.operator.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "wattloop.databaseClaim" -}}
{{- default (printf "%s-database" (include "wattloop.fullname" .)) .Values.database.sqlite.existingClaim -}}
{{- end -}}

{{/* The selector labels of pods; dict "root" $ "component" "operator". */}}
{{- define "wattloop.selectorLabels" -}}
app.kubernetes.io/name: {{ include "wattloop.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* The labels of every object; dict "root" $ "component" "operator". */}}
{{- define "wattloop.labels" -}}
{{ include "wattloop.selectorLabels" . }}
app.kubernetes.io/part-of: wattloop
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name (.root.Chart.Version | replace "+" "_") }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* An image's reference; dict "root" $ "image" .Values.operator.image. */}}
{{- define "wattloop.image" -}}
{{- if .image.digest -}}
{{ .image.repository }}@{{ .image.digest }}
{{- else -}}
{{ .image.repository }}:{{ default .root.Chart.AppVersion .image.tag }}
{{- end -}}
{{- end -}}

{{/* The security context of a container without privileges. */}}
{{- define "wattloop.restrictedContainer" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
capabilities:
  drop: [ALL]
{{- end -}}

{{/* Ports in the pods' own network namespaces, where nothing else listens. Services, probes and policies use their names. */}}
{{- define "wattloop.reportPort" -}}8080{{- end -}}
{{- define "wattloop.healthPort" -}}8081{{- end -}}
{{- define "wattloop.metricsPort" -}}9402{{- end -}}
{{- define "wattloop.agentMetricsPort" -}}9403{{- end -}}
{{- define "wattloop.uiPort" -}}8790{{- end -}}
