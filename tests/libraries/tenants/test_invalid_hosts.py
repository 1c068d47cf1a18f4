"""Host names that the API server accepts and HAProxy must not get: they cost no object of another owner."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.objects import gateway_class, made
from tests.gateway.objects import route as http_route
from tests.gateway.objects import rule as route_rule
from tests.libraries.tenants.tenants import ALL, EVIL, HI, NGINX, VICTIM, evil, secret, secured, victim
from tests.support.components.succession import Succession
from tests.support.kubernetes import path, rule, service

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
        assert f"gateway-port::victim_shared_{port}|shop.test" in served
        assert f"gateway-port::victim_shared_{port}|good.test" in served

    # While the last good version could be served, and without one.
    assert outcome(controller.render(listener_set(*theirs, *bad))) == expected
    assert outcome(Succession(GATEWAY).render(*objects, listener_set(*bad, *theirs))) == expected
    # Listeners of the Gateway itself, and of one that has no others.
    alone = gateway("alone", "attacker", {"name": "http", "hostname": host, "port": 9002, "protocol": "HTTP"})
    assert outcome(Succession(GATEWAY).render(*objects, gateway("shared", "victim", *bad, *own), alone)) == expected


WILDCARD, DOMAIN = "*.victim.test", "victim.test"
OLDER = rule("attacker.test", path("/", "app"))


@pytest.mark.parametrize("redirects", [True, False])
@pytest.mark.parametrize(
    "older",
    [
        pytest.param(evil(OLDER, annotations={NGINX + "server-alias": f"a_b.{DOMAIN}"}, age=1), id="alias"),
        pytest.param(evil(OLDER, annotations={HI + "redirect-from": f"a_b.{DOMAIN}"}, age=1), id="redirect"),
        pytest.param(evil(OLDER, rule(f"{LABEL}.{DOMAIN}", path("/", "app")), age=1), id="rule"),
        pytest.param(
            evil(OLDER, rule(f"{LABEL}.{DOMAIN}"), tls=secured(f"{LABEL}.{DOMAIN}"), age=1), id="rule without paths"
        ),
    ],
)
def test_an_older_ingress_with_an_invalid_host_costs_no_wildcard_that_covers_it(
    older: Resource, redirects: bool
) -> None:
    wildcard = victim(rule(WILDCARD, path("/", "app")), tls=secured(WILDCARD), age=21)
    certificate = secret("victim", "tls", WILDCARD, by=VICTIM, age=21)
    objects = [service("app", namespace=namespace) for namespace in ("attacker", "victim")]
    objects += [wildcard, certificate, evil(OLDER, rule(f"api.{DOMAIN}", path("/", "app")), name="valid", age=2)]
    controller = Succession(ALL, sslRedirect=redirects)
    controller.render(*objects)

    for rendered in (controller.render(older), Succession(ALL, sslRedirect=redirects).render(*objects, older)):
        rejected, texts = outcome(rendered)
        assert set(rejected) <= {"Ingress attacker/evil"}
        # A valid host of an older Ingress is still excluded.
        assert f"ssl/victim_tls.pem {WILDCARD} !api.{DOMAIN}" in texts["ssl/https.list"].splitlines()
        entries = [f"{WILDCARD} yes", f"-api.{DOMAIN} yes"] if redirects else []
        assert [line for line in texts.get("maps/tls-host.map", "").splitlines() if DOMAIN in line] == entries
