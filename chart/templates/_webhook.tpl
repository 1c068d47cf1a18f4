{{/* The Secret with the certificate of the webhook. */}}
{{- define "haptic-trio.webhookSecret" -}}
{{- if eq .Values.webhook.tls.mode "existing" }}
{{- required "webhook.tls.existing.secret is needed with webhook.tls.mode existing" .Values.webhook.tls.existing.secret }}
{{- else }}
{{- include "haptic-trio.fullname" . }}-webhook-tls
{{- end }}
{{- end }}

{{/* Fails unless it is said who may ask: a webhook renders what it is sent. */}}
{{- define "haptic-trio.webhookIsGuarded" -}}
{{- if not (or .Values.webhook.clients.caSecret (and .Values.networkPolicy.enabled .Values.networkPolicy.webhookFrom)) }}
{{- fail "webhook.enabled requires webhook.clients.caSecret, or networkPolicy.webhookFrom with networkPolicy.enabled" }}
{{- end }}
{{- if and .Values.webhook.clients.names (not .Values.webhook.clients.caSecret) }}
{{- fail "webhook.clients.names requires webhook.clients.caSecret" }}
{{- end }}
{{- end }}

{{/* What is reviewed, by GROUP/VERSION/RESOURCE, as JSON: the namespaces that it is watched in, none for all. */}}
{{- define "haptic-trio.reviewed" -}}
{{- $reviewed := dict }}
{{- range include "haptic-trio.watched" . | fromJson }}
{{- if .enableValidationWebhook }}
{{- $key := printf "%s/%s" (ternary .apiVersion (printf "/%s" .apiVersion) (contains "/" .apiVersion)) .resources }}
{{- $everywhere := or (not .namespaces) (and (hasKey $reviewed $key) (not (get $reviewed $key))) }}
{{- $_ := set $reviewed $key (ternary list (concat (get $reviewed $key | default list) (.namespaces | default list) | uniq | sortAlpha) $everywhere) }}
{{- end }}
{{- end }}
{{- toJson $reviewed }}
{{- end }}

{{/* How the API server asks, of (list ROOT SERVICE BUNDLE SECONDS). */}}
{{- define "haptic-trio.webhookCall" -}}
clientConfig:
  service: {namespace: {{ (first .).Release.Namespace | quote }}, name: {{ index . 1 }}, path: /validate, port: 443}
  {{- with index . 2 }}
  caBundle: {{ . }}
  {{- end }}
# If the webhook does not answer, the object is accepted, and quarantined if it cannot be served.
failurePolicy: Ignore
matchPolicy: Equivalent
sideEffects: None
timeoutSeconds: {{ last . }}
admissionReviewVersions: [v1]
{{- end }}
