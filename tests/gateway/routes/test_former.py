"""Rejected routes and Gateways: a good version is not served where other namespaces no longer admit it."""

from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered
from tests.gateway.objects import gateway, gateway_class, grant, route, rule, service, tls_listeners
from tests.gateway.serving import Authority, endpoints
from tests.libraries.tenants.test_withdrawn_permissions import everything
from tests.support.components.succession import Succession
from tests.support.kubernetes import AGES, tls_secret

LIBRARIES = ("base", "ssl", "gateway")
LIMITS = {"max_namespace_certificate_lines": 4}


def changed(resource: Resource, version: int, namespace: str = "") -> Resource:
    metadata = {**resource["metadata"], "resourceVersion": str(version), "uid": resource["metadata"]["name"]}
    return {**resource, "metadata": {**metadata, **({"namespace": namespace} if namespace else {})}}


def shared_gateway(version: int, origin: str = "All") -> Resource:
    allowed = {"namespaces": {"from": origin}}
    return changed(
        gateway("gw", {"name": "http", "port": 8888, "protocol": "HTTP", "allowedRoutes": allowed}), version, "infra"
    )


def route_of(version: int, to: str = "", *, is_broken: bool = False, **filters: Any) -> Resource:
    """Return a route of the namespace `tenant` to a Service in *to*; a broken one has an invalid path."""
    one = rule("/", to="app", **filters)
    if to:
        one["backendRefs"][0]["namespace"] = to
    if is_broken:
        one["matches"].append({"path": {"type": "Exact", "value": "no path"}})
    parents = [{"name": "gw", "namespace": "infra"}]
    return changed(route("web", one, hostnames=["a.test"], parents=parents, namespace="tenant"), version)


def entry_in(rendered: Rendered) -> str:
    lines = rendered.texts["maps/gateway-prefix.map"].text.splitlines()
    return next((line for line in lines if "|a.test|" in line and not line.startswith("#")), "")


def begin(*objects: Resource) -> Succession:
    controller = Succession(LIBRARIES, limits=LIMITS)
    found = [service("app", namespace=namespace) for namespace in ("tenant", "other")]
    controller.render(gateway_class(), shared_gateway(1), *found, endpoints("app", ("", 80)), *objects)
    return controller


def mirrored(to: str) -> dict[str, Any]:
    reference = {"name": "app", "namespace": to, "port": 80}
    return {"filters": [{"type": "RequestMirror", "requestMirror": {"backendRef": reference}}]}


@pytest.mark.parametrize(("to", "filters"), [("other", {}), ("", mirrored("other"))], ids=["backend", "mirror"])
def test_a_route_has_no_service_of_another_namespace_whose_grant_is_gone(to: str, filters: dict[str, Any]) -> None:
    controller = begin(changed(grant("other", origin="tenant"), 1), route_of(1, to, **filters))
    rendered = controller.render(route_of(2, to, is_broken=True, **filters))
    assert (entry_in(rendered) != "", [one.has_fallback for one in rendered.rejections][:1]) == (True, [True])
    # Another grant is no reason to drop it.
    assert entry_in(controller.render(changed(grant("tenant", origin="other"), 1))) != ""

    withdrawn = changed(grant("other", origin="somebody"), 2)
    rendered = controller.render(withdrawn)

    # As if it were not rejected.
    assert "gateway::other_app_80" not in everything(rendered)
    assert everything(rendered) == everything(begin(withdrawn, route_of(1, to, **filters)).render())
    assert {one.has_fallback for one in rendered.rejections} == {True}


@pytest.mark.parametrize(("to", "filters"), [("other", {}), ("", mirrored("other"))], ids=["backend", "mirror"])
def test_a_route_that_is_not_rendered_again_ends_with_the_grant(to: str, filters: dict[str, Any]) -> None:
    controller = begin(changed(grant("other", origin="tenant"), 1), route_of(1, to, **filters))
    controller.pause("HTTPRoute", "tenant", "web")
    assert entry_in(controller.render(route_of(2, to, is_broken=True, **filters))) != ""

    rendered = controller.render(changed(grant("other", origin="somebody"), 2))

    assert "gateway::other_app_80" not in everything(rendered)
    assert {one.has_fallback for one in rendered.rejections} == {False}


def test_a_route_is_not_attached_to_a_gateway_that_no_longer_allows_its_namespace() -> None:
    controller = begin(route_of(1))
    assert entry_in(controller.render(route_of(2, is_broken=True))) != ""
    assert entry_in(controller.render(shared_gateway(2))) != ""

    assert entry_in(controller.render(shared_gateway(3, "Same"))) == ""


def owned(version: int, count: int) -> Resource:
    return changed(gateway("own", *tls_listeners(count)), version, "tenant")


@pytest.mark.parametrize("count", [1, 2])
def test_a_gateway_has_no_secret_of_another_namespace_whose_grant_is_gone(count: int) -> None:
    authority = Authority()
    secrets = [
        tls_secret("tls", *authority.issue("h0.test"), namespace="other"),
        tls_secret("own", *authority.issue("h1.test"), namespace="tenant"),
    ]
    permitted = changed(grant("other", origin="tenant", kind="Gateway", to="Secret"), 1)
    withdrawn = changed(grant("other", origin="somebody", kind="Gateway", to="Secret"), 2)
    controller = begin(permitted, *secrets, owned(1, count))
    rendered = controller.render(owned(2, 6))
    assert ("ssl/other_tls.pem" in rendered.texts, [one.has_fallback for one in rendered.rejections]) == (True, [True])

    rendered = controller.render(withdrawn)

    assert "ssl/other_tls.pem" not in rendered.texts
    # It loses this listener alone, as if it were not rejected. Nothing is served of it without another one.
    assert everything(rendered) == everything(begin(withdrawn, *secrets, owned(1, count)).render())
    assert ("ssl/tenant_own.pem" in rendered.texts) is (count > 1)
    assert [one.has_fallback for one in rendered.rejections] == [count > 1]
    # Its good version is the same.
    rendered = controller.render(changed(permitted, 3))
    assert ("ssl/other_tls.pem" in rendered.texts, [one.has_fallback for one in rendered.rejections]) == (True, [True])


def test_a_gateway_that_is_not_rendered_again_ends_with_the_grant() -> None:
    certificate = Authority().issue("h0.test")
    secrets = tls_secret("tls", *certificate, namespace="other"), tls_secret("own", *certificate, namespace="tenant")
    permitted = changed(grant("other", origin="tenant", kind="Gateway", to="Secret"), 1)
    controller = begin(permitted, *secrets, owned(1, 1))
    controller.pause("Gateway", "tenant", "own")
    assert "ssl/other_tls.pem" in controller.render(owned(2, 6)).texts

    rendered = controller.render(changed(grant("other", origin="somebody", kind="Gateway", to="Secret"), 2))

    assert "ssl/other_tls.pem" not in rendered.texts
    assert {one.has_fallback for one in rendered.rejections} == {False}


def shared_route(
    version: int, age: int, namespace: str, to: str, *, is_broken: bool = False, header: str = ""
) -> Resource:
    """Return a route of *namespace* for all paths of a host that others have, too."""
    one = rule("/", to=to)
    if header:
        one["matches"][0]["headers"] = [{"name": header, "value": "yes"}]
    if is_broken:
        one["matches"].append({"path": {"type": "Exact", "value": "no path"}})
    parents = [{"name": "gw", "namespace": "infra"}]
    fields = {"namespace": namespace, "created": AGES.format(age), "parents": parents}
    return changed(route(namespace, one, hostnames=["a.test"], **fields), version)


def test_routes_of_others_in_the_entry_of_a_rejected_route_are_the_present_ones() -> None:
    controller = begin(service("new", namespace="other"), shared_route(1, 2, "tenant", "app", header="x-evil"))
    rendered = controller.render(shared_route(2, 2, "tenant", "app", is_broken=True, header="x-evil"))
    assert "gateway::tenant_app_80" in entry_in(rendered)

    for version, to in enumerate(("app", "new"), 1):
        rendered = controller.render(shared_route(version, 5, "other", to))
        assert f"gateway::other_{to}_80" in entry_in(rendered)
        assert "gateway::tenant_app_80" in entry_in(rendered)
    # An older route takes the entry, and gives it back.
    controller.render(shared_route(1, 1, "infra", "app"), service("app", namespace="infra"))
    lines = controller.render().texts["maps/gateway-prefix.map"].text.splitlines()
    assert [line[0] for line in lines if "|a.test|" in line] == ["i"]
    controller.delete(shared_route(1, 1, "infra", "app"))
    assert "gateway::tenant_app_80" in entry_in(controller.render())
