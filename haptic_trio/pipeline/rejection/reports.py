"""Reports of quarantined objects and warnings as events, limited for each cycle."""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

import msgspec

from haptic_trio.channels import EventBuffer
from haptic_trio.k8s.resource import Place, Places, ResourceRef, nowhere
from haptic_trio.messages import Quarantined, Released, ReportsOmitted, WarningRaised, WarningResolved
from haptic_trio.pipeline.rejection.quarantine import NameFields, Quarantine
from haptic_trio.pipeline.render import Rendered
from haptic_trio.templating.values.subjects import ObjectWarning
from haptic_trio.templating.values.warning_list import compare_warnings

T = TypeVar("T")

MOST_REPORTED: Final = 50
"""Maximum number of events of one type in one cycle: one change may concern thousands of objects."""


def report_changes(
    events: EventBuffer,
    quarantine: Quarantine,
    rendered: Rendered,
    correlation: str,
    name_fields: NameFields,
    places: Places = nowhere,
) -> None:
    """Update *quarantine* from *rendered*, and record what changed in *events*."""
    quarantine.warnings = rendered.warnings
    fresh, released = quarantine.update(rendered.rejections, name_fields)
    raised, resolved = _compare(quarantine, rendered.warnings)
    count = quarantine.count
    omitted = ReportsOmitted(
        correlation=correlation,
        released=_record(
            events, released, lambda one: Released(correlation=correlation, ref=one.ref, quarantined=count)
        ),
        quarantined=_record(
            events,
            fresh,
            lambda one: Quarantined(
                correlation=correlation,
                ref=one.ref,
                version=one.version,
                problem=one.problem,
                has_fallback=one.has_fallback,
                quarantined=count,
            ),
        ),
        warnings=_record(
            events,
            raised,
            lambda one: WarningRaised(
                correlation=correlation, warning=one, place=_text_of(places(ref_of_warning(one)))
            ),
        ),
        resolved=_record(events, resolved, lambda one: WarningResolved(correlation=correlation, warning=one)),
    )
    if omitted.quarantined or omitted.released or omitted.warnings or omitted.resolved:
        events.record(omitted)


def _compare(
    quarantine: Quarantine, current: tuple[ObjectWarning, ...]
) -> tuple[list[ObjectWarning], list[ObjectWarning]]:
    """Return the warnings of *current* that were not reported yet, and the reported ones that are resolved."""
    raised, gone = compare_warnings(quarantine.reported_warnings, current)
    quarantine.reported_warnings = current
    # The warnings of a quarantined object are unknown.
    return raised, [one for one in gone if not quarantine.is_quarantined(ref_of_warning(one))]


def _text_of(place: Place | None) -> str:
    return str(place) if place is not None else ""


def ref_of_warning(warning: ObjectWarning) -> ResourceRef:
    """Return the object that *warning* is about."""
    return ResourceRef(warning.subject.kind, warning.subject.namespace, warning.subject.name)


def _record(events: EventBuffer, items: Sequence[T], event_of: Callable[[T], msgspec.Struct]) -> int:
    """Record an event for each of the first *items*; return the number of others."""
    for item in items[:MOST_REPORTED]:
        events.record(event_of(item))
    return max(0, len(items) - MOST_REPORTED)
