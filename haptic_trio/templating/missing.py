"""Undefined values that name the nearest existing one in their error."""

import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from jinja2 import StrictUndefined, UndefinedError
from jinja2.utils import missing

from haptic_trio.templating.incremental.run import current_run


class MissingValueError(UndefinedError):
    """Something absent was used; trying again helps after the template or the object has changed."""

    def __init__(self, message: str | None = None) -> None:
        text, _, self.hint = (message or "").partition("\n")
        super().__init__(text)


class MissingValue(StrictUndefined):
    """Absent: may be tested and defaulted, everything else raises `MissingValueError`."""

    __slots__ = ("_place",)

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: type[Exception] = MissingValueError,
        *,
        place: str = "",
    ) -> None:
        super().__init__(hint, obj, name, exc)  # type: ignore[arg-type]
        self._place = place

    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        name = str(self._undefined_name)
        if self._undefined_obj is missing:
            try:
                known = tuple(current_run().variables)
            except LookupError:
                known = ()
            return f"{name!r} is not defined\n{did_you_mean(name, known)}"
        owner = f"'{self._place}'" if self._place else "the value"
        if self._undefined_obj is None:
            return f"{owner} is null and has no {name!r}\n"
        if isinstance(self._undefined_obj, Mapping):
            return f"{owner} has no {name!r}\n{did_you_mean(name, self._undefined_obj)}"
        kind = type(self._undefined_obj).__name__
        return f"{owner} (a {kind}) has no {name!r}\n"


def nearest(name: str, known: Iterable[Any]) -> str:
    """Return the known name most like *name*; empty if none is alike."""
    found = difflib.get_close_matches(name, [str(item) for item in known], 1, 0.6)
    return found[0] if found else ""


def did_you_mean(name: str, known: Iterable[Any]) -> str:
    """Return a hint that names the nearest of *known*; empty if none is alike."""
    found = nearest(name, known)
    return f"did you mean {found!r}?" if found else ""
