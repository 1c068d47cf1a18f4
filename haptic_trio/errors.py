"""Root of all errors of haptic-trio, and problems with a place.

A *problem* is something a person can mend: it has a source, a line where
there is one, and a hint. Everything that checks input (configuration,
manifests, templates, haproxy.cfg) reports a tuple of problems, never only
the first.
"""

from collections.abc import Iterable, Iterator

import msgspec


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """One mendable fault and where it is."""

    message: str
    source: str = ""
    """File, object or template, as its author knows it."""
    line: int = 0
    """1-based; 0 where there is no line."""
    column: int = 0
    """1-based; 0 where there is no column."""
    path: str = ""
    """Path inside a structure, such as `watchedResources.ingresses.indexBy[0]`."""
    hint: str = ""
    excerpt: str = ""
    """The source lines around the fault; may be several lines."""
    subject: str = ""
    """The resource in hand, `kind namespace/name`, where one is known."""

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.source, self.line, self.column) if part)
        head = f"{place}: " if place else ""
        path = f"{self.path}: " if self.path else ""
        subject = f" [{self.subject}]" if self.subject else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{head}{path}{self.message}{subject}{hint}"


class HapticError(Exception):
    """The root of all errors that the program expects; the docstring of each says whether to try again."""


class ProblemsError(HapticError):
    """Input was refused; trying again helps only after the input has changed."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


def leaves_of(error: BaseException) -> Iterator[BaseException]:
    """Yield the errors in a group, however deep; an error that is no group is its own leaf."""
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves_of(inner)
    else:
        yield error
