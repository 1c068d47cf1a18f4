"""Undefined values that name the nearest existing one in their error."""

from collections.abc import Mapping
from typing import Any

from jinja2 import StrictUndefined
from jinja2.utils import missing

from haptic_trio.redaction.names import BLANK
from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.values.faults import MissingValueError, did_you_mean


class MissingValue(StrictUndefined):
    """Absent: may be tested and defaulted, everything else raises `MissingValueError`.

    The error shows the name if a template contains it. Any other name is data, which may come from a Secret.
    """

    __slots__ = ("_place", "_sources")

    def __init__(
        self,
        hint: str | None = None,
        obj: Any = missing,
        name: str | None = None,
        exc: type[Exception] = MissingValueError,
        *,
        place: str = "",
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """*sources* are the templates, by name; None: one of them contains *name*."""
        super().__init__(hint, obj, name, exc)  # type: ignore[arg-type]
        self._place = place
        self._sources = sources

    # `_undefined_*` is the API that Jinja documents for subclasses of `Undefined`.
    @property
    def _undefined_message(self) -> str:
        if self._undefined_hint:
            return self._undefined_hint
        name = str(self._undefined_name)
        if self._undefined_obj is missing:
            try:
                known = tuple(current_recorder().variables)
            except LookupError:
                known = ()
            return f"{name!r} is not defined\n{did_you_mean(name, known)}"
        owner = f"'{self._place}'" if self._place else "the value"
        if self._sources is not None and not any(name in source for source in self._sources.values()):
            name = BLANK
        if self._undefined_obj is None:
            return f"{owner} is null and has no {name!r}\n"
        if isinstance(self._undefined_obj, Mapping):
            return f"{owner} has no {name!r}\n{did_you_mean(name, self._undefined_obj)}"
        kind = type(self._undefined_obj).__name__
        return f"{owner} (a {kind}) has no {name!r}\n"
