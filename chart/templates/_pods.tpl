{{/* The image, which is one for both components. */}}
{{- define "haptic-trio.image" -}}
{{- with .Values.image }}
{{- .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Pod settings that both components share, of (list ROOT COMPONENT SPREAD): what the values say, and who it runs as. */}}
{{- define "haptic-trio.podSettings" -}}
{{- $root := first . }}
{{- $component := index . 1 }}
{{- $values := get $root.Values $component -}}
serviceAccountName: {{ include "haptic-trio.fullname" $root }}-{{ $component }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
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
volumes:
  - name: state
    emptyDir: {{- toYaml $values.stateVolume | nindent 6 }}
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  - name: tls
    secret:
      secretName: {{ include "haptic-trio.tlsSecret" (list $root (ternary "controller" "agent" (eq $component "controller"))) }}
      defaultMode: 0440
  {{- if and (eq $component "controller") $root.Values.webhook.enabled }}
  - name: webhook
    secret:
      secretName: {{ include "haptic-trio.webhookSecret" $root }}
      defaultMode: 0440
      # Nothing else is to wait for it.
      optional: true
  {{- with $root.Values.webhook.clients.caSecret }}
  - name: webhook-clients
    secret:
      secretName: {{ . }}
      items: [{key: ca.crt, path: ca.crt}]
      optional: true
  {{- end }}
  {{- end }}
{{- end }}

{{/* Container settings that both components share, of (list ROOT COMPONENT). */}}
{{- define "haptic-trio.containerSettings" -}}
{{- $root := first . -}}
image: {{ include "haptic-trio.image" $root }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
resources: {{- toYaml (get $root.Values (last .)).resources | nindent 2 }}
volumeMounts:
  - {name: state, mountPath: /var/lib/haptic-trio}
  - {name: tmp, mountPath: /tmp}
  - {name: tls, mountPath: /etc/haptic-trio/tls, readOnly: true}
  {{- if and (eq (last .) "controller") $root.Values.webhook.enabled }}
  - {name: webhook, mountPath: /etc/haptic-trio/webhook, readOnly: true}
  {{- if $root.Values.webhook.clients.caSecret }}
  - {name: webhook-clients, mountPath: /etc/haptic-trio/webhook-clients, readOnly: true}
  {{- end }}
  {{- end }}
livenessProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 10
  timeoutSeconds: 3
readinessProbe:
  httpGet: {path: /readyz, port: health}
  periodSeconds: 2
  timeoutSeconds: 2
startupProbe:
  httpGet: {path: /healthz, port: health}
  periodSeconds: 2
  failureThreshold: 30
{{- end }}

{{/* Annotations and labels of a pod, of (list ROOT COMPONENT); none that another version of the chart would change. */}}
{{- define "haptic-trio.podMetadata" -}}
{{- $values := get (first .).Values (last .) -}}
{{- with $values.podAnnotations -}}
annotations: {{- toYaml . | nindent 2 }}
{{ end -}}
labels:
  {{- include "haptic-trio.selector" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}

{{/* HAProxy's pod, in a Deployment or a DaemonSet. */}}
{{- define "haptic-trio.haproxyPod" -}}
metadata: {{- include "haptic-trio.podMetadata" (list . "haproxy") | nindent 2 }}
spec:
  {{- include "haptic-trio.podSettings" (list . "haproxy" (ne .Values.haproxy.kind "DaemonSet")) | nindent 2 }}
  automountServiceAccountToken: false
  # The hook, a deployment in flight (10 s), and what HAProxy is given to end its connections (5 s), with room.
  terminationGracePeriodSeconds: {{ add .Values.haproxy.drainSeconds 30 }}
  containers:
    - name: haproxy
      {{- include "haptic-trio.containerSettings" (list . "haproxy") | nindent 6 }}
      args:
        - agent
        - --state-dir=/var/lib/haptic-trio/agent
        - --listen=0.0.0.0:{{ .Values.haproxy.ports.agent }}
        - --health-listen=0.0.0.0:{{ .Values.haproxy.ports.health }}
        - --tls-cert=/etc/haptic-trio/tls/tls.crt
        - --tls-key=/etc/haptic-trio/tls/tls.key
        - --client-ca=/etc/haptic-trio/tls/ca.crt
        - --allow-client={{ include "haptic-trio.fullname" . }}-controller
        - --on-exit=stop
        - --log-format={{ .Values.controller.logFormat }}
        {{- with .Values.haproxy.extraArgs }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      env:
        - {name: HAPTIC_AGENT_NAME, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
      ports:
        - {name: http, containerPort: {{ .Values.haproxy.ports.http }}}
        - {name: https, containerPort: {{ .Values.haproxy.ports.https }}}
        - {name: agent, containerPort: {{ .Values.haproxy.ports.agent }}}
        - {name: health, containerPort: {{ .Values.haproxy.ports.health }}}
        {{- if .Values.haproxy.metrics.enabled }}
        - {name: metrics, containerPort: {{ .Values.haproxy.metrics.port }}}
        {{- end }}
      {{- with .Values.haproxy.drainSeconds }}
      lifecycle:
        preStop:
          sleep: {seconds: {{ . }}}
      {{- end }}
{{- end }}
