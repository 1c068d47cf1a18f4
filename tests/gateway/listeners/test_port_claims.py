"""Ports of a Gateway that is served by its last good version: those that belong to others by now."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.objects import gateway, gateway_class, made
from tests.gateway.serving import Authority
from tests.support.components.succession import Succession
from tests.support.kubernetes import AGES, tls_secret

LIBRARIES = ("base", "ssl", "gateway")
LIMITS = {"max_namespace_certificate_lines": 4}
SECRET = tls_secret("tls", *Authority().issue("a.test"), namespace="evil")


def owned(namespace: str, age: int, *ports: int, is_broken: bool = False, **more: Any) -> Resource:
    """Return the Gateway of *namespace*; a broken one has too many certificates."""
    listeners = [{"name": f"http-{port}", "port": port, "protocol": "HTTP"} for port in ports]
    if is_broken:
        tls = {"certificateRefs": [{"name": "tls"}]}
        listeners += [
            {"name": f"tls-{number}", "port": 7443, "protocol": "HTTPS", "hostname": f"h{number}.test", "tls": tls}
            for number in range(5)
        ]
    found = gateway("gw", *listeners)
    found["metadata"] |= {
        "namespace": namespace,
        "creationTimestamp": AGES.format(age),
        "resourceVersion": "2" if is_broken else "1",
        "uid": namespace,
        **more,
    }
    return found


def frontends_at(rendered: Rendered, port: int) -> list[str]:
    sections = rendered.text.split("\nfrontend ")[1:]
    return [section.split()[0] for section in sections if f"    bind *:{port}\n" in section]


def test_a_rejected_gateway_leaves_its_port_to_an_older_one_that_claims_it() -> None:
    controller = Succession(LIBRARIES, limits=LIMITS)
    controller.render(gateway_class(), SECRET, owned("evil", 5, 9999), owned("shop", 1, 8888))
    # Its last good version is served, whatever the present one has.
    rendered = controller.render(owned("evil", 5, 9998, is_broken=True))
    assert frontends_at(rendered, 9999) == ["gateway-port::evil_gw_9999"]

    rendered = controller.render(owned("shop", 1, 8888, 9999, resourceVersion="2"))

    assert frontends_at(rendered, 9999) == ["gateway-port::shop_gw_9999"]
    assert [str(one.subject) for one in rendered.rejections] == ["Gateway evil/gw"]
    # Once it is correct, it is served at its other ports.
    rendered = controller.render(owned("evil", 5, 9997, 9999, resourceVersion="3"))
    assert (frontends_at(rendered, 9999), frontends_at(rendered, 9997), rendered.rejections) == (
        ["gateway-port::shop_gw_9999"],
        ["gateway-port::evil_gw_9997"],
        (),
    )


def test_a_port_of_a_listener_set_counts_with_its_age_while_its_gateway_is_rejected() -> None:
    def shared(version: str, *, is_broken: bool = False) -> Resource:
        found = owned("evil", 1, 8888, is_broken=is_broken, resourceVersion=version)
        return {**found, "spec": {**found["spec"], "allowedListeners": {"namespaces": {"from": "All"}}}}

    listener = {"name": "http", "port": 9999, "protocol": "HTTP"}
    spec = {"parentRef": {"name": "gw", "namespace": "evil"}, "listeners": [listener]}
    added = made("ListenerSet", "set", namespace="tenant", spec=spec)
    added["metadata"] |= {"creationTimestamp": AGES.format(5), "resourceVersion": "1", "uid": "set"}
    controller = Succession(LIBRARIES, limits=LIMITS)
    controller.render(gateway_class(), SECRET, added, shared("1"), owned("shop", 3, 7777))
    controller.render(shared("2", is_broken=True))

    rendered = controller.render(owned("shop", 3, 7777, 9999, resourceVersion="2"))
    assert frontends_at(rendered, 9999) == ["gateway-port::shop_gw_9999"]
    assert frontends_at(rendered, 8888) == ["gateway-port::evil_gw_8888"]
    assert [(str(one.subject), one.has_fallback) for one in rendered.rejections] == [("Gateway evil/gw", True)]


@pytest.mark.parametrize("settings", [{"httpPort": 9999}, {"gatewayReservedPorts": [9999]}])
def test_a_rejected_gateway_leaves_its_port_to_the_administrator(settings: dict[str, Any]) -> None:
    controller = Succession(LIBRARIES, limits=LIMITS)
    controller.render(gateway_class(), SECRET, owned("evil", 1, 9999))
    controller.render(owned("evil", 1, 9998, is_broken=True))

    assert frontends_at(controller.configure(**settings), 9999) == (["http"] if "httpPort" in settings else [])


def test_a_rejected_gateway_keeps_no_changed_exemption_of_rate_limits_from_others() -> None:
    limit: dict[str, Any] = {"annotations": {"haptic-trio/rate-limit": "5"}}
    controller = Succession(LIBRARIES, limits=LIMITS, rateLimitExempt=["10.0.0.0/8"])
    controller.render(gateway_class(), SECRET, owned("evil", 1, 9999, **limit), owned("shop", 5, 8888, **limit))
    controller.render(owned("evil", 1, 9999, is_broken=True, **limit))

    rendered = controller.configure(rateLimitExempt=["192.0.2.0/24"])

    assert rendered.texts["general/rate-limit-exempt.list"].text == "192.0.2.0/24\n"
    assert rendered.text.count("general/rate-limit-exempt.list") == 2
    assert [(str(one.subject), one.has_fallback) for one in rendered.rejections] == [("Gateway evil/gw", True)]
