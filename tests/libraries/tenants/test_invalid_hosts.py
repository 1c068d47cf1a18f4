"""Host names that the API server accepts and HAProxy must not get: they cost no object of another owner."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.objects import gateway_class, made
from tests.gateway.objects import route as http_route
from tests.gateway.objects import rule as route_rule
from tests.libraries.tenants.tenants import EVIL, VICTIM, secret
from tests.support.components.succession import Succession
from tests.support.kubernetes import service

LABEL = "x" * 64
"""One character more than a label may have."""
GATEWAY = ("base", "ssl", "gateway")
HTTP, TLS = 9000, 9001
SHARED = {"namespaces": {"from": "All"}}
SECRETS = (secret("victim", "tls", "*.test", by=VICTIM), secret("attacker", "tls", "*.test", by=EVIL))


def outcome(rendered: Rendered) -> tuple[dict[str, str], dict[str, str]]:
    """Return the rejections, and all that HAProxy gets."""
    texts = {path: text.text for path, text in rendered.texts.items()}
    texts |= {path: file.content.decode() for path, file in rendered.files.items()}
    return {str(one.subject): one.problem.message for one in rendered.rejections}, texts


def listeners(prefix: str, *hosts: str) -> list[dict[str, Any]]:
    """Return listeners for HTTP and for HTTPS for each of *hosts*."""
    tls = {"certificateRefs": [{"name": "tls"}]}
    kinds: list[dict[str, Any]] = [
        {"port": HTTP, "protocol": "HTTP"},
        {"port": TLS, "protocol": "HTTPS", "tls": tls},
    ]
    return [
        {"name": f"{prefix}{number}-{one['port']}", "hostname": host, **one}
        for number, host in enumerate(hosts)
        for one in kinds
    ]


def passthrough(host: str) -> dict[str, Any]:
    return {"name": "through", "hostname": host, "port": TLS, "protocol": "TLS", "tls": {"mode": "Passthrough"}}


def gateway(name: str, namespace: str, *found: dict[str, Any]) -> Resource:
    spec = {"gatewayClassName": "haptic", "listeners": list(found), "allowedListeners": SHARED}
    return made("Gateway", name, namespace=namespace, spec=spec)


def listener_set(*found: dict[str, Any]) -> Resource:
    spec = {"parentRef": {"name": "shared", "namespace": "victim"}, "listeners": list(found)}
    return made("ListenerSet", "set", namespace="attacker", spec=spec)


def objects_of(*added: Resource) -> list[Resource]:
    routes = [
        http_route("shop", route_rule("/"), namespace="victim", parents=[{"name": "shared"}]),
        http_route("evil", route_rule("/"), namespace="attacker", parents=[{"kind": "ListenerSet", "name": "set"}]),
    ]
    services = [service("app", namespace=namespace) for namespace in ("attacker", "victim")]
    return [gateway_class(), *SECRETS, *services, *routes, *added]


BAD = [pytest.param(f"{LABEL}.test", id="label"), pytest.param(f"*.{LABEL}.test", id="wildcard")]


@pytest.mark.parametrize("host", BAD)
def test_a_listener_with_an_invalid_host_is_not_served_and_costs_no_other_listener_of_the_gateway(host: str) -> None:
    own, theirs = listeners("own", "shop.test"), listeners("set", "good.test")
    bad = [*listeners("bad", host), passthrough(host)]
    objects = objects_of(gateway("shared", "victim", *own), listener_set(*theirs))
    controller = Succession(GATEWAY)
    expected = outcome(controller.render(*objects))
    assert expected[0] == {}
    served = expected[1]["maps/gateway-listeners.map"]
    for port in (HTTP, TLS):
        assert f"gateway_victim_shared_{port}|shop.test" in served
        assert f"gateway_victim_shared_{port}|good.test" in served

    # While the last good version could be served, and without one.
    assert outcome(controller.render(listener_set(*theirs, *bad))) == expected
    assert outcome(Succession(GATEWAY).render(*objects, listener_set(*bad, *theirs))) == expected
    # Listeners of the Gateway itself, and of one that has no others.
    alone = gateway("alone", "attacker", {"name": "http", "hostname": host, "port": 9002, "protocol": "HTTP"})
    assert outcome(Succession(GATEWAY).render(*objects, gateway("shared", "victim", *bad, *own), alone)) == expected
