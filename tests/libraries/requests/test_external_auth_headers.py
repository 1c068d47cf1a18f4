"""Headers of a client beside those that an authentication server sets, on a real HAProxy with a real server."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import pytest

from haptic_trio.config.libraries import load_library
from tests.libraries.conftest import Cluster
from tests.libraries.ingress.test_ingress_warnings import Site
from tests.libraries.requests.test_external_auth import HI, LIBRARIES, NGINX, URL, ask_for, checked, deciding, servers
from tests.libraries.requests.test_trusted_headers import received
from tests.support.traffic.raw import exchange
from tests.support.traffic.servers import QuietHandler, answering, serving

IDENTITY = load_library("ingress").templating.extra_context["externalAuthIdentityHeaders"]
SEPARATORS = "-_.~!$'"
"""What clients write for the `-` in a name."""


class _Server(QuietHandler):
    """Lets everybody in, says who it is by X-User to those with a cookie alone, and keeps what it was asked."""

    asked: ClassVar[list[dict[str, str]]] = []

    def answer(self) -> None:
        self.asked.append({name.lower(): value for name, value in self.headers.items()})
        self.send_response(200)
        if "cookie" in self.asked[-1]:
            self.send_header("X-User", "joe")
            self.send_header("X-Mine", "server")
        self.send_header("Date", "now")
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", "0")
        self.end_headers()


@contextmanager
def guarded(cluster: Cluster, prefix: str, annotations: dict[str, str], **settings: Any) -> Iterator[None]:
    """Serve an Ingress that asks the server."""
    _Server.asked.clear()
    with serving("web") as running, answering(_Server) as port:
        cluster.serve(
            checked("a", {"auth-url": URL, **annotations}, prefix),
            *servers(running["web"], port),
            libraries=LIBRARIES,
            **settings,
        )
        yield


def sent(cluster: Cluster, *lines: str) -> list[tuple[str, str]]:
    return received(exchange(cluster.http_port, "GET / HTTP/1.1", "Host: a.example.com", *lines))


def spelled(*names: str) -> list[str]:
    return [f"{name.replace('-', separator)}: forged" for separator in SEPARATORS for name in names]


@pytest.mark.haproxy
@pytest.mark.parametrize("cookie", [[], ["Cookie: k=v"]], ids=["unknown", "known"])
@pytest.mark.parametrize(
    ("prefix", "annotations"),
    [
        (NGINX, {"auth-response-headers": "X-User"}),
        (NGINX, {"auth-response-headers": "x_user"}),
        (HI, {"auth-headers-succeed": "X-User"}),
        (HI, {"auth-headers-succeed": "x-us*"}),
        (HI, {"auth-headers-succeed": "*, X-User"}),
        (HI, {"auth-headers-succeed": "*"}),
        (HI, {}),
    ],
    ids=str,
)
def test_no_spelling_of_a_header_of_the_server_comes_from_a_client(
    cluster: Cluster, prefix: str, annotations: dict[str, str], cookie: list[str]
) -> None:
    with guarded(cluster, prefix, annotations):
        found = sent(cluster, *cookie, *spelled("X-User"), "X-USER: forged", "X-Other: kept", "Content-Type: a/b")

    assert "forged" not in dict(found).values()
    is_copied = bool(cookie) and annotations != {"auth-response-headers": "x_user"}
    assert [value for name, value in found if name == "x-user"] == (["joe"] if is_copied else [])
    assert {("x-other", "kept"), ("content-type", "a/b")} <= set(found)


@pytest.mark.haproxy
@pytest.mark.parametrize("annotations", [{"auth-headers-succeed": "*"}, {}], ids=str)
def test_where_all_headers_are_forwarded_no_identity_comes_from_a_client(
    cluster: Cluster, annotations: dict[str, str]
) -> None:
    names = [name.replace("*", "") for name in IDENTITY] + ["X-User-Email", "X-Username", "X-Groups", "X-Roles"]
    others = ["X-Requested-With", "X-CSRF-Token", "Authorization", "X-Auth-Token", "X-Api-Key", "X_Api_Key", "X-Mine"]
    with guarded(cluster, HI, annotations, trustedProxies=["127.0.0.1"]):
        lines = spelled(*names)
        answers = [sent(cluster, *lines[start : start + 50]) for start in range(0, len(lines), 50)]
        kept = sent(cluster, *(f"{name}: kept" for name in others))
        answered = sent(cluster, "Cookie: k=v", *spelled("X-Mine"))

    assert "forged" not in {value for found in (*answers, answered) for _, value in found}
    assert {name for name, value in kept if value == "kept"} == {name.lower() for name in others}
    assert ("x-mine", "server") in answered


@pytest.mark.haproxy
def test_names_of_identity_are_a_setting(cluster: Cluster) -> None:
    with guarded(cluster, HI, {}, externalAuthIdentityHeaders=["X-Tenant*", "$W'%"]):
        found = sent(cluster, "X_Tenant_Id: forged", "$w'%: forged", "X-User: kept", "X-Tena: kept")

    assert [value for _, value in found if value in ("forged", "kept")] == ["kept", "kept"]


@pytest.mark.haproxy
def test_a_client_does_not_describe_the_request_to_the_server(cluster: Cluster) -> None:
    """A trusted proxy forwards what clients write, in spellings that it does not know."""
    names = ["X-Original-URL", "X-Original-URI", "X-Original-Method", "X-Forwarded-URI", "X-Forwarded-Method"]
    names += ["X-Auth-Request-Redirect", "X-Real-IP", "X-Forwarded-For", "X-Forwarded-Host"]
    with guarded(cluster, HI, {}, trustedProxies=["127.0.0.1"]):
        sent(cluster, *(line for line in spelled(*names) if "-" not in line.partition(":")[0]))

    (asked,) = _Server.asked
    assert "forged" not in asked.values()
    assert asked["x-original-url"] == "http://a.example.com/"


@pytest.mark.parametrize(
    ("annotations", "warned"),
    [
        ({}, True),
        ({"auth-headers-succeed": " * "}, True),
        ({"auth-headers-succeed": "*, X-User"}, False),
        ({"auth-headers-succeed": "X-User"}, False),
        ({"auth-headers-succeed": "-"}, False),
    ],
    ids=str,
)
def test_the_owner_of_an_ingress_that_lists_no_header_is_warned(annotations: dict[str, str], warned: bool) -> None:
    site = Site(checked("a", {"auth-url": URL, **annotations}, HI), *servers(80, 4180))

    found = [one for one in site.warnings if "AuthHeadersNotListed" in one]
    assert len(found) == warned
    assert all("list the headers" in one for one in found)


class _Application(QuietHandler):
    """Answers with the status that X-Answer names."""

    def answer(self) -> None:
        self.send_response(int(self.headers["X-Answer"]))
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.mark.haproxy
@pytest.mark.parametrize(
    ("prefix", "annotations", "kept"),
    [
        (NGINX, {}, ["200", "302", "308"]),
        (NGINX, {"auth-always-set-cookie": "false"}, ["200", "302", "308"]),
        (NGINX, {"auth-always-set-cookie": "true"}, ["200", "302", "308", "404", "500"]),
        (HI, {}, ["200", "302", "308"]),
    ],
    ids=str,
)
def test_cookies_of_the_server_do_not_come_with_an_error_of_the_application(
    cluster: Cluster, prefix: str, annotations: dict[str, str], kept: list[str]
) -> None:
    with answering(_Application) as application, deciding() as decider:
        guarded = checked("a", {"auth-url": URL, **annotations}, prefix)
        cluster.serve(guarded, *servers(application, decider), libraries=LIBRARIES)
        answers = {
            status: ask_for(cluster, "a", 200, X_Answer=status) for status in ("200", "302", "308", "404", "500")
        }

    assert {status: answer.status for status, answer in answers.items()} == {status: int(status) for status in answers}
    assert [status for status, answer in answers.items() if "set-cookie" in answer.headers] == kept
