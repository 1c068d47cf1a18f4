{{/* Pod settings that both components share, of (list ROOT COMPONENT SPREAD): what the values say, and who it runs as. */}}
{{- define "haptic-trio.podSettings" -}}
{{- $root := first . }}
{{- $component := index . 1 }}
{{- $values := get $root.Values $component -}}
serviceAccountName: {{ include "haptic-trio.fullname" $root }}-{{ $component }}
securityContext: {{- include "haptic-trio.podSecurity" $values.podSecurityContext | nindent 2 }}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $field := list "priorityClassName" "runtimeClassName" "schedulerName" }}
{{- with get $values $field }}
{{ $field }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- if and (eq $component "haproxy") $values.hostNetwork }}
hostNetwork: true
dnsPolicy: {{ $values.dnsPolicy | default "ClusterFirstWithHostNet" }}
{{- else if $values.dnsPolicy }}
dnsPolicy: {{ $values.dnsPolicy }}
{{- end }}
{{- range $field := list "dnsConfig" "nodeSelector" "tolerations" "initContainers" }}
{{- with get $values $field }}
{{ $field }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- if $values.affinity }}
affinity: {{- toYaml $values.affinity | nindent 2 }}
{{- else if last . }}
affinity:
  podAntiAffinity:
    preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels: {{- include "haptic-trio.selector" (list $root $component) | nindent 14 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
  {{- range . }}
  - {{- toYaml . | nindent 4 }}
    {{- if not (hasKey . "labelSelector") }}
    labelSelector:
      matchLabels: {{- include "haptic-trio.selector" (list $root $component) | nindent 8 }}
    {{- end }}
  {{- end }}
{{- end }}
volumes:
  - name: state
    emptyDir: {{- toYaml $values.stateVolume | nindent 6 }}
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  - name: tls
    secret:
      secretName: {{ include "haptic-trio.tlsSecret" (list $root (ternary "controller" "agent" (eq $component "controller"))) | quote }}
      defaultMode: 0440
  {{- with $values.extraVolumes }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if eq $component "controller" }}
  {{- with include "haptic-trio.consoleSecret" $root }}
  - name: console
    secret:
      secretName: {{ . | quote }}
      items: [{key: {{ $root.Values.controller.console.tokenKey | default "token" | quote }}, path: token}]
      defaultMode: 0440
  {{- end }}
  {{- if $root.Values.webhook.enabled }}
  - name: webhook
    secret:
      secretName: {{ include "haptic-trio.webhookSecret" $root | quote }}
      defaultMode: 0440
      # Nothing else is to wait for it.
      optional: true
  {{- with $root.Values.webhook.clients.caSecret }}
  - name: webhook-clients
    secret:
      secretName: {{ . | quote }}
      items: [{key: ca.crt, path: ca.crt}]
      optional: true
  {{- end }}
  {{- end }}
  {{- end }}
{{- end }}

{{/* Annotations and labels of a pod, of (list ROOT COMPONENT); none that another version of the chart would change. */}}
{{- define "haptic-trio.podMetadata" -}}
{{- $values := get (first .).Values (last .) -}}
{{- $common := (first .).Values -}}
{{- $own := include "haptic-trio.selector" . -}}
{{- with mergeOverwrite (deepCopy $common.commonAnnotations) $values.podAnnotations -}}
annotations: {{- toYaml . | nindent 2 }}
{{ end -}}
labels:
  {{- $own | nindent 2 }}
  {{- range $key, $value := mergeOverwrite (deepCopy $common.commonLabels) $values.podLabels }}
  {{- if not (hasKey ($own | fromYaml) $key) }}
  {{ $key | quote }}: {{ $value | quote }}
  {{- end }}
  {{- end }}
{{- end }}
