"""Options without imports of the program, so that small subcommands start fast."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """Add `--output`; *command* gets it as `output_format`."""
    return click.option(
        "--output",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="Output format.",
    )(command)


def default_state_dir() -> Path:
    """Return the default state directory: below XDG_STATE_HOME, else in the home directory, else a temporary one."""
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "haptic-trio"
    home = Path("~/.local/state").expanduser()
    return home / "haptic-trio" if home.is_absolute() else Path(tempfile.gettempdir()) / "haptic-trio"


def state_dir_option(text: str) -> Callable[[F], F]:
    """Return a decorator that adds `--state-dir` with the help *text*."""
    return click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=default_state_dir,
        show_default="the user's state directory",
        envvar="HAPTIC_STATE_DIR",
        help=text,
    )


def controller_dir_option(command: F) -> F:
    """Add `--state-dir`, which locates a controller on this machine."""
    return state_dir_option(
        "State directory of the controller, which must run on this machine. Access needs permission to read it."
    )(command)
