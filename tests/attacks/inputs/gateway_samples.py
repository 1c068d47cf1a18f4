"""Benign objects of the Gateway API, with something in every field that is read."""

from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.tenants import Sample, Tenant, authority_text
from tests.gateway.objects import gateway_class, made
from tests.support.kubernetes import endpoint, endpoint_slice, service


def filters(target: str) -> list[dict[str, Any]]:
    """Return one filter of each type that goes beside others."""
    modifier = {"set": [{"name": "x-a", "value": "b"}], "add": [{"name": "x-c", "value": "d"}], "remove": ["x-e"]}
    cors = {
        "allowOrigins": ["https://a.test"],
        "allowMethods": ["GET"],
        "allowHeaders": ["x-a"],
        "exposeHeaders": ["y"],
    }
    rewrite = {"hostname": "in.test", "path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}
    return [
        {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier},
        {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": target, "port": 80}, "percent": 10}},
        {"type": "CORS", "cors": cors},
        {"type": "URLRewrite", "urlRewrite": rewrite},
    ]


def extension(name: str) -> dict[str, Any]:
    """Return a filter that names the filter *name* of the administrator."""
    return {"type": "ExtensionRef", "extensionRef": {"group": "haptic-trio.io", "kind": "Filter", "name": name}}


def _prefix(value: str) -> dict[str, Any]:
    return {"path": {"type": "PathPrefix", "value": value}}


def _http_route(tenant: Tenant, parents: list[dict[str, Any]], target: str = "app") -> Resource:
    match = {
        "path": {"type": "RegularExpression", "value": "/a+"},
        "method": "GET",
        "headers": [
            {"name": "x-a", "type": "Exact", "value": "b"},
            {"name": "x-b", "type": "RegularExpression", "value": "b.*"},
            # It backtracks, which limits the length of the header.
            {"name": "x-c", "type": "RegularExpression", "value": "[a-z]*[a-y]*c"},
        ],
        "queryParams": [{"name": "q", "type": "RegularExpression", "value": "c.*"}],
    }
    redirect = {
        "scheme": "https",
        "hostname": "to.test",
        "path": {"type": "ReplaceFullPath", "replaceFullPath": "/full"},
    }
    to = [{"name": target, "port": 80}]
    other = {
        "name": "app",
        "namespace": f"{tenant.namespace}-other",
        "port": 80,
        "weight": 3,
        "filters": filters("app")[:1],
    }
    return tenant.made("HTTPRoute", "route", spec={
        "parentRefs": parents,
        "hostnames": [tenant.host("route"), f"*.{tenant.host('wild')}"],
        "rules": [
            {"matches": [_prefix("/plain")], "backendRefs": to},
            {"name": "one", "matches": [match], "filters": filters(target), "backendRefs": to,
             "timeouts": {"request": "5s", "backendRequest": "1s"}},
            {"matches": [_prefix("/redirect")], "filters": [{"type": "RequestRedirect", "requestRedirect": redirect}]},
            {"matches": [{"path": {"type": "Exact", "value": "/e"}}], "backendRefs": [other],
             "retry": {"codes": [503], "attempts": 2, "backoff": "10ms"}},
            {"matches": [_prefix("/retry")], "backendRefs": to, "retry": {"attempts": 1}},
            {"matches": [_prefix("/pages")], "backendRefs": [{**to[0], "filters": [extension("error-pages")]}],
             "filters": [extension("error-pages")]},
            {"matches": [_prefix("/sticky")], "backendRefs": to,
             "sessionPersistence": {"type": "Cookie", "sessionName": "C", "absoluteTimeout": "1h",
                                    "cookieConfig": {"lifetimeType": "Permanent"}}},
        ],
    })  # fmt: skip


def _http(tenant: Tenant) -> list[Resource]:
    return [
        _http_route(
            tenant,
            [
                {"name": "shared0", "sectionName": "http"},
                {"name": "shared0", "port": Tenant(tenant.namespace, 0, 1).port(2)},
            ],
        )
    ]


def _grpc(tenant: Tenant) -> list[Resource]:
    match = [
        {"method": {"service": "a.B", "method": "C"}, "headers": [{"name": "x-a", "value": "b"}]},
        {"method": {"type": "RegularExpression", "service": "a.*", "method": "c.*"}},
    ]
    return [tenant.made("GRPCRoute", "grpc", spec={
        "parentRefs": [{"name": "shared0", "sectionName": "http"}], "hostnames": [tenant.host("grpc")],
        "rules": [{"matches": match, "backendRefs": [{"name": "app", "port": 80}], "filters": filters("app")[:3]}],
    })]  # fmt: skip


def _layer_4(tenant: Tenant) -> list[Resource]:
    to = [{"name": "app", "port": 80}]
    listeners = [{"name": "tcp", "port": tenant.port(1), "protocol": "TCP"}]
    return [
        tenant.made("TLSRoute", "tls", spec={
            "parentRefs": [{"name": "shared0", "sectionName": "pass"}], "hostnames": [tenant.host("pass")],
            "rules": [{"backendRefs": to}],
        }),
        tenant.made("Gateway", "tcp", spec={"gatewayClassName": "haptic", "listeners": listeners}),
        tenant.made("TCPRoute", "tcp", version="gateway.networking.k8s.io/v1", spec={
            "parentRefs": [{"name": tenant.name("tcp"), "sectionName": "tcp"}], "rules": [{"backendRefs": to}],
        }),
        tenant.made("UDPRoute", "udp", version="gateway.networking.k8s.io/v1alpha2", spec={
            "parentRefs": [{"name": tenant.name("tcp")}], "rules": [{"backendRefs": to}],
        }),
    ]  # fmt: skip


def _gateway(tenant: Tenant) -> list[Resource]:
    tls = {"mode": "Terminate", "certificateRefs": [{"kind": "Secret", "name": "pair"}]}
    reference = [{"group": "", "kind": "ConfigMap", "name": tenant.name("ca")}]
    expression = {"key": "team", "operator": "In", "values": [tenant.name("team")]}
    team = {"matchLabels": {"team": tenant.name("team")}, "matchExpressions": [expression]}
    authority = {"ca.crt": authority_text()}
    far = made("Namespace", f"{tenant.namespace}-{tenant.number}", namespace="", version="v1")
    far["metadata"]["labels"] = {"team": tenant.name("team")}
    to = [{"backendRefs": [{"name": "app", "port": 80}]}]
    to_set = {"kind": "ListenerSet", "group": "gateway.networking.k8s.io", "name": tenant.name("set")}
    objects = [
        tenant.made("Gateway", "gw", spec={
            "gatewayClassName": f"{tenant.namespace}-{tenant.name('class')}",
            "addresses": [{"type": "IPAddress", "value": "10.0.0.9"}],
            "infrastructure": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
            "allowedListeners": {"namespaces": {"from": "Selector", "selector": team}},
            "listeners": [
                {"name": "http", "port": tenant.port(1), "protocol": "HTTP", "hostname": f"*.{tenant.namespace}.test",
                 "allowedRoutes": {"kinds": [{"kind": "HTTPRoute"}],
                                   "namespaces": {"from": "Selector", "selector": team}}},
                {"name": "https", "port": tenant.port(2), "protocol": "HTTPS", "hostname": tenant.host("https"),
                 "tls": tls},
                {"name": "tls", "port": tenant.port(3), "protocol": "TLS", "tls": tls},
            ],
            "tls": {"frontend": {"default": {"validation": {"caCertificateRefs": reference}}},
                    "backend": {"clientCertificateRef": {"kind": "Secret", "name": "pair"}}},
        }),
        gateway_class_of(tenant),
        tenant.made("ListenerSet", "set", spec={
            "parentRef": {"name": tenant.name("gw")},
            "listeners": [
                {"name": "more", "port": tenant.port(4), "protocol": "HTTP", "hostname": tenant.host("more")},
                {"name": "mores", "port": tenant.port(2), "protocol": "HTTPS", "hostname": tenant.host("mores"),
                 "tls": tls},
            ],
        }),
        made("ConfigMap", tenant.name("ca"), namespace=tenant.namespace, version="v1", data=authority),
        far,
        tenant.made("HTTPRoute", "near", spec={
            "parentRefs": [{"name": tenant.name("gw")}, to_set], "rules": to,
        }),
        made("HTTPRoute", tenant.name("far"), namespace=f"{tenant.namespace}-{tenant.number}", spec={
            "parentRefs": [{"name": tenant.name("gw"), "namespace": tenant.namespace}],
            "rules": to,
        }),
    ]  # fmt: skip
    objects[0]["metadata"]["annotations"] = {
        "haptic-trio/timeout-client": "10s",
        "haptic-trio/timeout-http-request": f"{tenant.port(1)}=5s",
        "haptic-trio/timeout-http-keep-alive": "5s",
        "haptic-trio/max-connections": f"100 {tenant.port(2)}=50",
        # For a port that there is not: the stick tables of all copies stay below the limit of their namespace.
        "haptic-trio/connections-per-client": "65535=10",
        "haptic-trio/rate-limit": f"{tenant.port(1)}=10",
        "haptic-trio/max-body-size": "1m",
    }
    return objects


def gateway_class_of(tenant: Tenant) -> Resource:
    """Return a GatewayClass for one copy."""
    found = gateway_class()
    found["metadata"]["name"] = f"{tenant.namespace}-{tenant.name('class')}"
    return found


def _policy(tenant: Tenant) -> list[Resource]:
    name, namespace, other = tenant.name("secure"), tenant.namespace, f"{tenant.namespace}-other"
    return [
        service(name, namespace=namespace),
        endpoint_slice(name, endpoint("10.0.1.3"), ports=8080, namespace=namespace),
        tenant.made("BackendTLSPolicy", "secure", spec={
            "targetRefs": [{"group": "", "kind": "Service", "name": name}],
            "validation": {"hostname": "in.test",
                           "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": name}],
                           "subjectAltNames": [{"type": "Hostname", "hostname": "san.test"}]},
        }),
        made("ConfigMap", name, namespace=namespace, version="v1", data={"ca.crt": authority_text()}),
        _http_route(tenant, [{"name": "shared0", "sectionName": "http"}], name),
        {**made("ReferenceGrant", name, namespace=other, version="gateway.networking.k8s.io/v1"), "spec": {
            "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": namespace}],
            "to": [{"group": "", "kind": "Service", "name": "app"}],
        }},
    ]  # fmt: skip


GATEWAY_SAMPLES: Final = (
    Sample("http", _http, 60),
    Sample("grpc", _grpc, 60),
    Sample("layer-4", _layer_4, 30),
    Sample("gateway", _gateway, 12),
    Sample("policy", _policy, 40),
)
