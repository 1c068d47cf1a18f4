"""Conditions that compare headers as they are: what a request with very many values costs, and what matches."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haptic_trio.k8s.resource import Resource
from tests.gateway.expressions.test_expression_attacks import MOST_SECONDS
from tests.gateway.objects import gateway, route, rule, service
from tests.gateway.serving import render
from tests.support.processes.ports import free_port
from tests.support.traffic.proxy import check, processor_seconds, running
from tests.support.traffic.raw import exchange

pytestmark = pytest.mark.haproxy

LABELS = 20
HOST = ".".join([*(f"l{number}" for number in range(LABELS)), "test"])
SCOPES = [HOST, *("*." + HOST.split(".", number)[-1] for number in range(1, LABELS + 1))]
"""The host of the request, and all wildcards that it is looked up by."""


def by_header(number: int) -> dict[str, Any]:
    """Return a match for a value of the header `x`."""
    return {"headers": [{"name": "x", "value": f"v{number}"}]}


def crowded() -> Iterator[Resource]:
    """Yield routes that fill the list of each scope with matches."""
    for scope, host in enumerate(SCOPES):
        for part in range(3):
            matches = [[by_header(1_000 * part + 64 * half + number) for number in range(64)] for half in (0, 1)]
            yield route(f"r{scope}-{part}", *(rule(matches=one) for one in matches), hostnames=[host])


def test_no_condition_gives_the_method_another_matching_method() -> None:
    """HAProxy 3.4 warns of that at each check, and rejects the configuration with `zero-warning`."""
    text = render(gateway("gw"), service(), route("app", rule(matches=[by_header(0)]))).text

    assert "method" in text
    assert re.search(r'\{ (?:"method\b|method\S* -m )', text) is None


@pytest.mark.parametrize("path", ["/", "/%61"], ids=["ordinary path", "path with two readings"])
def test_very_many_values_and_conditions_take_little_processor_time(tmp_path: Path, path: str) -> None:
    port = free_port()
    listener = gateway("gw", {"name": "web", "port": port, "protocol": "HTTP"})
    rendered = render(listener, service(), *crowded(), bindAddress="127.0.0.1", gatewayWildcardLabels=LABELS)
    text = rendered.text.replace("global\n", "global\n    nbthread 1\n", 1)
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    assert check(tmp_path, text, files) == ""

    with running(tmp_path, text, files, port=port) as process:
        lines = [f"GET {path} HTTP/1.1", f"Host: {HOST}", *["x: w"] * 90]
        # The first request reads the lists.
        assert exchange(port, *lines).status == 404
        before = processor_seconds(process)
        status = exchange(port, *lines).status

        assert processor_seconds(process) - before < MOST_SECONDS
        assert status == 404
