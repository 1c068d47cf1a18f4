"""Traces from events: one for each reconciliation, with a span for each instance.

A trace is put together from outside: nothing that renders, validates or
deploys knows of it. Attributes are numbers, names of instances and words of
our own; what others have written (messages of HAProxy, templates, objects) is
left out, because it may hold secrets.
"""

from collections import OrderedDict
from collections.abc import Mapping
from typing import Protocol, TypeAlias

import msgspec

from haptic_trio import messages as m
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.telemetry.accounts import kind_of, reload_label

MOST_OPEN = 200
"""Maximum number of open traces; beyond it, the oldest is ended."""

Attributes: TypeAlias = Mapping[str, str | int | float | bool]


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A finished span of a trace."""

    name: str
    began: float
    """Clock time."""
    ended: float
    attributes: Attributes = {}
    failure: str = ""
    """Reason of a failure, without text from outside; empty after a success."""
    parts: tuple["Piece", ...] = ()


class SpanSink(Protocol):
    """Receiver of spans. Never blocks."""

    def begin(self, correlation: str, began: float, attributes: Attributes) -> None:
        """Start the trace of *correlation*."""
        ...

    def add(self, correlation: str, piece: Piece) -> None:
        """Add a span, also after the end of the trace; ignored if there is no such trace."""
        ...

    def end(self, correlation: str, ended: float, attributes: Attributes, failure: str = "") -> None:
        """End the trace of *correlation*."""
        ...


class _Open(msgspec.Struct):
    """State of a reconciliation with an open trace."""

    triggered: float
    rendered: float = 0.0
    """Seconds of rendering already added as spans: a cycle may render more than once."""
    is_prepared: bool = False
    ready: float = 0.0
    """Clock time at which the first generation was ready to deploy."""


class Traces:
    """Makes traces from events and passes them to *sink*."""

    def __init__(self, sink: SpanSink) -> None:
        self._sink = sink
        self._open: OrderedDict[str, _Open] = OrderedDict()

    def take(self, event: msgspec.Struct, now: float) -> None:  # noqa: C901  one case for each event type
        """Record *event*, which happened at *now*."""
        match event:
            case m.ReconcileTriggered():
                self._begin(event, now)
            case m.ReconcileStarted():
                if (cycle := self._open.get(event.correlation)) is not None:
                    self._add(event.correlation, Piece(name="wait", began=cycle.triggered, ended=now))
            case m.ConfigRendered():
                self._take_rendered(event, now)
            case m.ConfigPrepared() | m.ConfigValidated():
                self._take_made(event, now)
            case m.DeploymentScheduled():
                self._take_scheduled(event, now)
            case m.InstanceDeployed():
                self._add(event.correlation, _deployed(event.result, now))
            case m.InstanceFailed():
                attributes = {"haptic.instance": event.endpoint, "haptic.kind": "failed"}
                failure = "deployment to the instance failed"
                began = now - event.seconds
                self._add(
                    event.correlation,
                    Piece(name="deploy", began=began, ended=now, attributes=attributes, failure=failure),
                )
            case m.ReconcileFailed():
                self._take_failed(event, now)
            case m.ReconcileCompleted():
                self._end(event.correlation, now, event.outcome.value)
            case m.IterationEnded():
                for correlation in tuple(self._open):
                    self._end(correlation, now, "iteration ended")

    def close(self, now: float) -> None:
        """End all open traces."""
        for correlation in tuple(self._open):
            self._end(correlation, now, "process ended")

    def _begin(self, event: m.ReconcileTriggered, now: float) -> None:
        began = min(event.seen, now) if event.changes else now
        attributes: Attributes = {
            "haptic.correlation": event.correlation,
            "haptic.reason": event.reason.value,
            "haptic.changes": event.changes,
        }
        self._open[event.correlation] = _Open(now)
        self._sink.begin(event.correlation, began, attributes)
        if event.changes:
            self._add(event.correlation, Piece(name="debounce", began=began, ended=now))
        if len(self._open) > MOST_OPEN:
            self._end(next(iter(self._open)), now, "given up")

    def _take_rendered(self, event: m.ConfigRendered, now: float) -> None:
        cycle = self._open.get(event.correlation)
        if cycle is None:
            return
        attributes: Attributes = {
            "haptic.fragments.rendered": event.fragments_rendered,
            "haptic.fragments.reused": event.fragments_reused,
            "haptic.config.bytes": event.bytes,
            "haptic.files": event.files,
        }
        began = now - max(0.0, event.seconds - cycle.rendered)
        cycle.rendered = event.seconds
        self._add(event.correlation, Piece(name="render", began=began, ended=now, attributes=attributes))

    def _take_made(self, event: m.ConfigPrepared | m.ConfigValidated, now: float) -> None:
        cycle = self._open.get(event.correlation)
        phases = event.phases
        attributes: Attributes = {"haptic.generation": event.generation.id[:12]}
        checked = phases.check if isinstance(event, m.ConfigValidated) else 0.0
        if cycle is not None and not cycle.is_prepared:
            cycle.is_prepared = True
            ended = now - checked
            self._add(event.correlation, Piece(name="validate", began=ended - phases.parse, ended=ended))
        if isinstance(event, m.ConfigValidated):
            attributes = {**attributes, "haptic.warnings": len(event.warnings)}
            self._add(event.correlation, Piece(name="check", began=now - checked, ended=now, attributes=attributes))
        if cycle is not None:
            cycle.ready = now

    def _take_scheduled(self, event: m.DeploymentScheduled, now: float) -> None:
        cycle = self._open.get(event.correlation)
        attributes: Attributes = {
            "haptic.why": event.why,
            "haptic.instances": len(event.endpoints),
            "haptic.may_reload": event.may_reload,
        }
        began = cycle.ready if cycle is not None and cycle.ready else now
        self._add(event.correlation, Piece(name="schedule", began=began, ended=now, attributes=attributes))

    def _take_failed(self, event: m.ReconcileFailed, now: float) -> None:
        name = {"parse": "validate"}.get(event.phase, event.phase)
        seconds = getattr(event.phases, event.phase, 0.0)
        if event.phase == "render" and (cycle := self._open.get(event.correlation)) is not None:
            seconds = max(0.0, seconds - cycle.rendered)
        self._add(event.correlation, Piece(name=name, began=now - seconds, ended=now, failure="rejected"))
        self._end(event.correlation, now, "failed", failure=f"rejected in phase {event.phase}")

    def _add(self, correlation: str, piece: Piece) -> None:
        self._sink.add(correlation, piece)

    def _end(self, correlation: str, now: float, outcome: str, failure: str = "") -> None:
        if self._open.pop(correlation, None) is not None:
            self._sink.end(correlation, now, {"haptic.outcome": outcome}, failure)


def _deployed(result: SyncResult, now: float) -> Piece:
    began = now - result.seconds
    attributes: dict[str, str | int | float | bool] = {
        "haptic.instance": result.endpoint,
        "haptic.kind": kind_of(result),
        "haptic.operations": result.operations,
        "haptic.holds_back": bool(result.held),
    }
    if result.reloaded:
        attributes["haptic.reload.reason"] = reload_label(result.reasons)
    plan = Piece(name="plan", began=began + result.observed, ended=began + result.planned)
    return Piece(name="deploy", began=began, ended=now, attributes=attributes, parts=(plan,))
