"""The last good version of a rejected object: it leads to no address that may be another tenant's by now."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.libraries.tenants.tenants import NGINX
from tests.support.components.succession import Succession
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "nginx-annotations")
OLD, STAYS, NEW = "10.0.0.7", "10.0.0.8", "10.0.0.9"


def slice_of(name: str, *addresses: str, family: str = "IPv4") -> Resource:
    found = endpoint_slice(name, *map(endpoint, addresses), ports=8080, family=family)
    return {**found, "metadata": {**found["metadata"], "resourceVersion": ",".join(addresses)}}


def site(version: int = 1, /, **annotations: str) -> Resource:
    given = {NGINX + name.replace("_", "-"): value for name, value in annotations.items()}
    found = ingress("web", rule("a.test", path("/", "web")), annotations=given)
    return {**found, "metadata": {**found["metadata"], "resourceVersion": str(version)}}


def addresses_in(rendered: Rendered) -> set[str]:
    text = "".join(found.text for found in rendered.texts.values())
    return {address for address in (OLD, STAYS, NEW) if address in text}


@pytest.mark.parametrize(
    "annotations",
    [
        {"proxy_body_size": "1m"},
        {"ssl_passthrough": "true"},
        {"auth_url": "http://web.default.svc:80/check"},
    ],
)
def test_a_good_version_leads_to_present_endpoints_alone(annotations: dict[str, str]) -> None:
    controller = Succession(LIBRARIES)
    controller.render(site(**annotations), service("web"), slice_of("web", OLD, STAYS))
    rendered = controller.render(site(2, no_such_annotation="yes", **annotations))
    assert addresses_in(rendered) == {OLD, STAYS}

    rendered = controller.render(slice_of("web", STAYS))
    assert addresses_in(rendered) == {STAYS}
    assert [one.has_fallback for one in rendered.rejections] == [True] * len(rendered.rejections) != []
    controller.render()
    assert controller.render().changed == {}
    assert addresses_in(controller.configure(maxconn=7)) == {STAYS}
    assert addresses_in(controller.render(slice_of("web"))) == set()
    # The good version itself stays what it is.
    assert addresses_in(controller.render(slice_of("web", OLD))) == {OLD}
    # The present version has the present endpoints.
    rendered = controller.render(site(3, **annotations), slice_of("web", STAYS, NEW))
    assert (addresses_in(rendered), rendered.rejections) == ({STAYS, NEW}, ())


def test_a_service_that_is_rejected_leads_to_no_former_address() -> None:
    controller = Succession(LIBRARIES)
    controller.render(site(), service("web"), slice_of("web", OLD, STAYS))
    outside: dict[str, Any] = service("web", type="ExternalName", externalName="api.example.net")
    outside["metadata"]["resourceVersion"] = "2"
    assert addresses_in(controller.render(outside)) == {OLD, STAYS}

    rendered = controller.render(slice_of("web", STAYS))

    assert addresses_in(rendered) == {STAYS}
    assert [str(one.subject) for one in rendered.rejections] == ["Service default/web"]


def test_a_good_version_has_new_addresses_and_keeps_those_that_are_no_endpoints() -> None:
    controller = Succession(LIBRARIES, externalNames=["*.example.net"], externalAuthHosts=["10.0.0.7"])
    objects = [
        site(proxy_body_size="1m", whitelist_source_range="10.0.0.8/32"),
        ingress("out", rule("b.test", path("/", "out")), annotations={NGINX + "auth-url": f"http://{OLD}:80/x"}),
        *(service("web"), slice_of("web", "2001:DB8:0::1", family="IPv6")),
        service("out", type="ExternalName", externalName="api.example.net"),
    ]
    good = controller.render(*objects)
    broken = {"annotations": {NGINX + "no-such": "yes"}, "resourceVersion": "2"}
    controller.render(*({**one, "metadata": {**one["metadata"], **broken}} for one in objects[:2]))

    rendered = controller.render(slice_of("web", "2001:db8::1", "2001:db8::2", family="IPv6"))

    assert {one.has_fallback for one in rendered.rejections} == {True}
    assert (good.text.count("\n    server "), rendered.text.count("\n    server ")) == (2, 3)
    assert addresses_in(rendered) == addresses_in(good) == {OLD, STAYS}
