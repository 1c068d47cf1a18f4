"""Conditions on methods and headers on a real HAProxy: its rules decide as Lua does, or leave the decision to Lua."""

import socket
from collections.abc import Mapping
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, route
from tests.gateway.serving import served
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy


def match(method: str = "", **headers: str) -> dict[str, Any]:
    """Return a match of the path `/`, with underscores for hyphens in the names of headers."""
    found: dict[str, Any] = {"path": {"type": "PathPrefix", "value": "/"}}
    if method:
        found["method"] = method
    if headers:
        found["headers"] = [{"name": name.replace("_", "-"), "value": value} for name, value in headers.items()]
    return found


def named(host: str, **matches: Mapping[str, Any]) -> Resource:
    """Return a route whose answers have the names of the first of *matches* that the request meets."""
    rules = [
        {"matches": [one], "filters": [{"type": "RequestRedirect", "requestRedirect": {"hostname": f"{name}.answer"}}]}
        for name, one in matches.items()
    ]
    return route(host.partition(".")[0], *rules, hostnames=[host])


def asked(port: int, host: str, *lines: str, method: str = "GET") -> str:
    """Return the name of the match that a request with the header *lines* met, or else its status."""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        head = "\r\n".join([f"{method} / HTTP/1.1", f"host: {host}", "connection: close", *lines])
        connection.sendall(f"{head}\r\n\r\n".encode("latin-1"))
        answer = connection.makefile("rb").read().decode("latin-1").split("\r\n")
    found = [line.split("/")[2].partition(".")[0] for line in answer if line.startswith("location: ")]
    return found[0] if found else answer[0].split()[1]


EQUAL = named("equal.test", first=match(x_canary="always"), other=match())
SEVERAL = named("several.test", both=match("POST", a="1", b="2"), method=match("POST"), one=match(a="1"))
MANY = named("many.test", **{f"n{number}": match(x=str(number)) for number in range(12)}, other=match())
LONG = named("long.test", all=match(**{f"x{number}": "1" for number in range(6)}), other=match())
ESCAPED = named("escaped.test", first=match(x="a, b;c>d&e=%41"), second=match(**{"x*y": "1"}), other=match())


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Any:
    found = free_port()
    objects = [gateway("gw", {"name": "any", "port": found, "protocol": "HTTP"}), EQUAL, SEVERAL, MANY, LONG, ESCAPED]
    with served(tmp_path_factory.mktemp("conditions"), found, *objects):
        yield found


@pytest.mark.parametrize(
    ("lines", "wanted"),
    [
        (["X-Canary: always"], "first"),
        (["x-canary:   always  "], "first"),
        ([], "other"),
        (["x-canary: never"], "other"),
        (["x-canary: Always"], "other"),
        (["x-canary: always2"], "other"),
        (["x-canary: 2always"], "other"),
        (["x-canary: always\x0b2"], "other"),
        (["x-canary: always\x852"], "other"),
        (["a-x-canary: always"], "other"),
        (["x-canary-b: always"], "other"),
        (["a: x-canary: always"], "other"),
        (["a: GET?h,x-canary,always>=HTTPRoute/web/equal/0.0"], "other"),
        # A value matches, or all of them joined.
        (["x-canary: never", "x-canary: always"], "first"),
        (["x-canary: always", "x-canary: never"], "first"),
        (["x-canary: al", "x-canary: ways"], "other"),
        (["x-canary: never, always"], "other"),
        ([f"a: {'b' * 8000}", "x-canary: always"], "first"),
        ([f"a: {'b' * 8000}"], "other"),
        ([f"a: {'b' * 15000}"], "other"),
    ],
)
def test_a_header_must_have_the_value(port: int, lines: list[str], wanted: str) -> None:
    assert asked(port, "equal.test", *lines) == wanted


@pytest.mark.parametrize(
    ("method", "lines", "wanted"),
    [
        ("POST", ["a: 1", "b: 2"], "both"),
        ("POST", ["b: 2", "a: 1"], "both"),
        ("POST", ["a: 1"], "method"),
        ("POST", ["a: 1", "b: 1"], "method"),
        ("GET", ["a: 1", "b: 2"], "one"),
        ("POSTS", ["a: 1", "b: 2"], "one"),
        ("post", ["a: 1", "b: 2"], "one"),
        ("GET", ["a: 2", "b: 2"], "404"),
        ("CONNECT", ["a: 1", "b: 2"], "400"),
    ],
)
def test_all_conditions_of_a_match_must_be_met(port: int, method: str, lines: list[str], wanted: str) -> None:
    assert asked(port, "several.test", *lines, method=method) == wanted


def test_the_number_of_matches_and_of_conditions_does_not_matter(port: int) -> None:
    assert [asked(port, "many.test", f"x: {number}") for number in range(13)] == [
        *(f"n{number}" for number in range(12)), "other",
    ]  # fmt: skip
    lines = [f"x{number}: 1" for number in range(6)]
    assert asked(port, "long.test", *lines) == "all"
    assert {asked(port, "long.test", *lines[:left], *lines[left + 1 :]) for left in range(6)} == {"other"}


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        ("x: a, b;c>d&e=%41", "first"),
        ("x: a%2C%20b%3Bc%3Ed%26e%3D%2541", "other"),
        ("x*y: 1", "second"),
        ("x%2Ay: 1", "other"),
    ],
)
def test_syntax_of_lists_in_a_value_is_a_part_of_it(port: int, line: str, wanted: str) -> None:
    assert asked(port, "escaped.test", line) == wanted
