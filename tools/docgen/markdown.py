"""Pieces of Markdown that all generated references are made of."""

import inspect
from collections.abc import Iterable, Sequence


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, each row of which has as many cells as there are *titles*; cells are taken as they are."""
    lines = ["|" + "".join(f" {text} |" if text else " |" for text in line) for line in (titles, *rows)]
    lines.insert(1, "|---" * len(titles) + "|")
    return "\n".join(lines) + "\n"


def doc_of(thing: object) -> str:
    """Return the docstring of *thing* in one line."""
    return " ".join(inspect.cleandoc(getattr(thing, "__doc__", None) or "").split())
