"""The filter `access` on a real HAProxy: annotations of access and rate limits of a route."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.filters.test_extension_filters import extension
from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, route, rule
from tests.gateway.serving import render, served
from tests.libraries.requests.tokens import CLAIMS, GIVEN, RSA_KEY, by_rsa, public_pem, secret, token
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import ask, serving

SETTINGS: dict[str, Any] = {
    "libraries": ("ingress", "haptic-annotations"),
    "gatewayFilters": {"access": ["*"]},
}


def protected(name: str, annotations: dict[str, str], *rules: dict[str, Any]) -> Resource:
    found = route(name, *rules, hostnames=[f"{name}.test"])
    found["metadata"]["annotations"] = {f"haptic-trio/{key}": value for key, value in annotations.items()}
    return found


def secret_of_route(name: str, **data: bytes) -> Resource:
    found = secret(name, **data)
    found["metadata"]["namespace"] = "web"
    return found


@pytest.mark.haproxy
def test_rules_that_name_the_filter_ask_for_credentials_and_limit_clients(tmp_path: Path) -> None:
    port = free_port()
    guarded, plain = rule("/", to="web", filters=[extension("access")]), rule("/open", to="web")
    bearer = {"Authorization": f"Bearer {token('RS256', by_rsa(RSA_KEY), CLAIMS)}"}
    limit = {"rate-limit": "2", "rate-limit-period": "1h"}
    objects = [
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        secret_of_route("keys", key__pem=public_pem(RSA_KEY)),
        secret_of_route("clients", app=b"0123456789abcdef"),
        protected("jwt", GIVEN, guarded, plain),
        protected("key", {**limit, "api-key-secret": "clients", "rate-limit-key": "api-key-client"}, guarded),
        protected("absent", {"api-key-secret": "absent"}, guarded),
    ]
    with serving("web") as ports, served(tmp_path, port, *objects, *leading_to("web", ports["web"]), **SETTINGS):
        assert [ask(port, "jwt.test", path).status for path in ("/", "/open")] == [401, 200]
        assert ask(port, "jwt.test", headers=bearer).status == 200
        assert ask(port, "key.test").status == 401
        keys = {"X-API-Key": "0123456789abcdef"}
        assert [ask(port, "key.test", headers=keys).status for _ in range(3)] == [200, 200, 429]
        assert ask(port, "absent.test", headers=keys).status == 401


@pytest.mark.parametrize(
    ("annotations", "problem"),
    [
        ({}, "the filter access needs annotations"),
        ({"slow-start": "30s"}, "haptic-trio/slow-start is not an annotation of routes"),
        ({"rate-limits": "5"}, "haptic-trio/rate-limits is not an annotation of routes"),
        ({"deny-lists": "absent"}, "deny-lists: there is no list absent"),
        ({**GIVEN, "jwt-issuer": "a\nb"}, "newline"),
    ],
)
def test_annotations_that_cannot_be_used_reject_the_route(annotations: dict[str, str], problem: str) -> None:
    guarded = protected("guarded", annotations, rule("/", to="web", filters=[extension("access")]))

    rendered = render(gateway(), *leading_to("web", 80), guarded, **SETTINGS)

    [rejection] = rendered.rejections
    assert str(rejection.subject) == "HTTPRoute web/guarded"
    assert problem in rejection.problem.message
    # Its rule leads to no backend: 503.
    assert "HTTPRoute_web_guarded" not in rendered.text


def test_annotations_of_a_route_without_the_filter_are_reported() -> None:
    careless = protected("careless", {"jwt-secret": "keys"}, rule("/", to="web"))

    rendered = render(gateway(), *leading_to("web", 80), careless, **SETTINGS)

    [warning] = rendered.warnings
    assert (warning.subject.name, warning.reason) == ("careless", "FieldWithoutEffect")
    assert warning.message.startswith("metadata.annotations.haptic-trio/jwt-secret: no rule has the filter `access`")
