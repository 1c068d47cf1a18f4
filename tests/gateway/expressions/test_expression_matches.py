"""A regular expression matches the whole text on a real HAProxy, and a text that is too long is rejected."""

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.objects import gateway, route, rule, service
from tests.gateway.serving import render
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.servers import ask

pytestmark = pytest.mark.haproxy


def expression(value: str, **fields: Any) -> dict[str, Any]:
    """Return a condition that *value* is an expression for."""
    return {"type": "RegularExpression", "value": value, **fields}


MATCHES: dict[str, dict[str, Any]] = {
    "path": {"path": expression("/(?i:api)/v[0-9]+(/.*)?")},
    "header": {"headers": [expression("(a|b)(,(a|b))*", name="x")]},
    "slow": {"headers": [expression("[a-z]*[a-y]*[!?]", name="y")]},
    "query": {"queryParams": [expression("[2-9].", name="v")]},
}


def redirecting(matches: dict[str, Any], to: str) -> dict[str, Any]:
    """Return a rule whose answer names it."""
    found = rule(matches=[matches], filters=[{"type": "RequestRedirect", "requestRedirect": {"hostname": to}}])
    del found["backendRefs"]
    return found


def outcome(port: int, target: str, headers: tuple[str, ...]) -> str:
    """Return the name of the match that *target* with *headers* came to, or else the status."""
    found = ask(port, "a.test", target, headers={"accept": "\r\n".join(["*/*", *headers])})
    return found.headers["location"].split("/")[2].partition(".")[0] if found.status == 302 else str(found.status)


def test_expressions_match_whole_texts_and_too_long_texts_are_rejected(tmp_path: Path) -> None:
    port = free_port()
    rendered = render(
        gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"}),
        service(),
        route("r", *(redirecting(match, f"{name}.test") for name, match in MATCHES.items())),
        bindAddress="127.0.0.1",
    )
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    cases: list[tuple[str, tuple[str, ...], str]] = [
        ("/api/v1", (), "path"),
        ("/API/v2/x", (), "path"),
        ("/api/vx", (), "404"),
        ("/", ("x: b",), "header"),
        ("/", ("x: c",), "404"),
        # One of several values, or all of them.
        ("/", ("x: c", "x: b"), "header"),
        ("/", ("x: c", "x: d"), "404"),
        ("/", ("x: a,", "x: c"), "404"),
        ("/", ("y: " + "a" * 500 + "!",), "slow"),
        ("/", ("y: " + "a" * 500,), "404"),
        ("/", ("y: " + "a" * 5_000 + "!",), "431"),
        ("/?a=1&v=25", (), "query"),
        # The first one with the name counts.
        ("/?v=1&v=25", (), "404"),
        ("/?v&w=1&%76=+5&&", (), "404"),
        ("/?a=%26v%3D1&b&=x&%76=2+", (), "query"),
        ("/?a=b=c&v=3=", (), "query"),
        # Every character is one, a line feed as well.
        ("/?v=2%0A", (), "query"),
        ("/?v=2" + "a" * 9_000, (), "414"),
        ("/" + "a" * 9_000, (), "414"),
    ]
    with running(tmp_path, rendered.text, files, port=port):
        for target, headers, wanted in cases:
            assert outcome(port, target, headers) == wanted, (target[:40], [one[:40] for one in headers])
