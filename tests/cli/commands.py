"""The command line, run in process."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

from click.testing import CliRunner, Result

from haptic_trio.cli.app import cli

Invoke: TypeAlias = Callable[..., Result]


def invoke_cli(*arguments: str | Path) -> Result:
    """Run a command line; the result has exit code, standard output and standard error."""
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def replace_in(path: Path, old: str, new: str) -> None:
    """Edit a file: *old*, which must be there, becomes *new*."""
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
