"""Benign Ingresses with annotations of each library: many at once, and each with what gives it a meaning."""

from collections.abc import Mapping
from typing import Any, Final

from haptic_trio.config.libraries import library_names, load_library
from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.tenants import Sample, Tenant, secrets
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

VENDORS: Final[Mapping[str, Mapping[str, Any]]] = {
    name: entry
    for library in library_names()
    if library.endswith("-annotations")
    for name, entry in load_library(library).templating.extra_context["ingressAnnotations"].items()
}
"""What the libraries of annotations say of themselves: prefix, known names."""


OF_NGINX = {
    "auth-type": "basic", "auth-secret": "{users}", "auth-realm": "Here", "enable-cors": "true",
    "cors-allow-origin": "https://*.example.com", "cors-allow-headers": "X-A,X-B", "cors-allow-methods": "GET, PUT",
    "cors-expose-headers": "X-C", "cors-max-age": "60", "affinity": "cookie", "session-cookie-name": "cart",
    "session-cookie-path": "/c", "session-cookie-domain": "own.test", "session-cookie-samesite": "Lax",
    "backend-protocol": "HTTPS", "proxy-ssl-server-name": "on", "proxy-ssl-name": "in.example.com",
    "limit-rps": "5", "limit-rpm": "50", "limit-connections": "9", "limit-allowlist": "10.0.0.0/8",
    "whitelist-source-range": "10.0.0.0/8,192.0.2.1", "denylist-source-range": "192.0.2.2",
    "permanent-redirect": "https://$host/x", "app-root": "/app", "rewrite-target": "/$2",
    "proxy-read-timeout": "5", "proxy-connect-timeout": "6", "proxy-next-upstream-tries": "3",
    "proxy-body-size": "8m", "upstream-vhost": "in.example.com:80", "x-forwarded-prefix": "/p",
    "server-alias": "{alias}", "from-to-www-redirect": "true", "load-balance": "ewma",
    "proxy-redirect-from": "http://in/", "proxy-redirect-to": "$scheme://$host/a", "proxy-cookie-path": "/ /a",
    "proxy-cookie-domain": "in.example.com out.example.com", "limit-rate": "100", "default-backend": "{service}",
}  # fmt: skip
OF_ORG = {
    "auth-type": "basic-auth", "auth-secret": "{hashes}", "auth-realm": "Here", "cors-enable": "true",
    "cors-allow-origin": "https://a.example.com", "cors-allow-headers": "X-A", "cors-allow-methods": "GET",
    "request-set-header": "X-A b", "response-set-header": "X-B c", "path-rewrite": "/a/(.*) /\\1",
    "set-host": "in.example.com", "allow-list": "10.0.0.0/8", "deny-list": "192.0.2.2", "timeout-server": "5s",
    "rate-limit-requests": "5", "rate-limit-period": "1m", "cookie-persistence": "C", "check": "true",
    "check-http": "/ok", "pod-maxconn": "9", "load-balance": "leastconn",
}  # fmt: skip
OF_JCM = {
    "auth-secret": "{users}", "auth-realm": "Here", "cors-enable": "true", "cors-allow-origin": "https://a.example.com",
    "headers": "X-A: b\nX-B: c", "redirect-to": "/x", "app-root": "/app", "hsts": "true", "hsts-max-age": "60",
    "affinity": "cookie", "session-cookie-name": "cart", "session-cookie-domain": "own.test", "limit-rps": "5",
    "allowlist-source-range": "10.0.0.0/8", "balance-algorithm": "leastconn", "timeout-server": "5s",
    "health-check-uri": "/ok", "secure-sni": "sni.example.com", "backend-protocol": "h1-ssl", "maxconn-server": "9",
    "server-alias": "{alias}", "request-set-headers": "X-A: b", "request-add-headers": "X-A: b",
    "request-del-headers": "X-A, X-B", "response-set-headers": "X-A: b", "response-add-headers": "X-A: b",
    "response-del-headers": "X-A",
}  # fmt: skip
CLIENTS = {
    "nginx": {"auth-tls-secret": "{authority}", "auth-tls-verify-client": "on", "auth-tls-match-cn": "CN=a",
              "auth-tls-error-page": "/e", "auth-tls-pass-certificate-to-upstream": "true",
              "auth-url": "http://{service}.{namespace}.svc/", "auth-signin": "https://a.example.com/in",
              "auth-response-headers": "X-U", "auth-method": "GET"},
    "haproxyIngress": {"auth-tls-secret": "{authority}", "auth-tls-verify-client": "on", "auth-tls-error-page": "/e",
                       "auth-tls-cert-header": "true", "auth-url": "svc://{service}:80/", "auth-signin": "/in",
                       "auth-headers-succeed": "X-U", "auth-method": "GET"},
}  # fmt: skip
REDIRECTS: Final[tuple[tuple[str, Mapping[str, str]], ...]] = (
    ("nginx", {"permanent-redirect": "https://to.example.com$request_uri", "permanent-redirect-code": "308"}),
    ("nginx", {"temporal-redirect": "$scheme://$host/a"}),
    ("nginx", {"app-root": "/app%20", "from-to-www-redirect": "true"}),
    ("nginx", {"force-ssl-redirect": "true"}),
    ("haproxyOrg", {"request-redirect": "to.example.com:8443", "request-redirect-code": "307"}),
    ("haproxyOrg", {"ssl-redirect": "true", "ssl-redirect-port": "8443", "ssl-redirect-code": "301"}),
    ("haproxyIngress", {"redirect-to": "https://to.example.com", "redirect-to-code": "303"}),
    ("haproxyIngress", {"redirect-from": "from.{host}", "redirect-from-code": "301"}),
    ("haproxyIngress", {"app-root": "/app"}),
)
# What an annotation needs beside it to mean anything.
BESIDE: Final[Mapping[str, Mapping[str, str]]] = {
    "nginx": {
        "auth-type": "basic", "auth-secret": "{users}", "enable-cors": "true", "affinity": "cookie",
        "backend-protocol": "HTTPS", "proxy-ssl-server-name": "on", "limit-rps": "1", "limit-rpm": "1",
        "permanent-redirect": "/", "temporal-redirect": "/", "rewrite-target": "/",
        "auth-url": "http://{service}.{namespace}.svc/", "auth-tls-secret": "{authority}",
    },
    "haproxyOrg": {
        "auth-type": "basic-auth", "auth-secret": "{hashes}", "cors-enable": "true", "check": "true",
        "rate-limit-requests": "1", "request-redirect": "a.example.com",
    },
    "haproxyIngress": {
        "affinity": "cookie", "agent-check-port": "9000", "auth-secret": "{users}", "backend-protocol": "h1-ssl",
        "cors-enable": "true", "hsts": "true", "limit-rps": "1", "redirect-from": "{alias}", "redirect-to": "/",
        "auth-url": "svc://{service}:80/", "auth-tls-secret": "{authority}",
    },
    "haptic": {
        "api-key-secret": "absent", "jwt-audience": "*", "jwt-issuer": "*", "jwt-secret": "absent",
        "outlier-errors": "10", "rate-limit": "5",
    },
}  # fmt: skip

INTERVALS: Final = dict.fromkeys(("health-check-interval", "backend-check-interval", "agent-check-interval"), "5s")
# What the libraries' own tests have no value of.
EXAMPLES: Final[Mapping[str, Mapping[str, str]]] = {
    "nginx": {
        **OF_NGINX,
        "session-cookie-secure": "true",
        "session-cookie-max-age": "60",
        "session-cookie-expires": "60",
        "canary-by-header-pattern": "^(a|b)[0-9]+$",
    },
    "haproxyOrg": OF_ORG,
    "haproxyIngress": {**OF_JCM, "agent-check-send": "ping", "maxqueue-server": "7", **INTERVALS},
    "haptic": {
        "slow-start": "30s",
        "outlier-time": "1m",
        "check-path": "/ok",
        "check-interval": "5s",
        "api-key-header": "X-Key",
        "api-key-client-header": "X-Client",
        "jwt-claims-to-headers": "X-User=sub",
        "deny-lists": "bots, tor",
        "rate-limit-key": "header X-Key",
        "rate-limit-period": "1m",
        "jwt-jwks-url": "https://issuer.example.com/jwks.json",
    },
}


def annotated(
    tenant: Tenant, base: str, vendor: str, values: Mapping[str, Any], at: str = "/", *, own: bool = False
) -> Resource:
    """Return an Ingress with annotations of *vendor*; with *own* it names Secrets and a Service of its own."""
    names = {one: tenant.name(one) if own else one for one in ("users", "hashes", "authority")}
    names |= {"alias": tenant.host(f"alias-{base}"), "namespace": tenant.namespace}
    names["service"] = tenant.name("svc") if own else "app"
    prefix = VENDORS[vendor]["prefix"]

    def filled(value: Any) -> Any:
        return value.format(**names) if isinstance(value, str) and value.count("{") == 1 and "}" in value else value

    texts = {
        prefix + key: value.replace("{namespace}", tenant.namespace).replace("{service}", names["service"])
        if "{service}" in str(value)
        else filled(value)
        for key, value in values.items()
    }
    return ingress(
        tenant.name(base),
        rule(tenant.host(base), path(at, names["service"]), path("/x", names["service"], kind="Exact")),
        namespace=tenant.namespace,
        age=tenant.age,
        annotations=texts,
        tls=[{"hosts": [tenant.host(base)], "secretName": "pair"}],
    )


def _own(tenant: Tenant) -> list[Resource]:
    names = (tenant.name("users"), tenant.name("hashes"), tenant.name("authority"))
    return [
        service(tenant.name("svc"), namespace=tenant.namespace),
        endpoint_slice(tenant.name("svc"), endpoint("10.0.2.1"), ports=8080, namespace=tenant.namespace),
        *secrets(tenant.namespace, *names),
    ]


def _nginx(tenant: Tenant) -> list[Resource]:
    return [annotated(tenant, "nginx", "nginx", OF_NGINX, "/n(/|$)(.*)", own=True), *_own(tenant)]


def _canary(tenant: Tenant) -> list[Resource]:
    main = ingress(
        tenant.name("main"),
        rule(tenant.host("main"), path("/a", tenant.name("svc")), path("/b", tenant.name("svc"))),
        namespace=tenant.namespace,
        age=tenant.age,
    )
    canary = annotated(
        tenant, "main", "nginx",
        {"canary": "true", "canary-weight": "5", "canary-weight-total": "200", "canary-by-header": "X-C",
         "canary-by-header-value": "v", "canary-by-cookie": "c"},
        "/a", own=True,
    )  # fmt: skip
    canary["metadata"]["name"] = tenant.name("canary")
    del canary["spec"]["tls"]
    return [main, canary, *_own(tenant)[:2]]


def _org(tenant: Tenant) -> list[Resource]:
    return [annotated(tenant, "org", "haproxyOrg", OF_ORG, own=True), *_own(tenant)]


def _jcm(tenant: Tenant) -> list[Resource]:
    return [annotated(tenant, "jcm", "haproxyIngress", OF_JCM, own=True), *_own(tenant)]


def _redirects(tenant: Tenant) -> list[Resource]:
    """An Ingress for each redirect of a library; those for all requests of a host are the only ones of theirs."""
    host = tenant.host("redirect")
    found = []
    for number, (vendor, values) in enumerate(REDIRECTS):
        texts = {VENDORS[vendor]["prefix"] + key: value.replace("{host}", host) for key, value in values.items()}
        own: dict[str, Any] = {"namespace": tenant.namespace, "age": tenant.age, "annotations": texts}
        name, at = f"{tenant.name('redirect')}-{number}", f"r{number}.{host}"
        found.append(ingress(name, rule(at, path("/", "app")), **own))
    plain = ingress(
        tenant.name("redirect"),
        rule(host, path("/", "app")),
        rule(f"*.{host}", path("/", "app")),
        namespace=tenant.namespace,
        age=tenant.age,
    )
    return [plain, *found]


def _clients(tenant: Tenant) -> list[Resource]:
    return [
        *(annotated(tenant, f"clients-{vendor.lower()}", vendor, CLIENTS[vendor], own=True) for vendor in CLIENTS),
        *_own(tenant),
    ]


ANNOTATION_SAMPLES: Final = (
    Sample("nginx", _nginx, 100),
    Sample("canary", _canary, 40),
    Sample("org", _org, 100),
    Sample("jcm", _jcm, 100),
    Sample("redirects", _redirects, 20),
    Sample("clients", _clients, 40),
)
