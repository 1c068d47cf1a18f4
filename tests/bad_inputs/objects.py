"""One valid object of each kind that the libraries read, with something in every field that they look at."""

from typing import Any

import trustme

from haptic_trio.k8s.resource import Resource
from tests.bad_inputs.world import HASH, JCM, NGINX, ORG, secret
from tests.gateway.objects import gateway, gateway_class, grant, made, route
from tests.gateway.objects import rule as route_rule
from tests.support.kubernetes import (
    endpoint,
    endpoint_slice,
    ingress,
    ingress_class,
    path,
    rule,
    service,
    service_backend,
    tls_secret,
)

AUTHORITY = trustme.CA()
ISSUED = AUTHORITY.issue_cert("rich.example.com", key_type=trustme.KeyType.ECDSA)
PAIR = ISSUED.cert_chain_pems[0].bytes().decode(), ISSUED.private_key_pem.bytes().decode()

OF_NGINX = {
    "auth-type": "basic", "auth-secret": "users", "auth-realm": "Here", "enable-cors": "true",
    "cors-allow-origin": "https://*.example.com", "cors-allow-headers": "X-A,X-B", "cors-allow-methods": "GET, PUT",
    "cors-expose-headers": "X-C", "cors-max-age": "60", "affinity": "cookie", "session-cookie-name": "C",
    "session-cookie-path": "/c", "session-cookie-domain": "example.com", "session-cookie-samesite": "Lax",
    "backend-protocol": "HTTPS", "proxy-ssl-server-name": "on", "proxy-ssl-name": "in.example.com",
    "limit-rps": "5", "limit-rpm": "50", "limit-connections": "9", "limit-allowlist": "10.0.0.0/8",
    "whitelist-source-range": "10.0.0.0/8,192.0.2.1", "denylist-source-range": "192.0.2.2",
    "permanent-redirect": "https://$host/x", "app-root": "/app", "rewrite-target": "/$2",
    "proxy-read-timeout": "5", "proxy-connect-timeout": "6", "proxy-next-upstream-tries": "3",
    "proxy-body-size": "8m", "upstream-vhost": "in.example.com:80", "x-forwarded-prefix": "/p",
    "server-alias": "alias.example.com", "from-to-www-redirect": "true", "load-balance": "ewma",
}  # fmt: skip
OF_ORG = {
    "auth-type": "basic-auth", "auth-secret": "hashes", "auth-realm": "Here", "cors-enable": "true",
    "cors-allow-origin": "https://a.example.com", "cors-allow-headers": "X-A", "cors-allow-methods": "GET",
    "request-set-header": "X-A b", "response-set-header": "X-B c", "path-rewrite": "/a/(.*) /\\1",
    "set-host": "in.example.com", "allow-list": "10.0.0.0/8", "deny-list": "192.0.2.2", "timeout-server": "5s",
    "rate-limit-requests": "5", "rate-limit-period": "1m", "cookie-persistence": "C", "check": "true",
    "check-http": "/ok", "pod-maxconn": "9", "load-balance": "leastconn",
}  # fmt: skip
OF_JCM = {
    "auth-secret": "users", "auth-realm": "Here", "cors-enable": "true", "cors-allow-origin": "https://a.example.com",
    "headers": "X-A: b\nX-B: c", "redirect-to": "/x", "app-root": "/app", "hsts": "true", "hsts-max-age": "60",
    "affinity": "cookie", "session-cookie-name": "C", "session-cookie-domain": "example.com", "limit-rps": "5",
    "allowlist-source-range": "10.0.0.0/8", "balance-algorithm": "leastconn", "timeout-server": "5s",
    "health-check-uri": "/ok", "secure-sni": "sni.example.com", "backend-protocol": "h1-ssl", "maxconn-server": "9",
    "server-alias": "alias.example.org",
}  # fmt: skip


def annotated(name: str, prefix: str, values: dict[str, str], at: str = "/") -> Resource:
    return ingress(
        name,
        rule(f"{name}.example.com", path(at, "rich", "http"), path("/x", "rich", kind="Exact")),
        annotations={f"{prefix}/{key}": value for key, value in values.items()},
    )


def filters() -> list[dict[str, Any]]:
    modifier = {"set": [{"name": "x-a", "value": "b"}], "add": [{"name": "x-c", "value": "d"}], "remove": ["x-e"]}
    mirror = {"backendRef": {"name": "app", "port": 80}, "percent": 10}
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
        {"type": "RequestMirror", "requestMirror": mirror},
        {"type": "CORS", "cors": cors},
        {"type": "URLRewrite", "urlRewrite": rewrite},
    ]


def http_route() -> Resource:
    match = {
        "path": {"type": "RegularExpression", "value": "/a+"},
        "method": "GET",
        "headers": [{"name": "x-a", "type": "Exact", "value": "b"}],
        "queryParams": [{"name": "q", "type": "RegularExpression", "value": "c.*"}],
    }
    redirect = {
        "scheme": "https",
        "hostname": "to.test",
        "path": {"type": "ReplaceFullPath", "replaceFullPath": "/full"},
    }
    return route(
        "rich",
        route_rule("/plain"),
        route_rule(matches=[match], filters=filters(), timeouts={"request": "5s", "backendRequest": "1s"}, name="one"),
        route_rule("/redirect", filters=[{"type": "RequestRedirect", "requestRedirect": redirect}]),
        {"matches": [{"path": {"type": "Exact", "value": "/e"}}],
         "backendRefs": [{"name": "app", "namespace": "other", "port": 80, "weight": 3, "filters": filters()[:1]}],
         "retry": {"codes": [503], "attempts": 2, "backoff": "10ms"}},
        hostnames=["rich.test", "*.wild.test"],
        parents=[{"name": "rich", "sectionName": "http"}, {"name": "rich", "port": 10_443}],
    )  # fmt: skip


def rich_gateway() -> Resource:
    tls = {"mode": "Terminate", "certificateRefs": [{"kind": "Secret", "name": "web-tls"}]}
    return gateway(
        "rich",
        {"name": "http", "port": 10_080, "protocol": "HTTP", "hostname": "*.test"},
        {"name": "https", "port": 10_443, "protocol": "HTTPS", "hostname": "rich.test", "tls": tls},
        {"name": "pass", "port": 10_444, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
        {"name": "tls", "port": 10_445, "protocol": "TLS", "tls": tls},
        {"name": "tcp", "port": 10_446, "protocol": "TCP"},
        tls={
            "frontend": {
                "default": {"validation": {"caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]}}
            }
        },
    )


def of_gateways() -> list[Resource]:
    backend = [{"name": "app", "port": 80}]
    authority = AUTHORITY.cert_pem.bytes().decode()
    grpc = [{"method": {"service": "a.B", "method": "C"}, "headers": [{"name": "x-a", "value": "b"}]}]
    policy = {
        "targetRefs": [{"group": "", "kind": "Service", "name": "secure"}],
        "validation": {"hostname": "in.test", "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": "ca"}]},
    }
    listeners = [{"name": "more", "port": 10_447, "protocol": "HTTP", "hostname": "more.test"}]
    slices = [
        endpoint_slice(name, endpoint(address), ports=8080, namespace=namespace)
        for name, address, namespace in (
            ("app", "10.0.1.1", "web"),
            ("app", "10.0.1.2", "other"),
            ("secure", "10.0.1.3", "web"),
        )
    ]
    return [
        gateway_class(),
        rich_gateway(),
        http_route(),
        route("secure", route_rule("/s", to="secure"), parents=[{"name": "rich"}]),
        made("GRPCRoute", "rich", spec={
            "parentRefs": [{"name": "rich", "sectionName": "http"}], "hostnames": ["grpc.test"],
            "rules": [{"matches": grpc, "backendRefs": backend, "filters": filters()[:1]}],
        }),
        made("TLSRoute", "rich", spec={
            "parentRefs": [{"name": "rich", "sectionName": "pass"}], "hostnames": ["pass.test"],
            "rules": [{"backendRefs": backend}],
        }),
        made("TCPRoute", "rich", version="gateway.networking.k8s.io/v1", spec={
            "parentRefs": [{"name": "rich", "sectionName": "tcp"}], "rules": [{"backendRefs": backend}],
        }),
        made("ListenerSet", "rich", spec={"parentRef": {"name": "rich"}, "listeners": listeners}),
        made("BackendTLSPolicy", "rich", spec=policy),
        made("ConfigMap", "ca", version="v1", data={"ca.crt": authority}),
        made("Namespace", "web", namespace="", version="v1"),
        grant("other"),
        service("app", namespace="other"),
        service("secure", namespace="web"),
        *slices,
        tls_secret("web-tls", *PAIR, namespace="web"),
    ]  # fmt: skip


def of_ingresses() -> list[Resource]:
    plain = ingress(
        "rich",
        rule("rich.example.com", path("/a", "rich", "http"), path("/b", "rich", 80, kind="Exact")),
        rule("*.rich.example.com", path("/", "rich", kind="ImplementationSpecific")),
        tls=[{"hosts": ["rich.example.com"], "secretName": "tls"}],
        defaultBackend=service_backend("rich"),
    )
    by_class = ingress("by-class", rule("c.example.com", path("/", "rich")), ingress_class="other")
    return [
        plain,
        by_class,
        ingress_class("other", "haptic-trio/ingress-controller"),
        annotated("nginx", NGINX, OF_NGINX, "/n(/|$)(.*)"),
        annotated("org", ORG, OF_ORG),
        annotated("jcm", JCM, OF_JCM),
        ingress("canary", rule("rich.example.com", path("/a", "rich", "http")), annotations={
            f"{NGINX}/canary": "true", f"{NGINX}/canary-weight": "5", f"{NGINX}/canary-by-header": "X-C",
            f"{NGINX}/canary-by-header-value": "v", f"{NGINX}/canary-by-cookie": "c",
        }),
        service("rich", {"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}),
        endpoint_slice("rich", endpoint("10.0.0.1"), endpoint("10.0.0.2"), ports={"http": 8080}),
        endpoint_slice("rich", endpoint("fd00::1"), ports={"http": 8080}, family="IPv6", suffix="6"),
        tls_secret("tls", *PAIR),
        secret("users", {"auth": f"joe:{HASH}"}),
        secret("hashes", {"joe": HASH}),
    ]  # fmt: skip


def rich_objects() -> list[Resource]:
    """Return all of them."""
    return [*of_ingresses(), *of_gateways()]
