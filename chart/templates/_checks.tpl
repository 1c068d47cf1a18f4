{{/* Fails with a reason where values contradict each other: the schema sees one value at a time. */}}
{{- define "haptic-trio.check" -}}
{{- include "haptic-trio.checkNames" . }}
{{- include "haptic-trio.checkPods" . }}
{{- include "haptic-trio.checkPorts" . }}
{{- range $name, $service := merge (dict "" .Values.haproxy.service) .Values.haproxy.extraServices }}
{{- $path := ternary (printf "haproxy.extraServices.%s" $name) "haproxy.service" (ne $name "") }}
{{- include "haptic-trio.checkService" (list $path $service $.Values.haproxy.extraPorts) }}
{{- end }}
{{- if .Values.haproxy.autoscaling.enabled }}
{{- include "haptic-trio.checkAutoscaling" . }}
{{- end }}
{{- end }}

{{/* Names that the chart uses itself. */}}
{{- define "haptic-trio.checkNames" -}}
{{- $selector := include "haptic-trio.selector" (list . "haproxy") | fromYaml }}
{{- $all := include "haptic-trio.labels" (list . "haproxy") | fromYaml }}
{{- range list (list "commonLabels" .Values.commonLabels $all) (list "controller.podLabels" .Values.controller.podLabels $selector) (list "haproxy.podLabels" .Values.haproxy.podLabels $selector) }}
{{- $path := first . }}
{{- $own := last . }}
{{- range $label, $_ := index . 1 }}
{{- if or (hasKey $own $label) (hasPrefix "haptic-trio/" $label) }}
{{- fail (printf "%s: the label %s is set by the chart or the controller" $path $label) }}
{{- end }}
{{- end }}
{{- end }}
{{- if hasKey .Values.haproxy.extraServices "metrics" }}
{{- fail "haproxy.extraServices: the chart has a Service with the name metrics itself" }}
{{- end }}
{{- range $component := list "controller" "haproxy" }}
{{- $values := get $.Values $component }}
{{- $names := list $component }}
{{- range concat $values.initContainers $values.extraContainers }}
{{- if has .name $names }}
{{- fail (printf "%s.extraContainers and initContainers: the pod has a container with the name %s already" $component .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- $names := list "state" "tmp" "tls" "webhook" "webhook-clients" "console" }}
{{- range $values.extraVolumes }}
{{- if has .name $names }}
{{- fail (printf "%s.extraVolumes: the pod has a volume with the name %s already" $component .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}
{{- end }}

{{- define "haptic-trio.checkPods" -}}
{{- range $component := list "controller" "haproxy" }}
{{- $values := get $.Values $component }}
{{- if and (eq $values.dnsPolicy "None") (not $values.dnsConfig.nameservers) }}
{{- fail (printf "%s.dnsPolicy None requires %s.dnsConfig.nameservers" $component $component) }}
{{- end }}
{{- end }}
{{- with .Values.haproxy }}
{{- $hostPorts := or .hostPorts.http .hostPorts.https }}
{{- range .extraPorts }}
{{- $hostPorts = or $hostPorts .hostPort }}
{{- end }}
{{- if and (ne .kind "DaemonSet") (or .hostNetwork $hostPorts) }}
{{- fail (printf "haproxy.hostNetwork and host ports require haproxy.kind DaemonSet, for one pod on each node; it is %s" .kind) }}
{{- end }}
{{- if and .hostNetwork $hostPorts }}
{{- fail "haproxy.hostNetwork: the ports of the node are haproxy.ports then, and there can be no host ports" }}
{{- end }}
{{- end }}
{{- end }}

{{/* Further ports with a name that another one has. haptic-trio.config compares the numbers in the containers. */}}
{{- define "haptic-trio.checkPorts" -}}
{{- $names := list "http" "https" "http3" "agent" "health" "metrics" }}
{{- range .Values.haproxy.extraPorts }}
{{- if has .name $names }}
{{- fail (printf "haproxy.extraPorts: there is a port with the name %s already" .name) }}
{{- end }}
{{- $names = append $names .name }}
{{- end }}
{{- end }}

{{/* A Service that the API server would reject, of (list PATH SERVICE FURTHER-PORTS). */}}
{{- define "haptic-trio.checkService" -}}
{{- $path := first . }}
{{- $service := index . 1 }}
{{- $wanted := $service.extraPorts }}
{{- $numbers := list }}
{{- $ports := mergeOverwrite (dict "http" 80 "https" 443) ($service.ports | default dict) }}
{{- range list $ports.http $ports.https }}
{{- if . }}
{{- $numbers = append $numbers (int .) }}
{{- end }}
{{- end }}
{{- $names := list }}
{{- range last . }}
{{- $names = append $names .name }}
{{- if or (kindIs "invalid" $wanted) (has .name ($wanted | default list)) }}
{{- $numbers = append $numbers (.port | default .containerPort | int) }}
{{- end }}
{{- end }}
{{- range $wanted }}
{{- if not (has . $names) }}
{{- fail (printf "%s.extraPorts: haproxy.extraPorts has no port %s" $path .) }}
{{- end }}
{{- end }}
{{- if not $numbers }}
{{- fail (printf "%s has no port" $path) }}
{{- end }}
{{- range $number := uniq $numbers }}
{{- if lt (len (without $numbers $number) | add1) (len $numbers) }}
{{- fail (printf "%s has port %d twice, with haproxy.extraPorts" $path $number) }}
{{- end }}
{{- end }}
{{- if and (ne $service.type "LoadBalancer") (or $service.loadBalancerClass $service.loadBalancerSourceRanges) }}
{{- fail (printf "%s: loadBalancerClass and loadBalancerSourceRanges require type LoadBalancer; it is %s" $path $service.type) }}
{{- end }}
{{- if and (eq $service.type "ClusterIP") (values ($service.nodePorts | default dict) | compact) }}
{{- fail (printf "%s: nodePorts require type NodePort or LoadBalancer" $path) }}
{{- end }}
{{- if and $service.sessionAffinitySeconds (ne ($service.sessionAffinity | default "None") "ClientIP") }}
{{- fail (printf "%s: sessionAffinitySeconds requires sessionAffinity ClientIP" $path) }}
{{- end }}
{{- end }}

{{- define "haptic-trio.checkAutoscaling" -}}
{{- $scaling := .Values.haproxy.autoscaling }}
{{- if ne .Values.haproxy.kind "Deployment" }}
{{- fail (printf "haproxy.autoscaling requires haproxy.kind Deployment; it is %s" .Values.haproxy.kind) }}
{{- end }}
{{- if gt (int $scaling.minReplicas) (int $scaling.maxReplicas) }}
{{- fail (printf "haproxy.autoscaling: minReplicas is %v, and maxReplicas is %v" $scaling.minReplicas $scaling.maxReplicas) }}
{{- end }}
{{- $targets := dict "cpu" $scaling.targetCPUUtilizationPercentage "memory" $scaling.targetMemoryUtilizationPercentage }}
{{- if not (or (values $targets | compact) $scaling.metrics) }}
{{- fail "haproxy.autoscaling requires a target for CPU or memory, or an entry in metrics" }}
{{- end }}
{{- $requests := dig "requests" dict (include "haptic-trio.resources" (list . "haproxy") | fromYaml) | default dict }}
{{- range $resource, $target := $targets }}
{{- if and $target (not (get $requests $resource)) }}
{{- fail (printf "haproxy.autoscaling: a target for %s is a percentage of haproxy.resources.requests.%s, which is not set" $resource $resource) }}
{{- end }}
{{- end }}
{{- end }}
