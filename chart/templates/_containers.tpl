{{/* The image, of (list ROOT COMPONENT): one for both components, unless HAProxy's pods have their own. */}}
{{- define "haptic-trio.image" -}}
{{- $root := first . }}
{{- $image := $root.Values.image }}
{{- $own := ternary $root.Values.haproxy.image (dict) (eq (last .) "haproxy") }}
{{- if or $own.repository $own.tag $own.digest }}
{{- $image = dict "repository" ($own.repository | default $image.repository) "tag" ($own.tag | default $image.tag) "digest" $own.digest }}
{{- end }}
{{- $image.repository }}{{ if $image.digest }}@{{ $image.digest }}{{ else }}:{{ $image.tag | default $root.Chart.AppVersion }}{{ end }}
{{- end }}

{{/* Container settings that both components share, of (list ROOT COMPONENT). */}}
{{- define "haptic-trio.containerSettings" -}}
{{- $root := first . -}}
{{- $values := get $root.Values (last .) -}}
image: {{ include "haptic-trio.image" . | quote }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
securityContext: {{- include "haptic-trio.containerSecurity" $values.securityContext | nindent 2 }}
resources: {{- include "haptic-trio.resources" . | nindent 2 }}
{{- with $values.extraEnvFrom }}
envFrom: {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - {name: state, mountPath: /var/lib/haptic-trio}
  - {name: tmp, mountPath: /tmp}
  - {name: tls, mountPath: /etc/haptic-trio/tls, readOnly: true}
  {{- with $values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if eq (last .) "controller" }}
  {{- if $root.Values.webhook.enabled }}
  - {name: webhook, mountPath: /etc/haptic-trio/webhook, readOnly: true}
  {{- if $root.Values.webhook.clients.caSecret }}
  - {name: webhook-clients, mountPath: /etc/haptic-trio/webhook-clients, readOnly: true}
  {{- end }}
  {{- end }}
  {{- if include "haptic-trio.consoleSecret" $root }}
  - {name: console, mountPath: /etc/haptic-trio/console, readOnly: true}
  {{- end }}
  {{- end }}
{{- $paths := dict "liveness" "/healthz" "readiness" "/readyz" "startup" "/healthz" }}
{{- range $probe := list "liveness" "readiness" "startup" }}
{{ $probe }}Probe:
  httpGet: {path: {{ get $paths $probe }}, port: health}
  {{- with get $values.probes $probe }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* What a pod is denied, with the fields of the values in its place. */}}
{{- define "haptic-trio.podSecurity" -}}
{{- $restricted := dict
  "runAsNonRoot" true
  "runAsUser" 10001
  "runAsGroup" 10001
  "fsGroup" 10001
  "fsGroupChangePolicy" "OnRootMismatch"
  "seccompProfile" (dict "type" "RuntimeDefault")
}}
{{- toYaml (mergeOverwrite $restricted (. | default dict)) }}
{{- end }}

{{/* What a container is denied, likewise. */}}
{{- define "haptic-trio.containerSecurity" -}}
{{- $restricted := dict
  "allowPrivilegeEscalation" false
  "readOnlyRootFilesystem" true
  "capabilities" (dict "drop" (list "ALL"))
}}
{{- toYaml (mergeOverwrite $restricted (. | default dict)) }}
{{- end }}

{{/*
  The resources of (list ROOT COMPONENT): those of the preset, with the values in its place. A controller needs 100 MiB and
  25 MiB for each 1,000 routes, twice that for another configuration, and room for `haproxy -c`; HAProxy three workers during
  reloads (docs/operations.md).
*/}}
{{- define "haptic-trio.resources" -}}
{{- $root := first . }}
{{- $preset := get ($root.Files.Get "files/resources.yaml" | fromYaml) $root.Values.resourcesPreset }}
{{- $own := get (get $root.Values (last .)) "resources" | default dict }}
{{- toYaml (mergeOverwrite (get $preset (last .)) $own) }}
{{- end }}
