"""Rows say what a person asks: state and reason of a route, lengths of time, certificates about to expire."""

import pytest
from rich.text import Text

from haptic_trio.cli.terminal.known import Known
from haptic_trio.cli.terminal.rows import Match
from haptic_trio.cli.terminal.tabs import instance_rows, lasting, live_state, route_header, route_row
from tests.cli.terminal.console import route


def figures(**up: int) -> dict[str, object]:
    names = ("sessions", "queued", "rate", "errors", "answers_5xx", "answers")
    backends = [{"name": name, "up": count, **dict.fromkeys(names, 0)} for name, count in up.items()]
    return {"kind": "live", "value": {"processes": [], "backends": backends}}


@pytest.mark.parametrize(
    ("up", "fields", "expected"),
    [
        ({}, {}, ("serving", "")),
        ({"b1": 2}, {}, ("serving", "")),
        ({"b1": 1}, {}, ("degraded", "1 of 2 servers are up")),
        ({"b1": 0}, {}, ("down", "no server is up")),
        ({"b1": 0}, {"match": "none", "state": "conflict", "reason": "taken"}, ("conflict", "taken")),
    ],
)
async def test_state_of_a_route_has_what_haproxy_finds(
    up: dict[str, int], fields: dict[str, str], expected: tuple[str, str]
) -> None:
    known = Known()
    known.take(figures(**up))

    assert live_state(route(1, **fields), known) == expected


async def test_wide_terminals_show_backends() -> None:
    row = route_row(route(1), Known())

    assert "b1" not in row.render(80)[0].plain
    assert "b1" in row.render(120)[0].plain
    assert "BACKEND" in route_header(120).plain
    assert row.opens == Match("host1.test/")
    assert route_row(route(1, host="*.test"), Known()).opens == Match("any.test/")
    assert route_row(route(1, host="*"), Known()).opens == Match("any.host/")
    assert route_row(route(1, host=""), Known()).opens is None


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h"), (90_000, "1 d 1 h"), (86_460, "1 d"), (-5, "0 s")],
)
def test_lengths_of_time_are_as_people_write_them(seconds: float, text: str) -> None:
    assert lasting(seconds) == text


@pytest.mark.parametrize(("left", "text", "style"), [(-1, "expired", "red"), (86400 * 9 + 60, "in 9 d", "yellow")])
async def test_certificates_that_expire_soon_are_marked(left: float, text: str, style: str) -> None:
    known = Known()
    known.welcome({"now": {"clock": 1.0, "unix": 1_700_000_000.0}})
    page = {"serial": 1, "total": 3, "offset": 0, "certificates": [{"path": "a.pem", "expires": 1_700_000_000 + left}]}
    known.take({"kind": "certificates", "value": page})

    title, row = instance_rows(known, 80, "info")[-2:]

    assert title.words() == "Certificates: 3, the first 1 by expiry"
    line = row.render(80)[0]
    assert text in line.plain
    assert "a.pem" in line.plain
    assert isinstance(line, Text)
    assert line.spans[0].style == style
