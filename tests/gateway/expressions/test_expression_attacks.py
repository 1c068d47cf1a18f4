"""Regular expressions of one tenant, and requests made for them: what they cost other tenants of the same thread."""

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from haptic_trio.gateway.expressions.check import expression
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, route, rule, service
from tests.gateway.serving import render
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import check, processor_seconds, running
from tests.support.traffic.servers import PATIENCE, ask

pytestmark = pytest.mark.haproxy

MOST_SECONDS = 0.05
"""Processor time of HAProxy that a request may take, with an attack before it: seven times the longest measured one.
Not the time that passes, which depends on what else the machine does."""
# They end in sets: PCRE first looks for a single character that every matching text contains.
NESTED = "(a+)+[0-9{}]"
QUADRATIC = "[a-z]*[a-y]*[0-9{}]"
LINEAR = ".*(a?a?a?a?)[0-9{}]"
SCANNED = ".*(?:a[ab]|[ab]a){{{{{}}}}}[0-9{}].*x"


class Attack(msgspec.Struct, frozen=True):
    """The matches of a rule, and a request for them."""

    name: str
    matches: list[dict[str, Any]]
    target: str = "/"
    headers: tuple[str, ...] = ()
    host: str = "evil.test"

    def __str__(self) -> str:
        return self.name

    @property
    def request(self) -> bytes:
        """The request as it is sent."""
        lines = [f"GET {self.target} HTTP/1.1", f"Host: {self.host}", *self.headers, "", ""]
        return "\r\n".join(lines).encode()

    def routes(self) -> Iterator[Resource]:
        """Yield routes with the matches: a route has 128 of them at most."""
        for start in range(0, len(self.matches), 128):
            parts = [self.matches[at : at + 16] for at in range(start, min(start + 128, len(self.matches)), 16)]
            yield route(f"evil-{start}", *(rule(matches=part) for part in parts), hostnames=["evil.test"])


def by_header(*patterns: str) -> list[dict[str, Any]]:
    """Return a match for each pattern, for the header `x`."""
    return [{"headers": [{"name": "x", "type": "RegularExpression", "value": one}]} for one in patterns]


def by_path(*patterns: str) -> list[dict[str, Any]]:
    """Return a match for each pattern, for the path."""
    return [{"path": {"type": "RegularExpression", "value": one}} for one in patterns]


def by_query(*patterns: str) -> list[dict[str, Any]]:
    """Return a match for each pattern, for the parameter `x`."""
    return [{"queryParams": [{"name": "x", "type": "RegularExpression", "value": one}]} for one in patterns]


def sixteen(pattern: str) -> list[str]:
    """Return sixteen patterns that differ, in the place of the braces."""
    return [pattern.format(letter) for letter in "ABCDEFGHIJKLMNOP"]


def longest(pattern: str) -> str:
    """Return the worst text for *pattern*, of the greatest length that it is matched with."""
    return "a" * expression(pattern).longest


LONG = longest(QUADRATIC.format("A"))
PATHS = [f"/{pattern}" for pattern in sixteen(QUADRATIC)]
ATTACKS = [
    Attack("header, 90 values", by_header(*sixteen(LINEAR)), headers=("x: " + "a" * 88,) * 90),
    Attack("header, 90 values, quadratic", by_header(*sixteen(QUADRATIC)), headers=("x: " + "a" * 11,) * 90),
    Attack("header, longest value", by_header(*sixteen(QUADRATIC)), headers=("x: " + LONG,)),
    Attack("header, 90 long values", by_header(*sixteen(QUADRATIC)), headers=("x: " + "a" * 140,) * 90),
    Attack(
        "header, eight values of nearly the length", by_header(*sixteen(QUADRATIC)), headers=("x: " + LONG[1:],) * 8
    ),
    Attack("header, body of a scan", by_header(*sixteen(SCANNED.format(5, "{}"))), headers=("x: " + "a" * 88,) * 90),
    Attack("path, 16 quadratic", by_path(*PATHS), target="/" + LONG[2:]),
    Attack("path, 8 quadratic", by_path(*PATHS[:8]), target="/" + LONG[2:]),
    Attack("path, 16 linear", by_path(*(f"/{one}" for one in sixteen(LINEAR))), target="/" + "a" * 8_000),
    Attack("path, longest that HAProxy takes", by_path("/.*[xy]", "/.*[xz]"), target="/" + "a" * 14_000),
    Attack("path, optional parts", by_path("/.*" + "a?" * 10 + "[xy]", "/.*" + "a?" * 9 + "z"), target="/" + "a" * 900),
    Attack("query, 16 quadratic", by_query(*sixteen(QUADRATIC)), target="/?x=" + LONG),
    Attack("query, many parameters", by_query(*sixteen(QUADRATIC)), target="/?" + "&".join(["a"] * 7_000)),
]
# Some applications drop dots and blanks at the end of a segment, so such a path has several readings.
ATTACKS += [
    Attack("path, dots within a segment", by_path("/[a-z]+"), target=f"/{'.' * 4_000}x%20/"),
    Attack("path, dots and blanks", by_path("/[a-z]+"), target=f"/{'.' * 1_000}x{'%20' * 1_000}/"),
    Attack("path, segments that end in dots", by_path("/[a-z]+"), target="/" + "x./" * 1_300),
    Attack("path, readings of dots", by_path("/[a-z]+"), target=f"/a;b/c%5Cd/e%2Ff/{'.' * 3_900}x%20/"),
]
# A wildcard stands for several labels, which no host has here.
ATTACKS += [
    Attack(f"host, {gaps} times {dots} dots", by_path("/[a-z]+"), host=f"a{'.' * dots}" * gaps + "b")
    for gaps, dots in ((2, 1_000), (3, 150))
]
# Headers of these matches differ from those of the request at the end.
CLOSE = "x" * 255
ATTACKS += [
    Attack(
        f"no expression, headers of {size} bytes",
        [
            {"headers": [{"name": f"{CLOSE[:length]}{one}", "value": "1"} for one in "abcd"[: 1 + number % 4]]}
            for number in range(8)
        ],
        headers=(f"{CLOSE[:length]}e: 1",) * (size // (length + 6)),
    )
    for size, length in ((600, 1), (3_500, 30), (3_500, 100))
]
REJECTED = [
    Attack("nested, 90 header values", by_header(*sixteen(NESTED)), headers=("x: " + "a" * 40,) * 90),
    Attack("body of a scan", by_header(*sixteen(SCANNED.format(30, "{}"))), headers=("x: " + "a" * 80,) * 90),
    Attack("nested, path", by_path(*(f"/{one}" for one in sixteen(NESTED))), target="/" + "a" * 40),
]


REDIRECT = {"type": "RequestRedirect", "requestRedirect": {"hostname": "answered.test"}}


class CrossOrigin(Attack, frozen=True):
    """A request from another origin, for a rule that allows many."""

    def routes(self) -> Iterator[Resource]:
        """Yield a route with a CORS filter."""
        filters = [{"type": "CORS", "cors": {"allowOrigins": ["https://*"]}}, REDIRECT]
        yield route("evil", rule(matches=self.matches, filters=filters), hostnames=["evil.test"])


VICTIM = b"GET / HTTP/1.1\r\nHost: victim.test\r\n\r\n"


class Attacked:
    """A HAProxy with one thread, which serves an attacking tenant and another one."""

    def __init__(self, port: int, process: int) -> None:
        self.port = port
        self._process = process

    def seconds(self) -> float:
        """Return the processor time that HAProxy has used."""
        return processor_seconds(self._process)

    def cost(self, *requests: bytes) -> float:
        """Return the processor time that *requests* take if HAProxy finds them together, on as many connections."""
        with ExitStack() as stack:
            os.kill(self._process, signal.SIGSTOP)
            try:
                os.waitid(os.P_PID, self._process, os.WSTOPPED)
                connections = [self._connect(stack) for _ in requests]
                for connection, request in zip(connections, requests, strict=True):
                    connection.sendall(request)
                before = self.seconds()
            finally:
                os.kill(self._process, signal.SIGCONT)
            for connection in connections:
                assert int(connection.recv(65_536).split(b" ", 2)[1]) in (302, 400, 404, 414, 431)
            return self.seconds() - before

    def _connect(self, stack: ExitStack) -> socket.socket:
        return stack.enter_context(socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE))


@contextmanager
def attacked(directory: Path, attack: Attack, *, is_served: bool = True) -> Iterator[Attacked]:
    """Serve a rule with the matches of *attack*, or reject it, until the block ends."""
    port = free_port()
    rendered = render(
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        service(),
        *attack.routes(),
        route("victim", {"matches": [], "filters": [REDIRECT]}, hostnames=["victim.test"]),
        bindAddress="127.0.0.1",
    )
    assert bool(rendered.rejections) != is_served
    parse_config(rendered.text)
    text = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    assert check(directory, text, files) == ""
    with running(directory, text, files, port=port) as process:
        yield Attacked(port, process)
        # The process is the same, and no watchdog has ended it.
        assert ask(port, "victim.test").status == 302


@pytest.mark.parametrize("attack", [*ATTACKS, *REJECTED], ids=str)
def test_no_request_takes_much_processor_time(tmp_path: Path, attack: Attack) -> None:
    with attacked(tmp_path, attack, is_served=attack not in REJECTED) as proxy:
        costs = [proxy.cost(attack.request) for _ in range(5)]

        # The first one compiles the expressions.
        assert max(costs) < MOST_SECONDS


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_other_tenants_are_answered_during_an_attack(tmp_path: Path, attack: Attack) -> None:
    with attacked(tmp_path, attack) as proxy:
        # The thread takes up both in one turn: at worst the other tenant's request waits for the whole attack.
        costs = [proxy.cost(attack.request, VICTIM) for _ in range(20)]

        assert max(costs) < MOST_SECONDS


def test_an_ambiguous_path_compiles_each_expression_once(tmp_path: Path) -> None:
    # More expressions than are kept compiled.
    matches = by_path(*(f"a{{{number}}}" for number in range(1, 385)))
    attack = Attack("readings", matches, target="/a%2Fb/c%5Cd/e;f/g%3Bh/x%23y/z%20/")
    with attacked(tmp_path, attack) as proxy:
        # A hundred readings are compared with each of them: 0.35 s if each reading has them compiled again.
        assert min(proxy.cost(attack.request) for _ in range(5)) < 4 * MOST_SECONDS


def test_an_origin_of_special_characters_is_encoded_in_little_processor_time(tmp_path: Path) -> None:
    attack = CrossOrigin("origin", by_path("/.*"), headers=(f"Origin: https://{'!' * 15_000}",))
    with attacked(tmp_path, attack) as proxy:
        # A call for each character takes 9 ms.
        assert min(proxy.cost(attack.request) for _ in range(5)) < MOST_SECONDS / 10


def test_a_query_of_separators_takes_little_processor_time(tmp_path: Path) -> None:
    attack = Attack("separators", by_query("a"), target="/?" + "&" * 14_900)
    with attacked(tmp_path, attack) as proxy:
        # As many parameters without a name take 5 to 10 ms.
        assert min(proxy.cost(attack.request) for _ in range(5)) < MOST_SECONDS / 15
