"""Timeline of reconciliations: what each changed in HAProxy, and start and duration of each phase."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from haptic_trio import messages as m
from haptic_trio.console.protocol import CycleView
from haptic_trio.console.recorder import Entry, Lightened
from haptic_trio.dataplane.endpoint import SyncResult

MOST_CYCLES = 60
MOST_REASONS = 10


def cycles_of(entries: Iterable[Entry], *, most: int = MOST_CYCLES) -> tuple[CycleView, ...]:
    """Return the newest *most* reconciliations in *entries*, oldest first."""
    found: dict[str, _Cycle] = {}
    for entry in entries:
        correlation = getattr(entry.event, "correlation", "")
        if not correlation:
            continue
        cycle = found.setdefault(correlation, _Cycle(correlation))
        cycle.take(entry)
        if isinstance(entry.event, m.DeploymentCompleted) and _is_complete(entry.event):
            _arrive(found, cycle, entry.at)
    return tuple(cycle.view() for cycle in list(found.values())[-most:])


def _is_complete(event: m.DeploymentCompleted) -> bool:
    """Whether every endpoint of the deployment runs the whole generation."""
    return bool(event.results) and not (
        event.failed or event.superseded or any(one.held or one.is_partial for one in event.results)
    )


def _arrive(found: Mapping[str, "_Cycle"], cycle: "_Cycle", at: float) -> None:
    """Note that all changes up to those of *cycle* are on all instances: each cycle has those of the former ones."""
    for earlier in found.values():
        earlier.arrive(at, by=cycle.correlation)
        if earlier is cycle:
            break


class _Cycle:
    """One reconciliation, as its events have described it so far."""

    def __init__(self, correlation: str) -> None:
        self.correlation = correlation
        self._fields: dict[str, Any] = {"correlation": correlation}
        self._operations: dict[str, dict[str, int]] = {}
        self._reloaded: set[str] = set()
        self._reasons: dict[str, None] = {}
        self._held: dict[str, tuple[str, ...]] = {}

    def view(self) -> CycleView:
        """Return the reconciliation so far."""
        most = max(self._operations.values(), key=lambda counts: sum(counts.values()), default={})
        return msgspec.convert(
            {
                **self._fields,
                "operations": most,
                "reloaded": len(self._reloaded),
                "reasons": tuple(self._reasons)[:MOST_REASONS],
                "held": tuple(dict.fromkeys(why for held in self._held.values() for why in held))[:MOST_REASONS],
            },
            CycleView,
        )

    def arrive(self, at: float, *, by: str) -> None:
        """Note that every instance has the changes at the time *at*, by the reconciliation *by*."""
        self._held.clear()
        since = self._fields.get("seen") or self._fields.get("triggered")
        if since is not None and "traffic" not in self._fields:
            self._fields["traffic"] = max(0.0, at - since)
            self._fields["served_by"] = by if by != self.correlation else ""

    def take(self, entry: Entry) -> None:
        """Take in an event of the reconciliation."""
        fields = self._fields
        match entry.event:
            case m.ReconcileTriggered() as event:
                fields.update(seen=event.seen, triggered=entry.at, reason=event.reason.value, changes=event.changes)
                fields["objects"] = tuple(map(str, event.objects))
            case m.ReconcileStarted() as event:
                fields.update(started=entry.at, reason=event.reason.value, changes=event.changes)
            case m.ConfigRendered() as event:
                # A cycle that quarantines an object renders again: the last render counts.
                fields.update(render=event.seconds, rendered=event.fragments_rendered, reused=event.fragments_reused)
            case Lightened(phases=m.Phases() as phases):
                fields.update(render=phases.render, parse=phases.parse)
                if phases.check:
                    fields["check"] = phases.check
            case m.DeploymentStarted():
                fields.setdefault("deploy_started", entry.at)
            case m.InstanceDeployed() as event:
                self._take_result(event.result)
            case m.DeploymentCompleted() as event:
                # Data is deployed first, the rest after the check: do not count the time between them.
                fields["deploy_seconds"] = fields.get("deploy_seconds", 0.0) + event.seconds
            case m.ReconcileCompleted() as event:
                fields.update(outcome=event.outcome.value, ended=entry.at)
            case m.ReconcileFailed() as event:
                fields.update(outcome=f"failed in {event.phase}", ended=entry.at)

    def _take_result(self, result: SyncResult) -> None:
        counts = self._operations.setdefault(result.endpoint, {})
        for kind, count in result.changes.items():
            counts[kind] = counts.get(kind, 0) + count
        if result.reloaded:
            self._reloaded.add(result.endpoint)
            self._reasons.update(dict.fromkeys(result.reasons))
        self._held[result.endpoint] = result.held
