"""Progress on a terminal."""

import io
import re
from threading import Condition
from typing import Final

import pytest

from haptic_trio.cli.output.progress import showing_steps

LIMIT: Final = 20.0
_CONTROL: Final = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._changed = Condition()

    def write(self, text: str, /) -> int:
        with self._changed:
            self._changed.notify_all()
            return super().write(text)

    def wait_for(self, text: str) -> None:
        """Return once *text* has been shown."""
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.shown, LIMIT)

    def isatty(self) -> bool:
        return True

    @property
    def shown(self) -> str:
        return _CONTROL.sub("", self.getvalue())


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "100")
    return Terminal()


def test_present_step_is_shown_with_its_count_and_removed_at_the_end(terminal: Terminal) -> None:
    with showing_steps(terminal, delay=0.0) as steps:
        steps.begin("reading manifests: files", lambda: (1500, 3000))
        terminal.wait_for("reading manifests: files 1,500 of 3,000 0:00:0")
        steps.begin("rendering 3,000 objects")
        terminal.wait_for("rendering 3,000 objects")

    assert terminal.getvalue().endswith("\x1b[2K")


def test_what_takes_less_than_a_second_shows_nothing(terminal: Terminal) -> None:
    with showing_steps(terminal) as steps:
        steps.begin("reading manifests: files", lambda: (1, 2))

    assert terminal.shown == ""


def test_nothing_is_shown_outside_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    stream = io.StringIO()

    with showing_steps(stream, delay=0.0) as steps:
        steps.begin("reading manifests: files")

    assert stream.getvalue() == ""


def test_nothing_is_shown_on_a_terminal_that_cannot_go_back_in_a_line(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")

    with showing_steps(terminal, delay=0.0) as steps:
        steps.begin("reading manifests: files")

    assert terminal.shown == ""


def test_failed_command_leaves_the_terminal_in_order(terminal: Terminal) -> None:
    def fail() -> None:
        with showing_steps(terminal, delay=0.0) as steps:
            steps.begin("reading manifests: files")
            terminal.wait_for("reading")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert terminal.getvalue().rfind("\x1b[?25h") > terminal.getvalue().rfind("\x1b[?25l")
