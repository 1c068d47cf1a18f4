{{/* A Service in front of HAProxy, of a dict with "root", "name", "service" (its values) and "main" (whether it is the first one). */}}
{{- define "haptic-trio.service" -}}
{{- $root := .root }}
{{- $service := .service -}}
apiVersion: v1
kind: Service
metadata: {{- include "haptic-trio.metadata" (dict "root" $root "component" "haproxy" "name" .name "labels" $service.labels "annotations" $service.annotations) | nindent 2 }}
spec:
  type: {{ $service.type }}
  {{- if ne $service.type "ClusterIP" }}
  externalTrafficPolicy: {{ $service.externalTrafficPolicy | default "Cluster" }}
  {{- end }}
  {{- range $field := list "internalTrafficPolicy" "sessionAffinity" "loadBalancerClass" "ipFamilyPolicy" }}
  {{- with get $service $field }}
  {{ $field }}: {{ . | quote }}
  {{- end }}
  {{- end }}
  {{- with $service.sessionAffinitySeconds }}
  sessionAffinityConfig: {clientIP: {timeoutSeconds: {{ . }}}}
  {{- end }}
  {{- range $field := list "loadBalancerSourceRanges" "externalIPs" "ipFamilies" }}
  {{- with get $service $field }}
  {{ $field }}: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  selector: {{- include "haptic-trio.servingSelector" $root | nindent 4 }}
  ports: {{- include "haptic-trio.servicePorts" . | nindent 4 }}
{{- end }}

{{/* Its ports: 0 leaves one out. Without a list of names, it has all further ports. */}}
{{- define "haptic-trio.servicePorts" -}}
{{- $root := .root }}
{{- $nodePorts := .service.nodePorts | default dict }}
{{- $ports := mergeOverwrite (dict "http" 80 "https" 443) (.service.ports | default dict) }}
{{- range $name := list "http" "https" }}
{{- if get $ports $name }}
- {name: {{ $name }}, port: {{ get $ports $name }}, targetPort: {{ $name }}{{ with get $nodePorts $name }}, nodePort: {{ . }}{{ end }}}
{{- end }}
{{- end }}
{{- if and .main (include "haptic-trio.offersHttp3" $root) }}
{{- /* By number: helm identifies a container's ports by number, too, so the container has no port of this name. */}}
- {name: http3, port: {{ $ports.https }}, targetPort: {{ $root.Values.haproxy.ports.https }}, protocol: UDP{{ with $nodePorts.http3 }}, nodePort: {{ . }}{{ end }}}
{{- end }}
{{- $wanted := .service.extraPorts }}
{{- range $root.Values.haproxy.extraPorts }}
{{- if or (kindIs "invalid" $wanted) (has .name ($wanted | default list)) }}
- name: {{ .name | quote }}
  port: {{ .port | default .containerPort }}
  targetPort: {{ .name | quote }}
  {{- with .appProtocol }}
  appProtocol: {{ . | quote }}
  {{- end }}
  {{- if and .nodePort $.main }}
  nodePort: {{ .nodePort }}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}
