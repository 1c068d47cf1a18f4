"""Filters for origins of CORS: lists of them, and patterns that match them.

Values that are no origin raise `EmitError`.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from haptic_trio.templating.filters.emit import EmitError, number_text
from haptic_trio.templating.filters.emitters import pattern, regex_escape
from haptic_trio.templating.values.text import Emitted

_ORIGIN: Final = re.compile(r"[a-z][a-z0-9+.-]*://(?:\*\.)?[a-z0-9.-]+(?::(?:[0-9]{1,5}|\*))?").fullmatch
_HINT: Final = "a scheme and a host, such as https://*.example.com"


class Origins(NamedTuple):
    """The origins that a list names."""

    any: bool
    """Whether `*` is in it, which makes all other entries redundant."""
    usable: list[str]
    """Entries that `origin_pattern` takes; still data."""
    unusable: list[str]
    """Other entries; still data."""


def origins(value: Any) -> Origins:
    """The origins in a list that is separated by commas; without any usable one the list is rejected."""
    text = str(value) if isinstance(value, str) else number_text(value, "origins")
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    if "*" in entries:
        return Origins(True, [], [])
    usable = [entry for entry in entries if _ORIGIN(entry.lower())]
    if not usable:
        raise EmitError("origins: the value is not an origin", _HINT)
    return Origins(False, usable, [entry for entry in entries if not _ORIGIN(entry.lower())])


def origin_pattern(value: Any) -> Emitted:
    """A pattern, behind `--`, that is a regular expression for an Origin; `*.` stands for labels, `:*` for any port."""
    text = (str(value) if isinstance(value, str) else number_text(value, "origin_pattern")).lower()
    if not _ORIGIN(text):
        raise EmitError("origin_pattern: the value is not an origin", _HINT)
    expression = regex_escape(text).replace(r"\*\.", r"([a-z0-9-]+\.)+").replace(r":\*", ":[0-9]+")
    return pattern("^" + expression + "$")


ORIGINS: Final[dict[str, Callable[..., Any]]] = {function.__name__: function for function in (origins, origin_pattern)}
