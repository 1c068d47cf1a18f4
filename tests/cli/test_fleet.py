"""Output of `haptic-trio fleet`, with and without an answer of the controller."""

import socket
from pathlib import Path

import pytest
from click.testing import CliRunner

from haptic_trio.cli.app import cli
from haptic_trio.cli.fleet import headline, span
from haptic_trio.cli.serving.fleet import control_path
from haptic_trio.fleet.status import GroupStatus


def invoke(state: Path, *arguments: str) -> str:
    """Return what is printed, or why nothing is."""
    result = CliRunner().invoke(cli, ["fleet", *arguments, "--state-dir", str(state)])
    assert result.exit_code
    return result.output + str(result.exception or "")


def test_directory_where_no_controller_has_run_is_named_and_not_made(tmp_path: Path) -> None:
    assert f"{tmp_path / 'state'}: no controller has run with this state directory" in invoke(
        tmp_path / "state", "list"
    )
    assert not (tmp_path / "state").exists()


def test_controller_that_does_not_run_is_missed(tmp_path: Path) -> None:
    assert "start `haptic-trio serve`" in invoke(tmp_path, "list")


def test_socket_that_a_killed_controller_has_left_is_not_a_controller(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(control_path(tmp_path)))
    assert "start `haptic-trio serve`" in invoke(tmp_path, "show", "local-1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("rotate",), "give one instance, or --all"),
        (("rotate", "local-1", "--all"), "give one instance, or --all"),
        (("resize",), "give a size, or --reset"),
        (("resize", "3", "--reset"), "give a size, or --reset"),
        (("resize", "65"), "65 is not in the range"),
        (("drain",), "Missing argument 'INSTANCE'"),
    ],
)
def test_contradicting_arguments_are_usage_errors(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert words in invoke(tmp_path, *arguments)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0s"), (59.9, "59s"), (60, "1m"), (95, "1m35s"), (3600, "1h"), (11_520, "3h12m"), (90_000, "1d1h")],
)
def test_times_are_written_in_two_units(seconds: float, text: str) -> None:
    assert span(seconds) == text


def test_headline_shows_a_requested_size() -> None:
    group = GroupStatus(name="local", size=5, ready=3)
    assert headline(group) == "local: 3 ready of 5"
    asked = GroupStatus(name="local", size=5, ready=3, configured_size=2)
    assert headline(asked) == "local: 3 ready of 5 (requested; configured: 2)"
