"""The command line as users type it, in a directory with the site that `haptic-trio new` makes."""

import sys
from pathlib import Path

import msgspec
import pytest

from haptic_trio.cli.main import main
from tests.cli.commands import invoke_cli, replace_in

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: edge, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: me, user: {token: abc}}]
contexts: [{name: dev, context: {cluster: edge, user: me}}]
current-context: dev
"""


class Answer(msgspec.Struct, frozen=True):
    """What a command printed."""

    exit_code: int
    output: str
    """Both streams, errors first, with single spaces."""


class Shell:
    """Runs commands in the current directory."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self._capsys = capsys

    def run(self, command: str) -> Answer:
        """Run *command*, without the name of the program, and return the answer; fails for a traceback."""
        self.monkeypatch.setattr(sys, "argv", ["haptic-trio", *command.split()])
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        printed = self._capsys.readouterr()
        output = " ".join((printed.err + printed.out).split())
        assert "Traceback" not in output
        code = ended.value.code
        return Answer(code if isinstance(code, int) else int(code is not None), output)


def make_site(directory: Path) -> None:
    """Make `site` in *directory*."""
    assert invoke_cli("new", directory / "site").exit_code == 0


def edit(file: str, *changes: tuple[str, str]) -> None:
    """Edit *file* of the site: in each change, the first text becomes the second."""
    for old, new in changes:
        replace_in(Path("site") / file, old, new)
