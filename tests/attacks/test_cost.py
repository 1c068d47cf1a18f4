"""The cost of a Gateway API object, and of long lists in an Ingress, grows no faster than their size.

`tests/libraries/rendering/test_linear_cost.py` covers the paths, hosts and annotations of Ingresses.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.pipeline.render import Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.attacks.inputs.annotation_samples import VENDORS
from tests.attacks.inputs.mutations import tenant_of
from tests.attacks.inputs.samples import shared
from tests.attacks.inputs.tenants import cluster
from tests.bad_inputs.world import HASH, LIBRARIES, secret, stores_of
from tests.support.components.rendering import library_config
from tests.support.kubernetes import ingress, path, rule
from tests.support.work import Work

SIZES: Final = (20, 40, 60)
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
    return [TENANT.made("Gateway", "big", spec={"gatewayClassName": "haptic", "listeners": _listeners(number)}), *more]


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


class Growth:
    """A small cluster, and what one more tenant's objects cost in it."""

    def __init__(self) -> None:
        self._config = library_config(*LIBRARIES)
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
        self._put(objects)
        with Work() as work:
            self._renderer.render_here(self._stores)
        for store, one in self._places(objects):
            store.delete(ref_of(one))
        self._renderer.render_here(self._stores)
        return work.calls


@pytest.fixture(scope="module")
def growth() -> Growth:
    return Growth()


@pytest.mark.slow
@pytest.mark.parametrize("name", OBJECTS)
def test_cost_is_linear_in_the_size_of_the_object(growth: Growth, name: str) -> None:
    # What is compiled or remembered once is so before.
    growth.cost(OBJECTS[name](SIZES[0]))
    costs = [growth.cost(OBJECTS[name](size)) for size in SIZES]

    # What is linear grows by as much from each size to the next; the allowance is for what is sorted.
    assert costs[2] - 2 * costs[1] + costs[0] <= 0.02 * costs[1], costs
