"""Objects of a tenant with a list of any length, and a small cluster that they are rendered in."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, Final

import trustme

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.attacks.inputs.annotation_samples import VENDORS
from tests.attacks.inputs.mutations import tenant_of
from tests.attacks.inputs.samples import shared
from tests.attacks.inputs.tenants import cluster, pair
from tests.bad_inputs.world import HASH, LIBRARIES, secret, stores_of
from tests.gateway.objects import made
from tests.support.components.rendering import library_config
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret
from tests.support.work import Work

NGINX, ORG, JCM = (VENDORS[name]["prefix"] for name in ("nginx", "haproxyOrg", "haproxyIngress"))
TENANT = tenant_of(1)
NAMESPACE = TENANT.namespace


def _ingress(number: int, *, annotations: dict[str, str] | None = None, name: str = "big", **fields: Any) -> Resource:
    paths = [path(f"/p{one}", "app") for one in range(number)]
    return ingress(name, rule("big.attacker.test", *paths), namespace=NAMESPACE, annotations=annotations, **fields)


def _annotated(**annotations: str) -> Resource:
    texts = {f"{_PREFIX[key[:1]]}{key[1:].replace('_', '-')}": value for key, value in annotations.items()}
    return _ingress(1, annotations=texts)


_PREFIX: Final = {"n": NGINX, "o": ORG, "j": JCM}


def _addresses(number: int) -> str:
    return ",".join(f"10.0.{one}.0/24" for one in range(number))


def _route(kind: str = "HTTPRoute", **spec: Any) -> Resource:
    to = [{"name": "app", "port": 80}]
    return TENANT.made(kind, "big", spec={"parentRefs": [{"name": "shared0"}], "rules": [{"backendRefs": to}], **spec})


def _matches(number: int, **match: Any) -> list[dict[str, Any]]:
    return [{"path": {"type": "PathPrefix", "value": f"/m{one}"}, **match} for one in range(number)]


def _rules(number: int) -> list[dict[str, Any]]:
    to = [{"name": "app", "port": 80}]
    return [{"matches": [match], "backendRefs": to} for match in _matches(number)]


def _headers(number: int) -> list[dict[str, Any]]:
    return [{"name": f"x-{one}", "value": "v"} for one in range(number)]


def _filtered(kind: str, field: str, value: Any) -> Resource:
    return _route(rules=[{"backendRefs": [{"name": "app", "port": 80}], "filters": [{"type": kind, field: value}]}])


def _listeners(number: int) -> list[dict[str, Any]]:
    return [
        {"name": f"l{one}", "port": 21_000, "protocol": "HTTP", "hostname": f"l{one}.attacker.test"}
        for one in range(number)
    ]


def _gateway(number: int, *more: Resource) -> list[Resource]:
    same = {"namespaces": {"from": "Same"}}
    spec = {"gatewayClassName": "haptic", "listeners": _listeners(number), "allowedListeners": same}
    return [TENANT.made("Gateway", "big", spec=spec), *more]


def _ports(number: int) -> list[Resource]:
    listeners = [{"name": f"l{one}", "port": 21_000 + one, "protocol": "HTTP"} for one in range(number)]
    gateway = TENANT.made("Gateway", "big", spec={"gatewayClassName": "haptic", "listeners": listeners})
    gateway["metadata"]["annotations"] = {f"haptic-trio/x{one}": "" for one in range(number * 10)}
    return [gateway]


def _canary(number: int, **annotations: str) -> list[Resource]:
    texts = {f"{NGINX}canary": "true", f"{NGINX}canary-weight": "5"}
    texts |= {f"{NGINX}canary-{key.replace('_', '-')}": value for key, value in annotations.items()}
    return [_ingress(number, name="main"), _ingress(number, annotations=texts, name="canary")]


def _users(number: int) -> list[Resource]:
    lines = "\n".join(f"user{one}:{HASH}" for one in range(number))
    return [_annotated(nauth_type="basic", nauth_secret="big"), secret("big", {"auth": lines}, namespace=NAMESPACE)]


OBJECTS: dict[str, Callable[[int], list[Resource]]] = {
    "blocks of TLS": lambda n: [
        _ingress(1, tls=[{"hosts": [f"h{one}.attacker.test"], "secretName": "pair"} for one in range(n)])
    ],
    "paths with an authentication server": lambda n: [
        _ingress(n, annotations={f"{NGINX}auth-url": f"http://app.{NAMESPACE}.svc/"})
    ],
    "paths of a canary by header": lambda n: _canary(n, by_header="X-C", by_header_value="v"),
    "addresses that are denied": lambda n: [_annotated(odeny_list=_addresses(n))],
    "addresses without a limit": lambda n: [_annotated(nlimit_rps="5", nlimit_allowlist=_addresses(n))],
    "headers of haproxy.org": lambda n: [_annotated(orequest_set_header="\n".join(f"X-{one} v" for one in range(n)))],
    "headers of HAProxy Ingress": lambda n: [_annotated(jheaders="\n".join(f"X-{one}: v" for one in range(n)))],
    "hosts that are redirected": lambda n: [
        _annotated(jredirect_from=",".join(f"r{one}.attacker.test" for one in range(n)))
    ],
    "rewrites": lambda n: [_annotated(opath_rewrite="\n".join(f"/a{one}/(.*) /\\1" for one in range(n)))],
    "users": _users,
    "rules of a route": lambda n: [_route(rules=_rules(n))],
    "matches of a route": lambda n: [
        _route(rules=[{"matches": _matches(n), "backendRefs": [{"name": "app", "port": 80}]}])
    ],
    "matches of one path": lambda n: [
        _route(rules=[{"matches": [{"headers": [one]} for one in _headers(n)], "backendRefs": []}])
    ],
    "headers of a match": lambda n: [_route(rules=[{"matches": _matches(1, headers=_headers(n))}])],
    "parameters of a match": lambda n: [_route(rules=[{"matches": _matches(1, queryParams=_headers(n))}])],
    "hosts of a route": lambda n: [_route(hostnames=[f"h{one}.attacker.test" for one in range(n)])],
    "parents of a route": lambda n: [
        _route(parentRefs=[{"name": "shared0", "port": 20_001 + one} for one in range(n)])
    ],
    "backends of a route": lambda n: [
        _route(rules=[{"backendRefs": [{"name": "app", "port": 80, "weight": one + 1} for one in range(n)]}])
    ],
    "headers of a filter": lambda n: [
        _filtered("RequestHeaderModifier", "requestHeaderModifier", {"set": _headers(n)})
    ],
    "origins of a filter": lambda n: [
        _filtered("CORS", "cors", {"allowOrigins": [f"https://o{one}.test" for one in range(n)]})
    ],
    "matches of a GRPCRoute": lambda n: [
        _route("GRPCRoute", rules=[{"matches": [{"method": {"service": f"a.S{one}"}} for one in range(n)]}])
    ],
    "listeners of a Gateway": _gateway,
    "ports and annotations of a Gateway": _ports,
    "listeners with a route to all of them": lambda n: _gateway(n, _route(parentRefs=[{"name": "big1"}])),
    "listeners of a ListenerSet": lambda n: [
        *_gateway(1),
        TENANT.made("ListenerSet", "big", spec={"parentRef": {"name": "big1"}, "listeners": _listeners(n)}),
    ],
    "routes with one path": lambda n: [
        {**_route(hostnames=["same.attacker.test"]), "metadata": {"name": f"r{one}", "namespace": NAMESPACE}}
        for one in range(n)
    ],
    "sources of a grant": lambda n: [
        TENANT.made("ReferenceGrant", "big", spec={
            "from": [
                {"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": f"n{one}"} for one in range(n)
            ],
            "to": [{"group": "", "kind": "Service"}],
        }),
        _route(),
    ],
}  # fmt: skip


POOL: Final = tuple(f"10.1.{number // 250}.{number % 250}" for number in range(500))
"""The addresses of Gateways in the cluster that has any."""


def _secrets(number: int) -> list[Resource]:
    return [tls_secret(f"c{one}", *pair(NAMESPACE), namespace=NAMESPACE, age=20) for one in range(number)]


def _secured(number: int, certificates: int, port: int = 21_000) -> list[dict[str, Any]]:
    tls = {"certificateRefs": [{"name": f"c{one}"} for one in range(certificates)]}
    return [
        {"name": f"s{port}-{one}", "port": port, "protocol": "HTTPS", "hostname": f"s{one}.attacker.test", "tls": tls}
        for one in range(number)
    ]


def _terminating(listeners: list[dict[str, Any]], **spec: Any) -> Resource:
    return TENANT.made("Gateway", "big", spec={"gatewayClassName": "haptic", "listeners": listeners, **spec})


@cache
def _authority(number: int) -> str:
    return trustme.CA(organization_name=f"authority {number}").cert_pem.bytes().decode()


def _authorities(number: int, name: str = "authorities") -> Resource:
    content = "".join(_authority(one) for one in range(number))
    return made("ConfigMap", name, namespace=NAMESPACE, version="v1", data={"ca.crt": content})


def _reference(name: str = "authorities") -> dict[str, str]:
    return {"group": "", "kind": "ConfigMap", "name": name}


def _asking(number: int) -> list[Resource]:
    tls = {"frontend": {"default": {"validation": {"caCertificateRefs": [_reference()]}}}}
    return [_terminating(_secured(4, 4), tls=tls), *_secrets(4), _authorities(number)]


def _per_port(number: int) -> list[Resource]:
    validation = {"validation": {"caCertificateRefs": [_reference()]}}
    ports = [{"port": one, "tls": validation} for one in range(21_000, 21_000 + number)]
    listeners = [one for port in range(21_000, 21_000 + number) for one in _secured(1, 1, port)]
    tls = {"frontend": {"default": {}, "perPort": ports}}
    return [_terminating(listeners, tls=tls), *_secrets(1), _authorities(2)]


def _policy(number: int, targets: int = 1, authorities: int = 1, names: int = 0, endpoints: int = 1) -> list[Resource]:
    """Return a BackendTLSPolicy with lists of these lengths, its targets, and a route to them."""
    services = [f"secure{number}-{one}" for one in range(targets)]
    spec = {
        "targetRefs": [{"group": "", "kind": "Service", "name": one} for one in services],
        "validation": {
            "hostname": "in.test",
            "caCertificateRefs": [_reference(f"ca{one}") for one in range(authorities)],
            "subjectAltNames": [{"type": "Hostname", "hostname": f"n{one}.test"} for one in range(names)],
        },
    }
    route = _route(rules=[{"backendRefs": [{"name": one, "port": 80} for one in services]}])
    return [
        TENANT.made("BackendTLSPolicy", f"big{number}-", spec=spec),
        {**route, "metadata": {**route["metadata"], "name": f"big{number}"}},
        *(_authorities(1, f"ca{one}") for one in range(authorities)),
        *(one for name in services for one in _service(name, endpoints)),
    ]


def _policies(number: int) -> list[Resource]:
    """Return policies with *number* targets, as many for each as an API server accepts."""
    return [one for first in range(0, number, 10) for one in _policy(first, targets=min(10, number - first))]


def _service(name: str, endpoints: int, ports: int = 1) -> list[Resource]:
    named = {f"p{one}": 80 + one for one in range(ports)}
    listed: list[dict[str, Any]] = [{"name": name, "port": port, "protocol": "TCP"} for name, port in named.items()]
    found = [endpoint(f"10.2.{one // 250}.{one % 250}") for one in range(endpoints)]
    return [
        service(name, *listed, namespace=NAMESPACE),
        endpoint_slice(name, *found, ports=named, namespace=NAMESPACE),
    ]


def _served(endpoints: int, *, ports: int = 1, **annotations: str) -> list[Resource]:
    texts = {f"{NGINX}{key.replace('_', '-')}": value for key, value in annotations.items()}
    paths = [path(f"/p{one}", "large", 80 + one) for one in range(ports)]
    web = ingress("big", rule("big.attacker.test", *paths), namespace=NAMESPACE, annotations=texts)
    return [web, *_service("large", endpoints, ports)]


def _verified(endpoints: int, authorities: int) -> list[Resource]:
    content = "".join(_authority(one) for one in range(authorities))
    verifying = partial(_served, proxy_ssl_secret="large", proxy_ssl_verify="on", proxy_ssl_name="a.test")
    found = verifying(endpoints, backend_protocol="HTTPS")
    return [*found, secret("large", {"ca.crt": content}, namespace=NAMESPACE)]


def _layer_4(kind: str, listener: dict[str, Any], **spec: Any) -> list[Resource]:
    parents = [{"name": "big1", "sectionName": listener["name"]}]
    return [_terminating([listener]), TENANT.made(kind, "big", spec={"parentRefs": parents, **spec})]


_PASSTHROUGH: Final = {"name": "pass", "port": 21_000, "protocol": "TLS", "tls": {"mode": "Passthrough"}}
_TCP: Final = {"name": "tcp", "port": 21_000, "protocol": "TCP"}


def _weighted(number: int) -> dict[str, Any]:
    return {"backendRefs": [{"name": "app", "port": 80, "weight": one + 1} for one in range(number)]}


OBJECTS |= {
    "certificates of a listener": lambda n: [_terminating(_secured(1, n)), *_secrets(n)],
    "listeners with certificates": lambda n: [_terminating(_secured(n, 4)), *_secrets(4)],
    "certificates of a ListenerSet": lambda n: [
        *_gateway(1), *_secrets(n),
        TENANT.made("ListenerSet", "big", spec={"parentRef": {"name": "big1"}, "listeners": _secured(2, n, 21_001)}),
    ],
    "authorities of clients": _asking,
    "ports with authorities of clients": _per_port,
    "targets of policies": _policies,
    "authorities of a policy": lambda n: _policy(0, authorities=n),
    "names of a policy": lambda n: _policy(0, names=n),
    "endpoints of a policy": lambda n: _policy(0, endpoints=n),
    "hosts of a TLSRoute": lambda n: _layer_4(
        "TLSRoute", _PASSTHROUGH, hostnames=[f"h{one}.attacker.test" for one in range(n)], rules=[_weighted(1)]
    ),
    "backends of a TLSRoute": lambda n: _layer_4(
        "TLSRoute", _PASSTHROUGH, hostnames=["h.attacker.test"], rules=[_weighted(n)]
    ),
    "backends of a TCPRoute": lambda n: _layer_4("TCPRoute", _TCP, rules=[_weighted(n)]),
    "endpoints of a slice": _served,
    "endpoints with TLS": lambda n: _served(n, backend_protocol="HTTPS"),
    "authorities of endpoints": lambda n: _verified(20, n),
    "ports of a Service": lambda n: _served(2, ports=n),
}  # fmt: skip

POOLED: dict[str, Callable[[int], list[Resource]]] = {
    "addresses of a Gateway": lambda n: [
        _terminating(_secured(4, 4), addresses=[{"value": one} for one in POOL[10 : 10 + n]]), *_secrets(4),
    ],
}  # fmt: skip
"""The same for clusters with a pool of addresses."""


class Growth:
    """A small cluster, and what one more tenant's objects cost in it."""

    def __init__(self, **settings: Any) -> None:
        """*settings* are those of the libraries."""
        self._config = library_config(*LIBRARIES, **settings)
        self._stores = make_stores(self._config)
        self._renderer = Renderer(self._config)
        self._put([*cluster(), *shared(NAMESPACE, 20)])
        self._renderer.render_here(self._stores)

    def _put(self, objects: list[Resource]) -> None:
        for store, one in self._places(objects):
            store.upsert(one)

    def _places(self, objects: list[Resource]) -> Iterator[tuple[Any, Resource]]:
        for one in objects:
            for store in stores_of(self._config, self._stores, one):
                yield store, one

    def cost(self, objects: list[Resource]) -> int:
        """Return the calls that it takes to render *objects*, which are gone afterwards."""
        with Work() as work:
            self.render(objects)
        self._remove(objects)
        return work.calls

    def render(self, objects: list[Resource]) -> Rendered:
        """Return the render with *objects*, which stay."""
        self._put(objects)
        return self._renderer.render_here(self._stores)

    def _remove(self, objects: list[Resource]) -> None:
        for store, one in self._places(objects):
            store.delete(ref_of(one))
        self._renderer.render_here(self._stores)
