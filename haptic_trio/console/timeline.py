"""Timeline of reconciliations: start and duration of each phase."""

from collections.abc import Iterable
from typing import Any

import msgspec

from haptic_trio import messages as m
from haptic_trio.console.protocol import CycleView
from haptic_trio.console.recorder import Entry, Lightened

MOST_CYCLES = 60


def cycles_of(entries: Iterable[Entry], *, most: int = MOST_CYCLES) -> tuple[CycleView, ...]:
    """Return the newest *most* reconciliations in *entries*, oldest first."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        correlation = getattr(entry.event, "correlation", "")
        if correlation:
            cycle = found.setdefault(correlation, {"correlation": correlation})
            _take(cycle, entry)
    return tuple(msgspec.convert(cycle, CycleView) for cycle in list(found.values())[-most:])


def _take(cycle: dict[str, Any], entry: Entry) -> None:
    match entry.event:
        case m.ReconcileTriggered() as event:
            cycle.update(seen=event.seen, triggered=entry.at, reason=event.reason.value, changes=event.changes)
            cycle["objects"] = tuple(map(str, event.objects))
        case m.ReconcileStarted() as event:
            cycle.update(started=entry.at, reason=event.reason.value, changes=event.changes)
        case m.ConfigRendered() as event:
            # A cycle that quarantines an object renders again: the last render counts.
            cycle.update(render=event.seconds, rendered=event.fragments_rendered, reused=event.fragments_reused)
        case Lightened(phases=m.Phases() as phases):
            cycle.update(render=phases.render, parse=phases.parse)
            if phases.check:
                cycle["check"] = phases.check
        case m.DeploymentStarted():
            cycle.setdefault("deploy_started", entry.at)
        case m.DeploymentCompleted() as event:
            # Data is deployed first, the rest after the check: do not count the time between them.
            cycle["deploy_seconds"] = cycle.get("deploy_seconds", 0.0) + event.seconds
        case m.ReconcileCompleted() as event:
            cycle.update(outcome=event.outcome.value, ended=entry.at)
        case m.ReconcileFailed() as event:
            cycle.update(outcome=f"failed in {event.phase}", ended=entry.at)
