"""However many routes share a Gateway and a Service, a change renders few fragments and loses nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from haptic_trio.gateway.routes.attached import AttachedRoutes
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Renderer
from haptic_trio.status.gateway import RouteStatus
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, grant, made, route, rule, service
from tests.libraries.gateway.test_gateway import Site

COUNT = 300
HTTP = {"name": "http", "port": 80, "protocol": "HTTP"}


def labelled(one: Resource, **labels: str) -> Resource:
    """Return *one* with *labels*, an annotation and a finalizer."""
    more = {"labels": labels, "annotations": {"a": "b"}, "finalizers": ["c"]}
    return {**one, "metadata": {**one["metadata"], **more}}


def numbered(number: int, *more: dict[str, Any], **fields: Any) -> Resource:
    """Return a route to the Gateway's listener `http` with a host of its own, and *more* rules."""
    parents = [{"name": "gw", "sectionName": "http"}]
    return route(f"r{number}", rule("/"), *more, hostnames=[f"h{number}.test"], parents=parents, **fields)


def specified(spec: dict[str, Any], *ports: dict[str, Any]) -> Resource:
    """Return the Service `app` with *spec* and *ports* beside its own."""
    return made("Service", "app", version="v1", spec={"ports": [{"port": 80}, *ports], **spec})


def slices(address: str) -> Resource:
    """Return the endpoints of the Service `app`."""
    found = made(
        "EndpointSlice",
        "app-1",
        version="discovery.k8s.io/v1",
        addressType="IPv4",
        ports=[{"name": "", "port": 8080}],
        endpoints=[{"addresses": [address]}],
    )
    found["metadata"]["labels"] = {"kubernetes.io/service-name": "app"}
    return found


class Shared(Site):
    """Many routes to one Gateway and one Service."""

    def __init__(self) -> None:
        super().__init__()
        self.put(made("Namespace", "web", namespace="", version="v1"))
        self.put(*(numbered(number) for number in range(COUNT)))
        self.render()


@pytest.fixture(scope="module")
def shared() -> Shared:
    return Shared()


@pytest.mark.parametrize(
    ("change", "most"),
    [
        pytest.param(lambda: slices("10.0.0.2"), 1, id="endpoint"),
        pytest.param(lambda: labelled(service(), a="b"), 1, id="label of the Service"),
        pytest.param(lambda: specified({"clusterIP": "1.2.3.4"}), 1, id="another part of the Service"),
        pytest.param(lambda: specified({}, {"port": 81, "name": "b"}), 1, id="another port of the Service"),
        pytest.param(lambda: labelled(gateway(), a="b"), 2, id="label of the Gateway"),
        # The one route that is for all listeners has to be looked at again.
        pytest.param(lambda: gateway("gw", HTTP, {**HTTP, "name": "more", "port": 81}), 10, id="another listener"),
        pytest.param(lambda: gateway("gw", HTTP, addresses=[{"value": "::1"}]), 8, id="another part of the Gateway"),
        pytest.param(lambda: {**gateway_class(), "status": {"conditions": [{"type": "Accepted"}]}}, 0,
                     id="status of the class"),
        pytest.param(lambda: labelled(made("Namespace", "web", namespace="", version="v1"), a="b"), 0,
                     id="label of the Namespace"),
        pytest.param(lambda: numbered(7, rule("/new")), 3, id="route"),
        pytest.param(lambda: numbered(8, rule("/new", retry={"codes": [503]})), 4, id="route that retries"),
        pytest.param(lambda: numbered(COUNT), 3, id="new route"),
    ],
)  # fmt: skip
def test_what_many_share_costs_no_more_than_what_one_has_alone(
    shared: Shared, change: Callable[[], Resource], most: int
) -> None:
    shared.put(change())

    assert shared.render().fragments_rendered <= most


def test_the_result_of_all_changes_is_that_of_a_full_render(shared: Shared) -> None:
    compare(shared)


def compare(site: Site) -> None:
    """See that the output equals that of a full render."""
    rendered, fresh = site.render(), Renderer(site.config).render_here(site.stores)
    assert {path: text.text for path, text in rendered.texts.items()} == {
        path: text.text for path, text in fresh.texts.items()
    }
    assert rendered.files == fresh.files
    assert rendered.rejections == fresh.rejections
    assert rendered.warnings == fresh.warnings


NAMES = st.sampled_from("ab")
SPACES = st.sampled_from(["web", "other"])
SELECTING = {"namespaces": {"from": "Selector", "selector": {"matchLabels": {"in": "yes"}}}}
LISTENERS = st.lists(
    st.sampled_from([
        HTTP,
        {**HTTP, "name": "all", "port": 81, "allowedRoutes": {"namespaces": {"from": "All"}}},
        {**HTTP, "name": "some", "port": 82, "allowedRoutes": SELECTING},
        {**HTTP, "name": "host", "hostname": "*.a.test"},
        {"name": "tls", "port": 443, "protocol": "TLS", "tls": {"mode": "Passthrough"}},
        {"name": "tcp", "port": 90, "protocol": "TCP", "allowedRoutes": {"namespaces": {"from": "All"}}},
    ]),
    min_size=1, max_size=4, unique_by=lambda listener: str(listener["name"]),
)  # fmt: skip
TO_GATEWAYS = [{"name": "gw"}, {"name": "gw", "namespace": "web"}, {"name": "gw", "sectionName": "some"}]
PARENTS = st.sampled_from([*TO_GATEWAYS, {"name": "set", "kind": "ListenerSet"}, {"name": "gw", "port": 81}])
BACKENDS = st.fixed_dictionaries(
    {"name": st.sampled_from(["app", "more"]), "port": st.sampled_from([80, 81])}, optional={"namespace": SPACES}
)
MIRROR = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "more", "port": 81}}}
RULES = st.lists(
    st.fixed_dictionaries(
        {"backendRefs": st.lists(BACKENDS, min_size=1, max_size=2)},
        optional={
            "retry": st.sampled_from([{"codes": [500]}, {"attempts": 2}, {"codes": [999]}]),
            "matches": st.sampled_from([[{"path": {"type": "PathPrefix", "value": "/x"}}], [{"method": "GET"}]]),
            "filters": st.sampled_from([[MIRROR], [{"type": "URLRewrite", "urlRewrite": {"hostname": "a b"}}]]),
        },
    ),
    min_size=1, max_size=2,
)  # fmt: skip


@st.composite
def routes(draw: st.DrawFn) -> Resource:
    """Return some route."""
    kind = draw(st.sampled_from(["HTTPRoute", "HTTPRoute", "GRPCRoute", "TLSRoute", "TCPRoute"]))
    rules = draw(RULES)
    if kind != "HTTPRoute":
        rules = [{"backendRefs": one["backendRefs"]} for one in rules]
    hostnames = [] if kind == "TCPRoute" else draw(st.sampled_from([[], ["x.a.test"], ["*.a.test"], ["b.test"]]))
    age = draw(st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]))
    more = {"kind": kind, "parents": [draw(PARENTS)], "created": age, "namespace": draw(SPACES)}
    return route(draw(NAMES), *rules, hostnames=hostnames, **more)


def listener_set(listeners: list[dict[str, Any]]) -> Resource:
    """Return the set `set` of the Gateway `gw`."""
    moved = [{**listener, "port": listener["port"] + 1_000} for listener in listeners]
    return made("ListenerSet", "set", spec={"parentRef": {"name": "gw"}, "listeners": moved})


PORTS = st.sampled_from([{}, {"port": 81}, {"appProtocol": "kubernetes.io/h2c"}, {"appProtocol": "kubernetes.io/z"}])
OBJECTS = st.one_of(
    routes(),
    routes(),
    routes(),
    LISTENERS.map(lambda found: gateway("gw", *found, allowedListeners={"namespaces": {"from": "Same"}})),
    LISTENERS.map(listener_set),
    st.sampled_from([gateway_class(), gateway_class("else")]),
    st.builds(lambda name, space, port: service(name, space, **port), st.sampled_from(["app", "more"]), SPACES, PORTS),
    st.builds(lambda kind, name: grant("other", kind=kind, **name), st.sampled_from(["HTTPRoute", "TLSRoute"]),
              st.sampled_from([{}, {"name": "app"}])),
    st.builds(lambda name, value: labelled(made("Namespace", name, namespace="", version="v1"), **{"in": value}),
              SPACES, st.sampled_from(["yes", "no"])),
)  # fmt: skip


class Reporter:
    """Who says what statuses are to be, and is asked again and again."""

    def __init__(self, site: Site) -> None:
        self._stores = site.stores
        self._sources = [RouteStatus(site.stores, CONTROLLER, kind=kind, clock=str) for kind in ROUTE_KINDS.values()]
        self._attached = AttachedRoutes(site.stores, CONTROLLER)

    def say(self) -> list[Any]:
        """Return the status of each route, and how many there are for each listener."""
        statuses = [source.wanted(one) for source in self._sources for one in self._stores[source.store].list()]
        owners = [*self._stores["gateways"].list(), *self._stores["listenerSets"].list()]
        return [*statuses, *({key: n for key, n in self._attached.counts(one).items() if n} for one in owners)]


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.lists(st.tuples(OBJECTS, st.booleans(), st.booleans()), min_size=3, max_size=12))
def test_any_changes_give_the_result_of_a_fresh_resolution(changes: list[tuple[Resource, bool, bool]]) -> None:
    site = Site()
    site.put(gateway("gw", *({**HTTP, "name": name, "port": port} for name, port in (("http", 80), ("some", 82)))))
    site.render()
    teller = Reporter(site)
    for one, is_there, is_looked_at in changes:
        if is_there:
            site.put(one)
        else:
            site.remove(one)
        if is_looked_at:
            site.render()
            assert teller.say() == Reporter(site).say()
    compare(site)
    assert teller.say() == Reporter(site).say()
