"""Causes of a reload: the namespaces whose changes need it, by the names of sections and the origins of files."""

import re
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Final
from urllib.parse import unquote

from haptic_trio.chunked import Piece, changed_items
from haptic_trio.haproxy.model import BY_LINE, AuxFile, Config, FileChange, Section

UNKNOWN: Final = ""
"""Stands for changes that belong to no known namespace, such as those of a frontend that all share."""
UNATTRIBUTED: Final = frozenset({UNKNOWN})
"""The namespaces of a change that belongs to no known one; no namespace is slowed down for it."""

# Names of backends begin with a namespace, and those of a route with filters also have that of the route.
_NAMED: Final = re.compile(
    r"(?:(?<![\w.:-])|::)(?:[A-Z]+[A-Za-z]*Route_)?([a-z0-9.-]+)_|\b[A-Z]+[A-Za-z]*Route/([a-z0-9.-]+)/"
)


def namespace_of_change(change: Section | FileChange) -> str:
    """Return the namespace whose objects have made *change*; `UNKNOWN` if none has, or several have."""
    return _of_section(change) if isinstance(change, Section) else _of_file(change)


def namespace_of_backend(name: str) -> str:
    """Return the namespace that the name of a backend begins with; `UNKNOWN` if there is none."""
    return _of_name(name, 0)


def namespaces_named(text: str) -> frozenset[str]:
    """Return the namespaces in names of backends and in keys of routes in *text*, an entry of a map."""
    return frozenset(first or second for first, second in _NAMED.findall(without_percents(text)))


def without_percents(text: str) -> str:
    """Return *text*, an entry of a map, in which names of sections and keys of routes may be percent-encoded."""
    return unquote(text) if "%" in text else text


def serves_others(config: Config, namespaces: AbstractSet[str]) -> bool:
    """Whether *config* has backends of a namespace that is not among *namespaces*."""
    return any(found - namespaces - UNATTRIBUTED for found in config.sections.summaries(_namespaces_of_backends))


def _namespaces_of_backends(sections: Sequence[Section]) -> frozenset[str]:
    return frozenset(_of_section(section) for section in sections if section.kind == "backend")


def _of_section(section: Section) -> str:
    # In names of userlists, the namespace is the second part.
    return _of_name(section.name, int(section.kind == "userlist"))


def _of_name(name: str, place: int) -> str:
    # The namespace is the part of a name before the first `_`, without beginnings such as `rate-limit::`. Names of
    # sections that all namespaces share have no `_`.
    beginning, separator, rest = name.partition("::")
    while separator and "_" not in beginning:
        name = rest
        beginning, separator, rest = name.partition("::")
    parts = name.split("_")
    return parts[place] if len(parts) > place + 1 else UNKNOWN


def _of_file(change: FileChange) -> str:
    files = [file for file in (change.running, change.desired) if file is not None]
    known = {file.namespace for file in files} - UNATTRIBUTED
    if known or any(file.kind not in BY_LINE for file in files):
        # A file that was read from a disk has no namespace.
        return known.pop() if len(known) == 1 else UNKNOWN
    old, new = changed_items(_pieces(change.running), _pieces(change.desired))
    before, after = _lines(old), _lines(new)
    of_lines = {(before | after)[line] for line in before.keys() ^ after.keys()}
    return of_lines.pop() if len(of_lines) == 1 else UNKNOWN


def _pieces(file: AuxFile | None) -> tuple[Piece, ...]:
    return tuple(file.lines.pages) if file is not None else ()


def _lines(pieces: list[Piece]) -> dict[str, str]:
    """Return the namespaces of the lines of *pieces*; blanks around a line do not count."""
    found: dict[str, str] = {}
    for piece in pieces:
        subject = getattr(piece.origin, "subject", None)
        namespace = str(subject.namespace) if subject is not None else UNKNOWN
        found.update((line.strip(), namespace) for line in piece.text.split("\n"))
    return found
