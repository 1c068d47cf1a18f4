"""Summary of quarantined objects and warnings for people: the first of them, with their reasons."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.k8s.manifests.files import is_manifest
from haptic_trio.k8s.resource import Places, nowhere
from haptic_trio.pipeline.rejection.quarantine import Quarantine
from haptic_trio.pipeline.rejection.reports import ref_of_warning
from haptic_trio.templating.values.subjects import ObjectWarning

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


def text_for_owner(problem: Problem) -> str:
    """Return *problem* of an object that is named elsewhere; file and line of a manifest first, of a template last."""
    text = str(msgspec.structs.replace(problem, source="", line=0, column=0, subject="", excerpt=""))
    place = f"{problem.source}:{problem.line}" if problem.line else problem.source
    if not place:
        return text
    return f"{place}: {text}" if is_manifest(Path(problem.source).name) else f"{text} [{place}]"


class Summaries:
    """Summaries of the quarantine that *quarantine* returns, with every text passed through *clean* once."""

    def __init__(
        self, quarantine: Callable[[], Quarantine | None], clean: Callable[[str], str], places: Places = nowhere
    ) -> None:
        self._quarantine = quarantine
        self._places = places
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
                problem=text_for_owner(entry.problem),
                serving="its last good version" if entry.has_fallback else "nothing",
            )
            for entry in quarantine.first_objects(most)
        ] + [
            ObjectProblem(object=str(one.subject), reason=one.reason, problem=self._placed(one))
            for one in warnings[:most]
        ]
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

    def _placed(self, warning: ObjectWarning) -> str:
        place = self._places(ref_of_warning(warning))
        return f"{place}: {warning.message}" if place is not None else warning.message
