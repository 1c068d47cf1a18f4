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
