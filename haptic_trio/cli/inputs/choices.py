"""Options without dependencies on the program, so that light subcommands start fast."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def output_option(command: F) -> F:
    """Add `--output`: the text for people, or JSON; *command* gets it as `output_format`."""
    return click.option(
        "--output",
        "output_format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="A text for people, or JSON for machines.",
    )(command)


def default_state_dir() -> Path:
    """Return where instances live when nothing is said: below XDG_STATE_HOME, or the user's own directory."""
    base = os.environ.get("XDG_STATE_HOME")
    if base:
        return Path(base) / "haptic-trio"
    home = Path("~/.local/state").expanduser()
    return home / "haptic-trio" if home.is_absolute() else Path(tempfile.gettempdir()) / "haptic-trio"


def state_dir_option(text: str) -> Callable[[F], F]:
    """Return what adds `--state-dir`, which *text* explains."""
    return click.option(
        "--state-dir",
        type=click.Path(file_okay=False, path_type=Path),
        default=default_state_dir,
        show_default="the user's state directory",
        envvar="HAPTIC_STATE_DIR",
        help=text,
    )


def controller_dir_option(command: F) -> F:
    """Add `--state-dir`, by which a controller on this machine is found."""
    return state_dir_option("That of the controller, which has to run on this machine; who may read it may ask.")(
        command
    )
