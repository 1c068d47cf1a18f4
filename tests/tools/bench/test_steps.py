"""Lines and the live view about what a benchmark measures."""

import sys

import pytest

from haptic_trio.cli.output.progress import showing_steps
from tests.cli.output.test_progress import Terminal
from tools.bench import steps
from tools.bench.steps import announcing


def test_each_step_is_a_line_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    with announcing() as say:
        say("api, 100: writing objects")
        say("api, 100: cold start")

    assert capsys.readouterr() == ("", "api, 100: writing objects\napi, 100: cold start\n")


def test_what_is_measured_is_shown_with_its_time_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(steps, "showing_steps", lambda stream: showing_steps(stream, delay=0.0))

    with announcing() as say:
        say("api, 100: writing objects")
        terminal.wait_for("measuring api, 100  0:00:0")
