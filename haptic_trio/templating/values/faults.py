"""Faults of templates and their data, and hints that name the nearest existing name."""

import difflib
from collections.abc import Iterable
from typing import Any

from jinja2 import UndefinedError

from haptic_trio.errors import HapticError


class TemplateFaultError(HapticError):
    """A template or its data is at fault; trying again helps after either has changed."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)


class NamedFaultError(TemplateFaultError):
    """A name or path that a template gives cannot be used; its quotation is shown only if a template contains it."""


class ContentUnavailableError(TemplateFaultError):
    """Only the identity of an object is present; subclasses document whether trying again helps."""


class MissingValueError(UndefinedError):
    """A template used an absent value; trying again helps after the template or the object has changed."""

    def __init__(self, message: str | None = None) -> None:
        text, _, self.hint = (message or "").partition("\n")
        super().__init__(text)


def nearest(name: str, known: Iterable[Any]) -> str:
    """Return the known name most similar to *name*; empty if none is similar."""
    found = difflib.get_close_matches(name, [str(item) for item in known], 1, 0.6)
    return found[0] if found else ""


def did_you_mean(name: str, known: Iterable[Any]) -> str:
    """Return a hint that names the most similar of *known*; empty if none is similar."""
    found = nearest(name, known)
    return f"did you mean {found!r}?" if found else ""
