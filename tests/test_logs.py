"""Log lines have the configured format and level, and values in them cannot control the terminal."""

import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

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


def test_console_line_has_the_same_fields_without_colours_outside_a_terminal(
    stream: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    configure_logs("console", stream=stream)

    get_logger("deployer").warning("instance failed", endpoint="local-1")

    line = stream.getvalue()
    assert "instance failed" in line
    assert "component=deployer" in line
    assert "endpoint=local-1" in line
    assert "\x1b" not in line


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


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
