{{/* The configuration: the values' own, and what the chart knows. */}}
{{- define "haptic-trio.config" -}}
{{- $known := dict
  "httpPort" (int .Values.haproxy.ports.http)
  "httpsPort" (int .Values.haproxy.ports.https)
  "ingressClass" .Values.ingressClass.name
  "ingressController" .Values.ingressClass.controller
  "metricsAddress" "*"
  "metricsPort" (ternary (int .Values.haproxy.metrics.port) 0 .Values.haproxy.metrics.enabled)
}}
{{- if has "gateway" .Values.config.templating.libraries }}
{{- $_ := set $known "gatewayController" .Values.gatewayClass.controller }}
{{- end }}
{{- if or (has "gateway" .Values.config.templating.libraries) (has "tcp-services" .Values.config.templating.libraries) }}
{{- $own := list .Values.haproxy.ports.agent .Values.haproxy.ports.health .Values.haproxy.metrics.port .Values.controller.port .Values.webhook.port }}
{{- $reserved := list }}
{{- range $own }}{{ $reserved = append $reserved (int .) }}{{ end }}
{{- $_ := set $known "gatewayReservedPorts" ($reserved | uniq) }}
{{- end }}
{{- if and (include "haptic-trio.offersHttp3" .) (not (hasKey .Values.config.templating.extraContext "http3Port")) }}
{{- $_ := set $known "http3Port" (int .Values.haproxy.service.ports.https) }}
{{- end }}
{{- if and (has "ssl" .Values.config.templating.libraries) (not (hasKey .Values.config.templating.extraContext "httpsAlways")) }}
{{- /* The Service has the port in any case, and the first certificate needs no reload. */}}
{{- $_ := set $known "httpsAlways" true }}
{{- end }}
{{- $ports := values .Values.haproxy.ports }}
{{- if .Values.haproxy.metrics.enabled }}
{{- $ports = append $ports .Values.haproxy.metrics.port }}
{{- end }}
{{- range .Values.haproxy.extraPorts }}
{{- $ports = append $ports .containerPort }}
{{- end }}
{{- range $port := $ports | uniq }}
{{- if lt (len (without $ports $port) | add1) (len $ports) }}
{{- fail (printf "haproxy.ports and haproxy.metrics: %v is given twice, with haproxy.extraPorts" $port) }}
{{- end }}
{{- end }}
{{- range $name, $_ := .Values.config.templating.extraContext }}
{{- if hasKey $known $name }}
{{- fail (printf "config.templating.extraContext.%s is set by the chart: see haproxy.ports, haproxy.metrics, ingressClass and gatewayClass" $name) }}
{{- end }}
{{- end }}
{{- $set := dict
  "podSelector" (dict "matchLabels" (include "haptic-trio.selector" (list . "haproxy") | fromYaml))
  "dataplane" (dict "kind" "agent" "port" (int .Values.haproxy.ports.agent))
  "controller" (dict "leaderElection" (dict "leaseName" (include "haptic-trio.leaseName" .)))
  "templating" (dict "extraContext" $known)
}}
{{- if eq .Values.haproxy.kind "fleet" }}
{{- $template := printf "%s-haproxy" (include "haptic-trio.fullname" .) }}
{{- $_ := set $set "instances" (dict "podTemplate" $template "size" (int .Values.haproxy.replicas)) }}
{{- else if .Values.config.instances }}
{{- fail (printf "config.instances is about pods that the controller makes, and haproxy.kind is %s: set that to fleet" .Values.haproxy.kind) }}
{{- end }}
{{- $config := mergeOverwrite (deepCopy .Values.config) $set }}
{{- if .Values.watchNamespaces }}
{{- $_ := set $config "watchedResources" (include "haptic-trio.limitedWatches" . | fromJson) }}
{{- end }}
{{- toYaml $config }}
{{- end }}

{{/* Resources that are in no namespace, as JSON. */}}
{{- define "haptic-trio.clusterScoped" -}}
{{- list "networking.k8s.io/ingressclasses" "gateway.networking.k8s.io/gatewayclasses" "/namespaces" "/nodes" | toJson }}
{{- end }}

{{/*
  The complete watched resources of the libraries and of the values, by name, as JSON: limited to `watchNamespaces` unless an
  entry has its own `namespaces`, even an empty list.
*/}}
{{- define "haptic-trio.limitedWatches" -}}
{{- $known := .Files.Get "files/watched-resources.yaml" | fromYaml }}
{{- $all := dict }}
{{- range append .Values.config.templating.libraries "" }}
{{- range $name, $one := ternary (get $known .) ($.Values.config.watchedResources | default dict) (ne . "") }}
{{- $_ := set $all $name (omit $one "writesStatus") }}
{{- end }}
{{- end }}
{{- $watched := include "haptic-trio.watched" . | fromJson }}
{{- range $name, $one := $all }}
{{- with (get $watched $name).namespaces }}
{{- $_ := set $one "namespaces" . }}
{{- end }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{- define "haptic-trio.leaseName" -}}
{{ include "haptic-trio.fullname" . }}-leader
{{- end }}

{{/* Not empty where replicas elect a leader (the default). */}}
{{- define "haptic-trio.electsLeader" -}}
{{- if dig "controller" "leaderElection" "enabled" true .Values.config }}yes
{{- else if gt (int .Values.controller.replicas) 1 }}
{{- fail "controller.replicas must be 1 if config.controller.leaderElection.enabled is false" }}
{{- end }}
{{- end }}

{{/*
  What is watched, by name, as JSON, each with its "group" and "key" (GROUP/RESOURCE). An entry of the values replaces that of
  a library, as in the program.
*/}}
{{- define "haptic-trio.watched" -}}
{{- $known := .Files.Get "files/watched-resources.yaml" | fromYaml }}
{{- $all := dict }}
{{- range $library := .Values.config.templating.libraries }}
{{- if not (hasKey $known $library) }}
{{- fail (printf "config.templating.libraries: there is no library %q, but %s" $library (keys $known | sortAlpha | join ", ")) }}
{{- end }}
{{- $all = merge dict (get $known $library) $all }}
{{- end }}
{{- $all = merge dict (deepCopy (.Values.config.watchedResources | default dict)) $all }}
{{- $unplaced := include "haptic-trio.clusterScoped" . | fromJsonArray }}
{{- range $all }}
{{- $group := ternary (splitList "/" .apiVersion | first) "" (contains "/" .apiVersion) }}
{{- $_ := set . "key" (printf "%s/%s" $group .resources) }}
{{- if and $.Values.watchNamespaces (not (hasKey . "namespaces")) (not (has .key $unplaced)) }}
{{- $_ := set . "namespaces" $.Values.watchNamespaces }}
{{- end }}
{{- end }}
{{- toJson $all }}
{{- end }}

{{/* The namespaces that watched resources are limited to, as JSON. */}}
{{- define "haptic-trio.namespaces" -}}
{{- $found := list }}
{{- range include "haptic-trio.watched" . | fromJson }}
{{- $found = concat $found (.namespaces | default list) }}
{{- end }}
{{- $found | uniq | sortAlpha | toJson }}
{{- end }}

{{/*
  The rules that watching needs, of (list ROOT NAMESPACE): in the whole cluster with an empty NAMESPACE, else in that one.
  Statuses and Events are written in the namespaces of the objects.
*/}}
{{- define "haptic-trio.watchRules" -}}
{{- $namespace := last . }}
{{- $verbs := dict }}
{{- range $name, $_ := include "haptic-trio.watched" (first .) | fromJson }}
{{- if ternary (has $namespace (.namespaces | default list)) (empty .namespaces) (ne $namespace "") }}
{{- $read := ternary (list "get" "list" "watch") (list "list" "watch") (eq (.store | default "full") "on-demand") }}
{{- $_ := set $verbs .key (concat (get $verbs .key | default list) $read | uniq | sortAlpha) }}
{{- if .writesStatus }}
{{- $_ := set $verbs (printf "%s/status" .key) (list "patch") }}
{{- end }}
{{- if and (eq $name "gateways") (include "haptic-trio.makesGatewayServices" (first $)) }}
{{- $_ := set $verbs "/services" (concat (get $verbs "/services" | default list) (list "create" "get" "patch") | uniq | sortAlpha) }}
{{- $slices := "discovery.k8s.io/endpointslices" }}
{{- $_ := set $verbs $slices (concat (get $verbs $slices | default list) (list "create" "patch") | uniq | sortAlpha) }}
{{- end }}
{{- end }}
{{- end }}
{{- if without (keys $verbs) "networking.k8s.io/ingressclasses" "gateway.networking.k8s.io/gatewayclasses" "gateway.networking.k8s.io/gatewayclasses/status" "/namespaces" "/nodes" }}
{{- $_ := set $verbs "events.k8s.io/events" (list "create" "get" "update") }}
{{- end }}
{{- range $key := keys $verbs | sortAlpha }}
- apiGroups: [{{ splitList "/" $key | first | quote }}]
  resources: [{{ splitList "/" $key | rest | join "/" }}]
  verbs: [{{ get $verbs $key | join ", " }}]
{{- end }}
{{- end }}

{{/* Not empty where each Gateway gets a Service. */}}
{{- define "haptic-trio.makesGatewayServices" -}}
{{- $templating := .Values.config.templating }}
{{- if and (has "gateway" $templating.libraries) $templating.extraContext.gatewayServices }}yes{{ end }}
{{- end }}

{{/* Not empty where the leader writes the configuration that instances run to objects. */}}
{{- define "haptic-trio.publishesConfiguration" -}}
{{- if dig "controller" "publishConfiguration" false .Values.config }}yes{{ end }}
{{- end }}

{{/* Not empty where the status of Ingresses has addresses of nodes. */}}
{{- define "haptic-trio.publishesNodes" -}}
{{- with .Values.controller }}
{{- if and .publishNodes (not .publishAddresses) }}yes{{ end }}
{{- end }}
{{- end }}

{{/* Not empty where clients may come by UDP, too. */}}
{{- define "haptic-trio.offersHttp3" -}}
{{- $templating := .Values.config.templating }}
{{- if and (has "ssl" $templating.libraries) $templating.extraContext.http3 }}yes{{ end }}
{{- end }}

{{/*
  Rejects an upgrade that would remove HTTPS: helm identifies the ports of a Service by number, and would turn the HTTPS port
  into a UDP port. Existing Services stay as they are.
*/}}
{{- define "haptic-trio.requireMergeablePorts" -}}
{{- $name := printf "%s-haproxy" (include "haptic-trio.fullname" .) }}
{{- $found := lookup "v1" "Service" .Release.Namespace $name }}
{{- if and $found (include "haptic-trio.offersHttp3" .) }}
{{- $protocols := list }}
{{- range $found.spec.ports }}
{{- if eq (int .port) (int $.Values.haproxy.service.ports.https) }}
{{- $protocols = append $protocols .protocol }}
{{- end }}
{{- end }}
{{- if eq (join "" $protocols) "TCP" }}
{{- $port := dict "name" "http3" "port" (int .Values.haproxy.service.ports.https) "protocol" "UDP" "targetPort" (int .Values.haproxy.ports.https) }}
{{- $patch := list (dict "op" "add" "path" "/spec/ports/-" "value" $port) | toJson }}
{{- fail (printf "HTTP/3 for a release that runs: helm would lose the Service's port for HTTPS. Add the one for UDP first, and upgrade then: kubectl --namespace %s patch service %s --type json --patch '%s'" .Release.Namespace $name $patch) }}
{{- end }}
{{- end }}
{{- end }}

{{/* Not empty where a resource is watched in the whole cluster, of (list ROOT GROUP/RESOURCE). */}}
{{- define "haptic-trio.watchesEverywhere" -}}
{{- $key := last . }}
{{- range include "haptic-trio.watched" (first .) | fromJson }}
{{- if and (eq .key $key) (not .namespaces) }}yes{{ end }}
{{- end }}
{{- end }}
