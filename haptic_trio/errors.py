"""Root of all errors of haptic-trio, and problems with a place.

A *problem* is a fault that a user can correct: it has a source, a line if
there is one, and a hint. Every check of input (configuration,
manifests, templates, haproxy.cfg) reports a tuple of all problems.
"""

import os
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

INVALID_JSON: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of msgspec for bytes that are not JSON of the requested type; RecursionError for very many levels."""


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One fault in the input, and its place."""

    message: str
    source: str = ""
    """File, object or template, by the name that its author uses."""
    line: int = 0
    """1-based; 0 if unknown."""
    column: int = 0
    """1-based; 0 if unknown."""
    path: str = ""
    """Path inside a structure, such as `watchedResources.ingresses.indexBy[0]`."""
    hint: str = ""
    excerpt: str = ""
    """The source lines around the fault; may be several lines."""
    subject: str = ""
    """The resource concerned, as `kind namespace/name`, if known."""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part)
        head = f"{place}: " if place else ""
        path = f"{self.path}: " if self.path else ""
        subject = f" [{self.subject}]" if self.subject else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{head}{path}{self.message}{subject}{hint}"


def placed_at(problem: Problem, place: tuple[str, int]) -> Problem:
    """Return *problem* at file and line *place*; its former place, that of a template, moves to the excerpt."""
    former = f"{problem.source}:{problem.line}" if problem.line else problem.source
    excerpt = f"template {former}\n{problem.excerpt}" if former else problem.excerpt
    source, line = place
    return msgspec.structs.replace(problem, source=source, line=line, column=0, excerpt=excerpt.rstrip("\n"))


class HapticError(Exception):
    """The root of all errors that the program expects; the docstring of each says whether to try again."""


class ProblemsError(HapticError):
    """Input was rejected; trying again helps only after the input has changed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group, however deep; an error that is not a group is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error


def text_of(error: BaseException) -> str:
    """Return what *error* says, without the notation of Python; of a group, what the errors in it say."""
    return "; ".join(dict.fromkeys(map(_text_of_leaf, leaves_of(error))))


def _text_of_leaf(error: BaseException) -> str:
    text, name = str(error), type(error).__name__
    if isinstance(error, OSError) and error.strerror:
        paths = (error.filename, error.filename2)
        place = " -> ".join(os.fsdecode(path) for path in paths if isinstance(path, str | bytes | os.PathLike))
        return f"{place}: {error.strerror}" if place else error.strerror
    if isinstance(error, HapticError | OSError):
        return text or name
    # Messages of bugs are often just a value, such as the key that is missing.
    return f"{name}: {text}" if text else name
