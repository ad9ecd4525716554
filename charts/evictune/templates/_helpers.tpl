{{- define "evictune.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "evictune.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" }}
{{- else if contains (include "evictune.name" .) .Release.Name }}
{{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "evictune.name" .) | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "evictune.selectorLabels" -}}
app.kubernetes.io/name: {{ include "evictune.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "evictune.labels" -}}
{{ include "evictune.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "evictune.serviceAccountName" -}}
{{- if .Values.serviceAccount.create }}
{{- default (include "evictune.fullname" .) .Values.serviceAccount.name }}
{{- else }}
{{- default "default" .Values.serviceAccount.name }}
{{- end }}
{{- end }}

{{- define "evictune.image" -}}
{{- if .Values.image.digest }}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest }}
{{- else }}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
{{- end }}

{{/* The file that `evictune run --config` reads. */}}
{{- define "evictune.configuration" -}}
{{- $direct := dict "direct" dict }}
{{- $sources := merge (dict) .Values.sources }}
{{- range list "default" "engines" }}
{{- if not (hasKey $sources .) }}
{{- $_ := set $sources . $direct }}
{{- end }}
{{- end }}
{{- dict
  "sources" $sources
  "namespaces" .Values.watchNamespaces
  "fleet" (dict "mode" .Values.fleet.mode)
  "lease" (dict "name" .Values.lease.name)
  "metricsAddress" (printf "0.0.0.0:%d" (int .Values.metrics.port))
  "livenessAddress" (printf "0.0.0.0:%d" (int .Values.liveness.port))
  | toYaml }}
{{- end }}

{{/* What the operator may do, and nothing more: it reads pods, and never writes one. */}}
{{- define "evictune.rules" -}}
- apiGroups: [evictune.io]
  resources: [evictionpolicies]
  verbs: [get, list, watch]
- apiGroups: [evictune.io]
  resources: [evictionpolicies/status]
  verbs: [patch]
- apiGroups: [apps]
  resources: [deployments, statefulsets]
  verbs: [get]
- apiGroups: [apps]
  resources: [replicasets]
  verbs: [list]
- apiGroups: [""]
  resources: [pods]
  verbs: [list]
# The knob documents, by server-side apply: it creates what is not there.
- apiGroups: [""]
  resources: [configmaps]
  verbs: [get, create, patch]
- apiGroups: [""]
  resources: [events]
  verbs: [create]
{{- end }}

{{/* "true" where a kind is wanted and the cluster knows it. */}}
{{- define "evictune.podMonitors" -}}
{{- and .Values.podMonitors.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PodMonitor") }}
{{- end }}

{{- define "evictune.prometheusRules" -}}
{{- and .Values.rules.enabled (.Capabilities.APIVersions.Has "monitoring.coreos.com/v1/PrometheusRule") }}
{{- end }}

{{/* Not the operator's: nothing that selects it shall select these. */}}
{{- define "evictune.testLabels" -}}
app.kubernetes.io/name: {{ printf "%s-test" (include "evictune.name" .) | trunc 63 | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
{{- end }}

{{/* The account of a test. Where a test fails it stays, to be looked at, until the next one. */}}
{{- define "evictune.testAccountHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: "-1"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}

{{/* A test's pod stays until the next test: Helm 3 reads its log, for --logs, when all is done. */}}
{{- define "evictune.testPodHook" -}}
helm.sh/hook: test
helm.sh/hook-weight: "0"
helm.sh/hook-delete-policy: before-hook-creation
{{- end }}

{{/* Takes root, name, account and arguments: `evictune check` in the operator's image. */}}
{{- define "evictune.testPod" -}}
{{- $values := .root.Values -}}
apiVersion: v1
kind: Pod
metadata:
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels:
    {{- include "evictune.testLabels" .root | nindent 4 }}
  annotations:
    {{- include "evictune.testPodHook" . | nindent 4 }}
spec:
  restartPolicy: Never
  serviceAccountName: {{ .account | quote }}
  {{- with $values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml $values.podSecurityContext | nindent 4 }}
  containers:
    - name: check
      image: {{ include "evictune.image" .root | quote }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      args: {{ concat (list "check" "--config" "/etc/evictune/config/config.yaml") .arguments | toJson }}
      resources:
        {{- toYaml $values.resources | nindent 8 }}
      securityContext:
        {{- toYaml $values.securityContext | nindent 8 }}
      volumeMounts:
        - {name: config, mountPath: /etc/evictune/config, readOnly: true}
  volumes:
    - name: config
      configMap:
        name: {{ include "evictune.fullname" .root | quote }}
  {{- with $values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}

{{/* By convention beside the operator's: an image of its own, of the same version. */}}
{{- define "evictune.pluginImage" -}}
{{- printf "%s-plugin:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) }}
{{- end }}
