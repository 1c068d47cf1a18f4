"""Settings that say where HAProxy may connect: what they no longer permit ends, also of objects that are rejected."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.libraries.tenants.tenants import HI, NGINX
from tests.support.components.succession import Succession
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "haptic-annotations", "nginx-annotations", "haproxy-ingress-annotations")
BROKEN = {NGINX + "no-such-annotation": "yes"}
EXTERNAL: dict[str, Any] = {"externalNames": ["*.example.net"], "externalNameDeniedNetworks": ["10.0.0.0/8"]}
TWO_NETWORKS = ["10.0.0.0/8", "192.168.0.0/16"]
DENY_LISTS: dict[str, Any] = {"denyLists": {"bots": "http://lists.test/bots"}, "denyListsExempt": ["10.0.0.0/8"]}


def tenant(namespace: str, annotations: dict[str, str], *, external: str = "", age: int = 1) -> list[Resource]:
    """Return an Ingress and its Service."""
    kind = {"type": "ExternalName", "externalName": external} if external else {}
    return [
        ingress(
            "web", rule(f"{namespace}.test", path("/", "web")), namespace=namespace, annotations=annotations, age=age
        ),
        service("web", namespace=namespace, **kind),
        endpoint_slice("web", endpoint("10.0.0.1"), ports=80, namespace=namespace),
    ]


def broken(objects: list[Resource]) -> Resource:
    """Return the Ingress of *objects* with an annotation that rejects it."""
    found = objects[0]
    metadata = {**found["metadata"], "annotations": {**found["metadata"]["annotations"], **BROKEN}}
    return {**found, "metadata": {**metadata, "resourceVersion": "2"}}


def everything(rendered: Rendered) -> str:
    return "".join(f"{path}\n{text.text}" for path, text in sorted(rendered.texts.items()))


@pytest.mark.parametrize("is_broken", [False, True])
@pytest.mark.parametrize(
    ("before", "after", "annotations", "external", "place"),
    [
        (EXTERNAL, {"externalNames": []}, {NGINX + "proxy-body-size": "1m"}, "api.example.net", "api.example.net"),
        (EXTERNAL, {"externalNames": ["b.test"]}, {NGINX + "proxy-body-size": "1m"}, "api.example.net", "example.net"),
        ({"externalAuthHosts": ["10.9.9.9"]}, {}, {NGINX + "auth-url": "http://10.9.9.9/x"}, "", "10.9.9.9"),
        (
            {"agentCheckAddresses": ["10.8.0.0/16"]},
            {},
            {HI + "agent-check-port": "80", HI + "agent-check-addr": "10.8.0.1"},
            "",
            "10.8.0.1",
        ),
    ],
)
def test_haproxy_no_longer_connects_to_a_place_that_the_administrator_withdraws(
    before: dict[str, Any],
    after: dict[str, Any],
    annotations: dict[str, str],
    external: str,
    place: str,
    is_broken: bool,
) -> None:
    objects = tenant("tenant", annotations, external=external)
    controller = Succession(LIBRARIES, **before)
    assert place in everything(controller.render(*objects, *tenant("other", {NGINX + "proxy-body-size": "1m"})))
    if is_broken:
        assert place in everything(controller.render(broken(objects)))

    assert place not in everything(
        controller.configure(**{**before, "externalAuthHosts": [], "agentCheckAddresses": [], **after})
    )


def test_a_rejected_ingress_keeps_no_changed_list_of_networks_from_others() -> None:
    evil, shop = (
        tenant(name, {NGINX + "proxy-body-size": "1m"}, external="api.example.net") for name in ("evil", "shop")
    )
    controller = Succession(LIBRARIES, **EXTERNAL)
    controller.render(*evil, *shop)
    controller.render(broken(evil))

    rendered = controller.configure(**{**EXTERNAL, "externalNameDeniedNetworks": TWO_NETWORKS})

    assert rendered.texts["general/external-name-denied.list"].text.split() == TWO_NETWORKS
    assert [str(one.subject) for one in rendered.rejections] == ["Ingress evil/web"]
    assert "do-resolve" not in rendered.text.split("backend evil_web_web_80")[-1].split("backend ")[0]


def test_a_rejected_ingress_keeps_no_changed_exemption_of_deny_lists_from_others() -> None:
    evil, shop = (tenant(name, {"haptic-trio/deny-lists": "bots"}) for name in ("evil", "shop"))
    controller = Succession(LIBRARIES, **DENY_LISTS)
    controller.render(*evil, *shop)
    controller.render(broken(evil))

    rendered = controller.configure(**{**DENY_LISTS, "denyListsExempt": TWO_NETWORKS})

    assert rendered.texts["general/deny-lists-exempt.list"].text.split() == TWO_NETWORKS
    # The last good version reads the present list, too.
    assert [(str(one.subject), one.has_fallback) for one in rendered.rejections] == [("Ingress evil/web", True)]


@pytest.mark.parametrize("is_broken", [False, True])
def test_a_deny_list_can_be_removed_while_an_ingress_uses_it(is_broken: bool) -> None:
    objects = tenant("tenant", {"haptic-trio/deny-lists": "bots"})
    controller = Succession(LIBRARIES, **DENY_LISTS)
    controller.render(*objects, *tenant("other", {NGINX + "proxy-body-size": "1m"}))
    if is_broken:
        controller.render(broken(objects))

    rendered = controller.configure()

    assert "deny-list-bots.map" not in rendered.text
    assert "tenant.test|/ no-route" in rendered.texts["maps/path-prefix.map"].text


@pytest.mark.parametrize(
    ("settings", "host"),
    [({"hostOwnership": "namespace"}, "shop.test"), ({"catchAllNamespaces": ["shop"]}, "*")],
)
def test_a_rejected_ingress_keeps_no_path_that_the_settings_for_hosts_give_to_others(
    settings: dict[str, Any], host: str
) -> None:
    name = None if host == "*" else host
    evil = ingress("evil", rule(name, path("/login", "web")), namespace="evil", annotations={}, age=9)
    evil["metadata"]["annotations"] = {NGINX + "proxy-body-size": "1m"}
    controller = Succession(LIBRARIES)
    controller.render(evil, *tenant("shop", {NGINX + "proxy-body-size": "1m"}))
    assert f"{host}|/login" in controller.render(broken([evil])).texts["maps/path-prefix.map"].text

    assert f"{host}|/login" not in controller.configure(**settings).texts["maps/path-prefix.map"].text


def test_an_ingress_that_is_rejected_keeps_its_good_version_when_other_settings_change() -> None:
    objects = tenant("tenant", {NGINX + "auth-url": "http://10.9.9.9/x"})
    controller = Succession(LIBRARIES, externalAuthHosts=["10.9.9.9"])
    controller.render(*objects)
    controller.render(broken(objects))

    for settings in ({"maxconn": 7}, {"maxconn": 8, "externalNames": ["b.test"]}):
        rendered = controller.configure(externalAuthHosts=["10.9.9.9"], **settings)
        assert "10.9.9.9" in everything(rendered)
        assert {one.has_fallback for one in rendered.rejections} == {True}
