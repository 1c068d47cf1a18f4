"""Last good versions whose class is gone: they are given up, and what the rejected version has is closed."""

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.listeners.test_port_claims import LIMITS, SECRET, frontends_at, owned
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made
from tests.gateway.objects import rule as gateway_rule
from tests.gateway.objects import service as gateway_service
from tests.gateway.routes.test_rejected import ALL, CLOSED, EVIL, broken, entries_in, versioned
from tests.gateway.routes.test_rejected import owned as owned_route
from tests.gateway.serving import endpoints
from tests.libraries.tenants.test_former_references import GATEWAY, fallbacks
from tests.support.components.succession import Succession
from tests.support.kubernetes import ingress, ingress_class, path, rule, service

OWN = ingress_class("other", "haptic-trio/ingress-controller")
FOREIGN = versioned(ingress_class("other", "example.com/controller"), 2)
PATHS = "maps/path-prefix.map"


def lines_in(text: str) -> set[str]:
    return set(text.splitlines()) - {""}


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_paths_of_a_rejected_ingress_are_closed_when_the_class_of_its_good_version_is_gone(
    is_deleted: bool, is_paused: bool
) -> None:
    good = ingress("web", rule("a.test", path("/", "web"), path("/a", "web")), namespace="shop", ingress_class="other")
    rejected = ingress("web", rule("a.test", path("/a", "web"), path("/b//c", "web")), namespace="shop")
    controller = Succession(("base", "ssl", "ingress"))
    controller.render(OWN, good, service("web", namespace="shop"), service("web", namespace="evil"))
    if is_paused:
        controller.pause("Ingress", "shop", "web")
    assert fallbacks(controller.render(versioned(rejected, 2))) == {("Ingress shop/web", True)}

    if is_deleted:
        controller.delete(OWN)
    rendered = controller.render(*([] if is_deleted else [FOREIGN]))

    assert lines_in(rendered.texts[PATHS].text) == {"a.test|/a/ no-route"}
    assert fallbacks(rendered) == {("Ingress shop/web", False)}
    # Others have what belonged to the former version alone, and it does not return.
    younger = ingress("web", rule("a.test", path("/", "web"), path("/a", "web")), namespace="evil", age=9)
    for rendered in (controller.render(younger), controller.render(versioned(OWN, 3))):
        assert lines_in(rendered.texts[PATHS].text) == {"a.test|/a/ no-route", "a.test|/ evil_web_80"}


def shared(name: str, class_name: str, port: int) -> Resource:
    """Return a Gateway that all namespaces may use."""
    found = gateway(name, {"name": "http", "port": port, "protocol": "HTTP", "allowedRoutes": ALL})
    found["metadata"]["namespace"] = "infra"
    found["spec"]["gatewayClassName"] = class_name
    return found


@pytest.mark.parametrize("gone", ["GatewayClass", "Gateway"])
def test_a_rejected_route_keeps_its_paths_when_its_good_version_is_attached_to_nothing(gone: str) -> None:
    other_class = made("GatewayClass", "other", namespace="", spec={"controllerName": CONTROLLER})
    other = shared("other", "other", 8889)
    good = owned_route("victim", 5, gateway_rule("/", to="app"), parents=[{"name": "other", "namespace": "infra"}])
    services = [gateway_service("app", namespace=namespace) for namespace in ("victim", "evil")]
    controller = Succession(("base", "ssl", "gateway"))
    infra = [gateway_class(), other_class, shared("gw", "haptic", 8888), other]
    controller.render(*infra, *services, endpoints("app", ("", 80)), good)
    controller.render(owned_route("victim", 5, broken("/"), version=2))

    controller.delete({"Gateway": other, "GatewayClass": other_class}[gone])

    assert entries_in(controller.render()) == {"a.test|/": CLOSED}
    younger = owned_route("evil", 9, gateway_rule("/", "/x", to="app"))
    assert entries_in(controller.render(younger)) == {"a.test|/": CLOSED, "a.test|/x/": EVIL}


def test_a_paused_gateway_has_no_port_when_its_class_is_gone() -> None:
    other = made("GatewayClass", "other", namespace="", spec={"controllerName": CONTROLLER})
    good, rejected = owned("evil", 5, 9999), owned("evil", 5, 9999, is_broken=True)
    good["spec"]["gatewayClassName"] = "other"
    controller = Succession(GATEWAY, limits=LIMITS)
    controller.render(gateway_class(), other, SECRET, good)
    controller.pause("Gateway", "evil", "gw")
    assert frontends_at(controller.render(rejected), 9999) == ["gateway-port::evil_gw_9999"]

    controller.delete(other)

    assert frontends_at(controller.render(), 9999) == []
