"""Rules of one namespace leave memory of Lua for those of others."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.objects import gateway, route
from tests.gateway.serving import render
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import running
from tests.support.traffic.servers import ask

REDIRECT = {"type": "RequestRedirect", "requestRedirect": {"hostname": "answered.test"}}
MOST_OF_LUA = 16
"""Megabytes; an eighth of what a configuration with external authentication has."""


def _big_routes(count: int) -> Iterator[Resource]:
    """Yield routes with 16 rules each, *count* rules in all: each 12 kB, and about 100 kB once read."""
    for number in range(count // 16):
        rules = [_big_rule(f"/{number}/{position}", f"{number}x{position}") for position in range(16)]
        yield route(f"big{number}", *rules, hostnames=["big.test"])


def _big_rule(path: str, text: str) -> dict[str, Any]:
    headers = [{"name": f"h{position}", "value": text} for position in range(740)]
    change = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": headers}}
    return {"matches": [{"path": {"type": "Exact", "value": path}}], "filters": [change, REDIRECT]}


@pytest.mark.haproxy
def test_many_big_rules_that_are_asked_for_once_leave_memory_for_the_rules_of_others(tmp_path: Path) -> None:
    port, count = free_port(), 160
    other = [
        route(f"other{number}", {"matches": [], "filters": [REDIRECT]}, hostnames=[f"{number}.test"])
        for number in range(2)
    ]
    listener = {"name": "web", "port": port, "protocol": "HTTP"}
    rendered = render(gateway("gw", listener), *other, *_big_routes(count), bindAddress="127.0.0.1")
    assert not rendered.rejections
    text = rendered.text.replace("global\n", f"global\n    nbthread 1\n    tune.lua.maxmem {MOST_OF_LUA}\n", 1)
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    paths = [f"/{number}/{position}" for number in range(count // 16) for position in range(16)]
    with running(tmp_path, text, files, port=port):
        before = ask(port, "0.test").status
        big = {ask(port, "big.test", path).status for path in paths}
        after = ask(port, "1.test").status, ask(port, "0.test").status, ask(port, "big.test", paths[0]).status

    assert before == 302
    assert big == {302}
    assert after == (302, 302, 302)
