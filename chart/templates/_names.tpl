{{/* The prefix of every name; short enough for the longest suffix, -controller-metrics of a Service: 63 characters. */}}
{{- define "haptic-trio.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride }}
{{- $full := ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) }}
{{- default $full .Values.fullnameOverride | trunc 44 | trimSuffix "-" }}
{{- end }}

{{/* The prefix of names that are not in a namespace. */}}
{{- define "haptic-trio.clusterName" -}}
{{ .Release.Namespace }}-{{ include "haptic-trio.fullname" . }}
{{- end }}

{{/* What the pods of a component are chosen by, of (list ROOT COMPONENT). */}}
{{- define "haptic-trio.selector" -}}
{{- $root := first . -}}
app.kubernetes.io/name: {{ default $root.Chart.Name $root.Values.nameOverride | quote }}
app.kubernetes.io/instance: {{ $root.Release.Name | quote }}
app.kubernetes.io/component: {{ last . }}
{{- end }}

{{/* What the HAProxy pods are chosen by that get connections: those of a fleet that do not drain. */}}
{{- define "haptic-trio.servingSelector" -}}
{{ include "haptic-trio.selector" (list . "haproxy") }}
{{- if eq .Values.haproxy.kind "fleet" }}
haptic-trio/serving: "true"
{{- end }}
{{- end }}

{{/*
  Metadata of an object, of a dict with "root", "component" and "name", and optionally "namespace", "labels" and "annotations".
  The labels of the chart take precedence over others, and those of the object over the common ones.
*/}}
{{- define "haptic-trio.metadata" -}}
{{- $own := include "haptic-trio.labels" (list .root .component) -}}
name: {{ .name | quote }}
{{- with .namespace }}
namespace: {{ . | quote }}
{{- end }}
labels:
  {{- $own | nindent 2 }}
  {{- range $key, $value := mergeOverwrite (deepCopy .root.Values.commonLabels) (.labels | default dict) }}
  {{- if not (hasKey ($own | fromYaml) $key) }}
  {{ $key | quote }}: {{ $value | quote }}
  {{- end }}
  {{- end }}
{{- with mergeOverwrite (deepCopy .root.Values.commonAnnotations) (.annotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The chart's own labels, of (list ROOT COMPONENT). */}}
{{- define "haptic-trio.labels" -}}
{{- $root := first . -}}
{{ include "haptic-trio.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" | quote }}
{{- end }}

{{/* The Secret with the certificate of a component, of (list ROOT COMPONENT). */}}
{{- define "haptic-trio.tlsSecret" -}}
{{- $root := first . }}
{{- if eq $root.Values.agentTls.mode "existing" }}
{{- $key := printf "%sSecret" (last .) }}
{{- required (printf "agentTls.existing.%s is needed with agentTls.mode existing" $key) (get $root.Values.agentTls.existing $key) }}
{{- else }}
{{- printf "%s-%s-tls" (include "haptic-trio.fullname" $root) (last .) }}
{{- end }}
{{- end }}

{{/* The Secret with the token of the console; empty where there is none. */}}
{{- define "haptic-trio.consoleSecret" -}}
{{- with .Values.controller.console }}
{{- if .enabled }}{{ .tokenSecret }}{{ end }}
{{- end }}
{{- end }}
