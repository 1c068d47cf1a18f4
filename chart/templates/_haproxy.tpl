{{/* HAProxy's pod, in a Deployment or a DaemonSet. */}}
{{- define "haptic-trio.haproxyPod" -}}
metadata: {{- include "haptic-trio.podMetadata" (list . "haproxy") | nindent 2 }}
spec:
  {{- include "haptic-trio.podSettings" (list . "haproxy" (ne .Values.haproxy.kind "DaemonSet")) | nindent 2 }}
  automountServiceAccountToken: false
  # The hook, a deployment in flight (10 s), and what HAProxy is given to end its connections (5 s), with room.
  terminationGracePeriodSeconds: {{ include "haptic-trio.haproxyGrace" . }}
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
        {{- with .Values.haproxy.extraEnv }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      ports:
        {{- range $name := list "http" "https" }}
        - {name: {{ $name }}, containerPort: {{ get $.Values.haproxy.ports $name }}{{ with get $.Values.haproxy.hostPorts $name }}, hostPort: {{ . }}{{ end }}}
        {{- end }}
        - {name: agent, containerPort: {{ .Values.haproxy.ports.agent }}}
        - {name: health, containerPort: {{ .Values.haproxy.ports.health }}}
        {{- if .Values.haproxy.metrics.enabled }}
        - {name: metrics, containerPort: {{ .Values.haproxy.metrics.port }}}
        {{- end }}
        {{- range .Values.haproxy.extraPorts }}
        - {name: {{ .name | quote }}, containerPort: {{ .containerPort }}{{ with .hostPort }}, hostPort: {{ . }}{{ end }}}
        {{- end }}
      {{- $hooks := deepCopy .Values.haproxy.lifecycle }}
      {{- if and .Values.haproxy.drainSeconds (not $hooks.preStop) }}
      {{- $_ := set $hooks "preStop" (dict "sleep" (dict "seconds" .Values.haproxy.drainSeconds)) }}
      {{- end }}
      {{- with $hooks }}
      lifecycle: {{- toYaml . | nindent 8 }}
      {{- end }}
    {{- with .Values.haproxy.extraContainers }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end }}

{{/* The time that a pod of HAProxy has to end: long enough for what happens in it. */}}
{{- define "haptic-trio.haproxyGrace" -}}
{{- $least := add .Values.haproxy.drainSeconds 15 }}
{{- $given := int .Values.haproxy.terminationGracePeriodSeconds }}
{{- if and $given (lt $given (int $least)) }}
{{- fail (printf "haproxy.terminationGracePeriodSeconds must be at least %d: haproxy.drainSeconds, and 15 seconds to end connections" $least) }}
{{- end }}
{{- $given | default (add .Values.haproxy.drainSeconds 30) }}
{{- end }}
