"""Session persistence of HTTPRoutes: cookies on a real HAProxy, and settings that have no effect."""

from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.gateway.objects import GatewayObjectError
from haptic_trio.gateway.routes.backends import Cookie, cookie_of, without_persistence
from haptic_trio.k8s.resource import Resource
from tests.gateway.filters.test_filters import leading_to
from tests.gateway.objects import gateway, made, route, rule
from tests.gateway.serving import Authority, served
from tests.support.kubernetes import tls_secret
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import Answer, ask, serving

HOST = "a.test"
NAMES = ("one", "two", "three")


def sticky(path: str, **persistence: Any) -> dict[str, Any]:
    return rule(path, to="web", sessionPersistence=persistence)


def web(ports: dict[str, int]) -> list[Resource]:
    """Return a Service with an endpoint for each of *ports*."""
    (service, *_) = leading_to("web", 1)
    slices = []
    for name, port in ports.items():
        _, piece = leading_to("web", port)
        slices.append({**piece, "metadata": {**piece["metadata"], "name": f"web-{name}"}})
    return [service, *slices]


def cookie(answer: Answer) -> tuple[str, dict[str, str]]:
    """Return `NAME=VALUE` of the cookie that *answer* sets, and its attributes that are present."""
    (found,) = SimpleCookie(answer.headers["set-cookie"]).values()
    return f"{found.key}={found.value}", {name: str(value) for name, value in found.items() if value}


@pytest.mark.haproxy
def test_requests_of_a_session_go_to_one_server(tmp_path: Path) -> None:
    port = free_port()
    rules = [
        sticky("/session", sessionName="cart"),
        sticky("/permanent", absoluteTimeout="1h30m", cookieConfig={"lifetimeType": "Permanent"}),
        rule("/any", to="web"),
    ]
    with serving(*NAMES) as ports:
        listener = {"name": "web", "port": port, "protocol": "HTTP"}
        with served(tmp_path, port, gateway("gw", listener), *web(ports), route("web", *rules)):
            first, permanent = ask(port, HOST, "/session"), ask(port, HOST, "/permanent")
            sent, attributes = cookie(first)
            kept = [ask(port, HOST, "/session", headers={"Cookie": sent}) for _ in range(12)]
            others = {ask(port, HOST, "/session").body.split()[0] for _ in range(12)}
            unknown = ask(port, HOST, "/session", headers={"Cookie": "cart=0123456789abcdef"})
            plain = ask(port, HOST, "/any")

    assert {answer.body.split()[0] for answer in kept} == {first.body.split()[0]}
    assert not any("set-cookie" in answer.headers for answer in kept)
    assert others == set(NAMES)
    assert sent.startswith("cart=")
    assert attributes == {"path": "/", "httponly": "True"}
    assert cookie(permanent)[0].startswith("haptic-")
    assert cookie(permanent)[1]["max-age"] == "5400"
    assert unknown.status == 200
    assert cookie(unknown)[0] != "cart=0123456789abcdef"
    assert "set-cookie" not in plain.headers


@pytest.mark.haproxy
def test_cookie_is_not_sent_to_the_application_and_is_secure_over_https(tmp_path: Path) -> None:
    port, authority = free_port(), Authority()
    chain, key = authority.issue(HOST)
    pair = tls_secret("pair", chain, key, namespace="web")
    tls = {"certificateRefs": [{"name": "pair"}]}
    with serving("one") as ports:
        listener = {"name": "web", "port": port, "protocol": "HTTPS", "tls": tls}
        objects = [gateway("gw", listener), *web(ports), route("web", sticky("/", sessionName="cart")), pair]
        with served(tmp_path, port, *objects):
            first = ask(port, HOST, tls=authority.client())
            second = ask(port, HOST, headers={"Cookie": cookie(first)[0]}, tls=authority.client())

    assert cookie(first)[1] == {"path": "/", "httponly": "True", "secure": "True"}
    assert "cart=" not in second.body


def test_settings_become_a_cookie() -> None:
    assert cookie_of(sticky("/")) == Cookie()
    assert cookie_of(sticky("/", type="Cookie", sessionName="a-B_1", absoluteTimeout="1500ms")) == Cookie("a-B_1", 2)
    assert cookie_of(rule("/")) is None


@pytest.mark.parametrize(
    ("persistence", "problem"),
    [
        ({"sessionName": "a b"}, "sessionName must have"),
        ({"sessionName": "-m"}, "sessionName must have"),
        ({"sessionName": "a;b"}, "sessionName must have"),
        ({"sessionName": "${HOME}"}, "sessionName must have"),
        ({"sessionName": "x" * 129}, "sessionName must have"),
        ({"absoluteTimeout": "soon"}, "invalid duration"),
        ({"cookieConfig": {"lifetimeType": "Permanent"}}, "needs absoluteTimeout"),
    ],
)
def test_settings_that_no_cookie_can_have_are_rejected(persistence: dict[str, Any], problem: str) -> None:
    with pytest.raises(GatewayObjectError, match=problem):
        cookie_of(sticky("/", **persistence))


def test_persistence_that_haproxy_does_not_have_is_reported_and_the_rule_is_served() -> None:
    header = sticky("/", type="Header", sessionName="x")
    split = {**sticky("/"), "backendRefs": [{"name": "a", "port": 80}, {"name": "b", "port": 80}]}

    assert "type Header is not supported" in without_persistence(header)
    assert "several backends" in without_persistence(split)
    assert cookie_of(header) is cookie_of(split) is None
    assert without_persistence(sticky("/")) == without_persistence(rule("/")) == ""


@pytest.mark.haproxy
def test_persistence_in_a_tcp_route_changes_nothing(tmp_path: Path) -> None:
    port = free_port()
    tcp = made("TCPRoute", "tcp", spec={"parentRefs": [{"name": "gw"}], "rules": [sticky("/")]})
    with serving("one") as ports:
        listener = {"name": "web", "port": port, "protocol": "TCP"}
        with served(tmp_path, port, gateway("gw", listener), *web(ports), tcp):
            answer = ask(port, HOST)

    assert answer.status == 200
    assert "set-cookie" not in answer.headers
