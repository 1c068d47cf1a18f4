"""Summary of quarantined objects and warnings for people: the first of them, with their reasons."""

from collections.abc import Callable
from typing import Final

import msgspec

from haptic_trio.pipeline.rejection.quarantine import Quarantine

MOST_LISTED: Final = 50
"""Maximum number of quarantined objects, and of warnings, in a summary."""


class ObjectProblem(msgspec.Struct, frozen=True, kw_only=True):
    """A quarantined object, or a warning about an object."""

    object: str
    """`kind namespace/name`."""
    reason: str
    """`Quarantined`, or the reason of a warning."""
    problem: str
    serving: str = ""
    """Of a quarantined object: what is served instead."""

    def __str__(self) -> str:
        serving = f" (serving: {self.serving})" if self.serving else ""
        return f"{self.object}: {self.reason}: {self.problem}{serving}"


class ObjectProblems(msgspec.Struct, frozen=True, kw_only=True):
    """Problems of objects."""

    quarantined: int = 0
    """Number of quarantined objects."""
    warnings: int = 0
    """Number of warnings."""
    listed: tuple[ObjectProblem, ...] = ()
    """The first of them: quarantined objects, then warnings."""
    more: int = 0
    """Number of those that are not listed."""


class Summaries:
    """Summaries of the quarantine that *quarantine* returns, with every text passed through *clean* once."""

    def __init__(self, quarantine: Callable[[], Quarantine | None], clean: Callable[[str], str]) -> None:
        self._quarantine = quarantine
        self._clean = clean
        self._cleaned: dict[str, str] = {}
        """Texts of the latest summary. Cleaning may search for the content of every Secret."""

    def latest(self, most: int = MOST_LISTED) -> ObjectProblems:
        """Return at most *most* quarantined objects, and as many warnings."""
        quarantine = self._quarantine()
        if quarantine is None:
            return ObjectProblems()
        warnings = quarantine.warnings
        found = [
            ObjectProblem(
                object=str(entry.ref),
                reason="Quarantined",
                problem=str(msgspec.structs.replace(entry.problem, subject="", excerpt="")),
                serving="its last good version" if entry.has_fallback else "nothing",
            )
            for entry in quarantine.first_objects(most)
        ] + [ObjectProblem(object=str(one.subject), reason=one.reason, problem=one.message) for one in warnings[:most]]
        known = self._cleaned
        self._cleaned = {
            one.problem: known[one.problem] if one.problem in known else self._clean(one.problem) for one in found
        }
        return ObjectProblems(
            quarantined=quarantine.count,
            warnings=len(warnings),
            listed=tuple(msgspec.structs.replace(one, problem=self._cleaned[one.problem]) for one in found),
            more=quarantine.count + len(warnings) - len(found),
        )
