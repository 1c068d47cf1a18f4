"""Errors on standard error: text for people, JSON for programs."""

from collections.abc import Iterable, Mapping

import click
import msgspec

from haptic_trio.errors import ProblemsError, leaves_of, text_of
from haptic_trio.k8s.errors import ApiError

_MISSING_PACKAGE = "install haptic-trio with its requirements; the image for agents has those of `agent` only"


def failures_of(error: BaseException) -> list[dict[str, object]]:
    """Return each leaf of *error* as plain data: `message`, and all fields of a problem."""
    return [entry for leaf in leaves_of(error) for entry in _entries_of(leaf)]


def _entries_of(error: BaseException) -> list[dict[str, object]]:
    if isinstance(error, ProblemsError):
        return [
            {name: value for name, value in msgspec.structs.asdict(problem).items() if value}
            for problem in error.problems
        ]
    if isinstance(error, click.ClickException):
        return [{"message": error.format_message()}]
    return [{"message": words_of(error)}]


def words_of(error: BaseException) -> str:
    """Return `text_of` *error*, with more for two kinds.

    For an error of an API server also its address, the source of the
    credentials, and the fix; for a module that is missing, its package.
    """
    if isinstance(error, ApiError):
        hint = f" ({error.hint})" if error.hint else ""
        return f"{error.where}: {error}{hint}" if error.where else f"{error}{hint}"
    if isinstance(error, ModuleNotFoundError):
        return f"the Python package {(error.name or '').partition('.')[0]} is not installed; {_MISSING_PACKAGE}"
    return text_of(error)


def print_failures(failures: Iterable[Mapping[str, object]]) -> None:
    """Print *failures* as one JSON document, `{"errors": […]}`, on standard error."""
    document = {"errors": list(failures)}
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2), err=True)
