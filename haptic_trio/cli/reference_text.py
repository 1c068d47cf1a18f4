"""Pieces of Markdown that all generated references are made of."""

import inspect
import re
from collections.abc import Iterable, Sequence


def cell(text: str) -> str:
    """Return *text* as the content of a table's cell."""
    return re.sub(r"\s+", " ", text).strip().replace("|", "\\|")


def table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, each row of which has as many cells as there are *titles*; cells are taken as they are."""
    lines = ["|" + "".join(f" {text} |" if text else " |" for text in line) for line in (titles, *rows)]
    lines.insert(1, "|---" * len(titles) + "|")
    return "\n".join(lines) + "\n"


def doc_of(thing: object) -> str:
    """Return the docstring of *thing* in one line."""
    return " ".join(inspect.cleandoc(getattr(thing, "__doc__", None) or "").split())
