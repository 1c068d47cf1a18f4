"""Errors on standard error: text for people, JSON for programs."""

from collections.abc import Iterable, Mapping

import click
import msgspec

from haptic_trio.errors import ProblemsError, leaves_of
from haptic_trio.k8s.errors import ApiError


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
    """Return the message of *error*; for an OSError file name and reason, without the error number.

    For an error of an API server, also its address, the source of the credentials, and the fix.
    """
    if isinstance(error, ApiError):
        hint = f" ({error.hint})" if error.hint else ""
        return f"{error.where}: {error}{hint}" if error.where else f"{error}{hint}"
    if isinstance(error, OSError) and error.strerror and isinstance(error.filename, str | None):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def print_failures(failures: Iterable[Mapping[str, object]]) -> None:
    """Print *failures* as one JSON document, `{"errors": […]}`, on standard error."""
    document = {"errors": list(failures)}
    click.echo(msgspec.json.format(msgspec.json.encode(document), indent=2), err=True)
