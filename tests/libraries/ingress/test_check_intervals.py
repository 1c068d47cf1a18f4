"""Annotations cannot make server checks too frequent, since each check takes processor time that all share."""

from typing import Final

import pytest

from tests.support.components.rendering import Rendered, render
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service

LIBRARIES = ("base", "ssl", "ingress", "haproxy-ingress-annotations", "haproxy-org-annotations")
HI, ORG = "haproxy-ingress.github.io/", "haproxy.org/"
NAMES: Final = {
    f"{HI}health-check-interval": {},
    f"{HI}backend-check-interval": {},
    f"{HI}agent-check-interval": {f"{HI}agent-check-port": "9000"},
    f"{ORG}check-interval": {f"{ORG}check": "true"},
}


def rendered(name: str, value: str, **context: str) -> Rendered:
    annotations = {name: value, **NAMES[name]}
    objects = [
        ingress("often", rule("a.example.com", path("/", "web")), annotations=annotations),
        service("web"),
        endpoint_slice("web", endpoint("10.0.0.1"), ports=8080),
    ]
    return render(objects, libraries=LIBRARIES, **context)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("value", ["1us", "1", "499ms", "0", "0s", "499999us"])
def test_checks_do_not_follow_each_other_too_fast(name: str, value: str) -> None:
    found = rendered(name, value)

    assert "follow each other too fast" in found.rejected["Ingress default/often"]
    assert "often" not in found.text


@pytest.mark.parametrize("name", NAMES)
def test_a_slow_check_is_possible_and_an_administrator_can_allow_a_faster_one(name: str) -> None:
    assert "inter 500ms" in rendered(name, "500").text
    assert "inter 50ms" in rendered(name, "50ms", shortestCheckInterval="50ms").text
