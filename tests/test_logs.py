"""Log lines have the configured format and level, and values in them cannot control the terminal."""

import io
import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
import structlog

from haptic_trio.errors import HapticError
from haptic_trio.logs import configure_logs, get_logger


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    yield io.StringIO()
    structlog.reset_defaults()


def test_json_line_carries_component_level_time_and_values(stream: io.StringIO) -> None:
    configure_logs("json", stream=stream)

    get_logger("deployer").info("instance reloaded", endpoint="local-1", ms=12.5)

    line = json.loads(stream.getvalue())
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "component": "deployer",
        "event": "instance reloaded",
        "level": "info",
        "endpoint": "local-1",
        "ms": 12.5,
    }


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


def test_lines_outside_a_terminal_have_the_date_in_utc_and_no_colours(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    configure_logs("console", stream=stream)

    get_logger("deployer").warning("instance failed", endpoint="local-1")

    time, rest = stream.getvalue().split(" ", 1)
    assert abs(datetime.now(UTC) - datetime.fromisoformat(time)) < timedelta(minutes=1)
    assert rest == "WARNING instance failed endpoint=local-1 component=deployer\n"


def test_lines_on_a_terminal_have_the_local_time_of_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    stream = Terminal()
    configure_logs("console", stream=stream)

    get_logger("haptic-trio").info("leadership won")

    structlog.reset_defaults()
    assert re.fullmatch(r"\d\d:\d\d:\d\d INFO    leadership won\n", stream.getvalue())


def test_fields_keep_their_order_and_times_and_ids_are_last(stream: io.StringIO) -> None:
    configure_logs("console", stream=stream)

    log = get_logger("haptic-trio").bind(instance="local-1")
    log.info("deployed", correlation="1-1", ms=2.5, outcome="done", attempts=3, check_ms=1.0)

    [line] = stream.getvalue().splitlines()
    assert line.endswith(" deployed instance=local-1 outcome=done attempts=3 ms=2.5 check_ms=1.0 correlation=1-1")


def test_each_problem_has_a_line_of_its_own(stream: io.StringIO) -> None:
    configure_logs("console", stream=stream)

    get_logger("haptic-trio").error("rejected", problems=["a.cfg:3: broken", "a.cfg:9: worse"], phase="check")
    get_logger("haptic-trio").warning("quarantined", problem="port: is taken")
    get_logger("haptic-trio").warning("more are not logged", warnings=832)
    get_logger("haptic-trio").info("reloaded", reasons=["backend a added", "backend b removed"], held=["backend c"])

    lines = [line.partition(" ")[2] if line[0] != " " else line for line in stream.getvalue().splitlines()]
    assert lines == [
        "ERROR   rejected phase=check",
        "    a.cfg:3: broken",
        "    a.cfg:9: worse",
        "WARNING quarantined",
        "    port: is taken",
        "WARNING more are not logged warnings=832",
        'INFO    reloaded held="backend c"',
        "    reasons: backend a added",
        "    reasons: backend b removed",
    ]


class Colour(Enum):
    """Any enumeration."""

    RED = "red"


def test_values_are_text_in_both_formats(stream: io.StringIO) -> None:
    values: dict[str, Any] = {
        "path": Path("/run/x"), "colour": Colour.RED, "names": ("a", Path("b")), "counts": {Colour.RED: 2},
        "empty": [], "absent": None, "held": True, "error": HapticError("the port is taken"),
    }  # fmt: skip

    configure_logs("console", stream=stream)
    get_logger("haptic-trio").info("x", **values)
    configure_logs("json", stream=stream)
    get_logger("haptic-trio").info("x", **values)

    shown, written = stream.getvalue().splitlines()
    assert shown.endswith(
        ' x path=/run/x colour=red names=a,b counts=red:2 empty=none absent=none held=yes error="the port is taken"'
    )
    assert {name: json.loads(written)[name] for name in values} == {
        "path": "/run/x", "colour": "red", "names": ["a", "b"], "counts": {"red": 2},
        "empty": [], "absent": None, "held": True, "error": "the port is taken",
    }  # fmt: skip


def test_values_neither_begin_a_line_nor_control_the_terminal(stream: io.StringIO) -> None:
    configure_logs("console", stream=stream)

    get_logger("x").warning("object has a problem", object="a\nERROR forged", problem="b\x1b[2J\nERROR forged")

    lines = stream.getvalue().splitlines()
    assert [line for line in lines if line.startswith("ERROR")] == []
    assert "\x1b" not in stream.getvalue()
    assert lines[1:] == ["    b\\x1b[2J", "    ERROR forged"]


@pytest.mark.parametrize(
    ("stream_type", "environment", "is_coloured"),
    [
        (Terminal, {}, True),
        (Terminal, {"NO_COLOR": "1"}, False),
        (io.StringIO, {"FORCE_COLOR": "1"}, True),
        (io.StringIO, {"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_colours_follow_the_terminal_and_the_environment(
    stream_type: type[io.StringIO], environment: dict[str, str], is_coloured: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    stream = stream_type()
    configure_logs("console", stream=stream)

    get_logger("x").warning("text")

    structlog.reset_defaults()
    assert ("\x1b" in stream.getvalue()) is is_coloured


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_lines_below_the_level_are_left_out(stream: io.StringIO, level: str) -> None:
    configure_logs("json", level, stream=stream)
    log = get_logger("x")

    for name in ("debug", "info", "warning", "error"):
        getattr(log, name)(name)

    order = ["debug", "info", "warning", "error"]
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == order[order.index(level) :]


def test_logger_that_was_made_before_follows_a_later_configuration(stream: io.StringIO) -> None:
    log = get_logger("early")
    configure_logs("json", stream=stream)

    log.info("here")

    assert json.loads(stream.getvalue())["component"] == "early"


def test_exception_in_json_is_one_line_with_its_traceback(stream: io.StringIO) -> None:
    configure_logs("json", stream=stream)
    try:
        Path("/nowhere").read_text()
    except OSError:
        get_logger("x").exception("failed")

    [line] = stream.getvalue().splitlines()
    assert "No such file or directory: '/nowhere'" in json.loads(line)["exception"]


def test_tracebacks_show_no_local_variables(stream: io.StringIO) -> None:
    def fail(password: str) -> None:
        raise ValueError(f"a secret of {len(password)} characters")

    configure_logs("console", "info", stream=stream)
    secret = "correct " + "horse"
    try:
        fail(secret)
    except ValueError:
        get_logger("test").exception("it failed")

    assert "a secret of 13 characters" in stream.getvalue()
    assert "correct horse" not in stream.getvalue()


def test_text_for_people_replaces_the_fields_in_console_lines_and_is_not_in_json(stream: io.StringIO) -> None:
    configure_logs("console", stream=stream)
    get_logger("haptic-trio").info("serving", routes=3, shown="Serving 3 routes.")
    configure_logs("json", stream=stream)
    get_logger("haptic-trio").info("serving", routes=3, shown="Serving 3 routes.")

    shown, written = stream.getvalue().splitlines()
    assert shown.endswith("Z INFO    Serving 3 routes.")
    assert json.loads(written).keys() == {"component", "event", "level", "routes", "timestamp"}
