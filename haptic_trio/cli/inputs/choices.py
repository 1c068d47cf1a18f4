"""Options without imports of the program, so that small subcommands start fast."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class ExistingPath(click.Path):
    """An existing file or directory; the message about another path ends with the *fix*."""

    def __init__(self, fix: str, *, is_directory: bool) -> None:
        super().__init__(exists=True, file_okay=not is_directory, dir_okay=is_directory, path_type=Path)
        self._fix = fix

    def convert(self, value: "str | os.PathLike[str]", param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """See `click.Path`."""
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter as error:
            raise click.BadParameter(f"{error.message.rstrip('.')}; {self._fix}", ctx, param) from error


MANIFESTS: Final = ExistingPath("`haptic-trio new DIR` makes one with an example", is_directory=True)
KUBECONFIG: Final = ExistingPath("give the kubeconfig that kubectl uses, such as ~/.kube/config", is_directory=False)


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
