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

    def take(self, fact: msgspec.Struct, now: float) -> None:  # noqa: C901  one case for each event type
        """Record *fact*, which happened at *now*."""
        match fact:
            case m.ReconcileTriggered():
                self._begin(fact, now)
            case m.ReconcileStarted():
                if (cycle := self._open.get(fact.correlation)) is not None:
                    self._add(fact.correlation, Piece(name="wait", began=cycle.triggered, ended=now))
            case m.ConfigRendered():
                self._take_rendered(fact, now)
            case m.ConfigPrepared() | m.ConfigValidated():
                self._take_made(fact, now)
            case m.DeploymentScheduled():
                self._take_scheduled(fact, now)
            case m.InstanceDeployed():
                self._add(fact.correlation, _deployed(fact.result, now))
            case m.InstanceFailed():
                attributes = {"haptic.instance": fact.endpoint, "haptic.kind": "failed"}
                failure = "deployment to the instance failed"
                began = now - fact.seconds
                self._add(
                    fact.correlation,
                    Piece(name="deploy", began=began, ended=now, attributes=attributes, failure=failure),
                )
            case m.ReconcileFailed():
                self._take_failed(fact, now)
            case m.ReconcileCompleted():
                self._end(fact.correlation, now, fact.outcome.value)
            case m.IterationEnded():
                for correlation in tuple(self._open):
                    self._end(correlation, now, "iteration ended")

    def close(self, now: float) -> None:
        """End all open traces."""
        for correlation in tuple(self._open):
            self._end(correlation, now, "process ended")

    def _begin(self, fact: m.ReconcileTriggered, now: float) -> None:
        began = min(fact.seen, now) if fact.changes else now
        attributes: Attributes = {
            "haptic.correlation": fact.correlation,
            "haptic.reason": fact.reason.value,
            "haptic.changes": fact.changes,
        }
        self._open[fact.correlation] = _Open(now)
        self._sink.begin(fact.correlation, began, attributes)
        if fact.changes:
            self._add(fact.correlation, Piece(name="debounce", began=began, ended=now))
        if len(self._open) > MOST_OPEN:
            self._end(next(iter(self._open)), now, "given up")

    def _take_rendered(self, fact: m.ConfigRendered, now: float) -> None:
        cycle = self._open.get(fact.correlation)
        if cycle is None:
            return
        attributes: Attributes = {
            "haptic.fragments.rendered": fact.fragments_rendered,
            "haptic.fragments.reused": fact.fragments_reused,
            "haptic.config.bytes": fact.bytes,
            "haptic.files": fact.files,
        }
        began = now - max(0.0, fact.seconds - cycle.rendered)
        cycle.rendered = fact.seconds
        self._add(fact.correlation, Piece(name="render", began=began, ended=now, attributes=attributes))

    def _take_made(self, fact: m.ConfigPrepared | m.ConfigValidated, now: float) -> None:
        cycle = self._open.get(fact.correlation)
        phases = fact.phases
        attributes: Attributes = {"haptic.generation": fact.generation.id[:12]}
        checked = phases.check if isinstance(fact, m.ConfigValidated) else 0.0
        if cycle is not None and not cycle.is_prepared:
            cycle.is_prepared = True
            ended = now - checked
            self._add(fact.correlation, Piece(name="validate", began=ended - phases.parse, ended=ended))
        if isinstance(fact, m.ConfigValidated):
            attributes = {**attributes, "haptic.warnings": len(fact.warnings)}
            self._add(fact.correlation, Piece(name="check", began=now - checked, ended=now, attributes=attributes))
        if cycle is not None:
            cycle.ready = now

    def _take_scheduled(self, fact: m.DeploymentScheduled, now: float) -> None:
        cycle = self._open.get(fact.correlation)
        attributes: Attributes = {
            "haptic.why": fact.why,
            "haptic.instances": len(fact.endpoints),
            "haptic.may_reload": fact.may_reload,
        }
        began = cycle.ready if cycle is not None and cycle.ready else now
        self._add(fact.correlation, Piece(name="schedule", began=began, ended=now, attributes=attributes))

    def _take_failed(self, fact: m.ReconcileFailed, now: float) -> None:
        name = {"parse": "validate"}.get(fact.phase, fact.phase)
        seconds = getattr(fact.phases, fact.phase, 0.0)
        if fact.phase == "render" and (cycle := self._open.get(fact.correlation)) is not None:
            seconds = max(0.0, seconds - cycle.rendered)
        self._add(fact.correlation, Piece(name=name, began=now - seconds, ended=now, failure="refused"))
        self._end(fact.correlation, now, "failed", failure=f"refused in phase {fact.phase}")

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
    plan = Piece(name="plan", began=began + result.surveyed, ended=began + result.planned)
    return Piece(name="deploy", began=began, ended=now, attributes=attributes, parts=(plan,))
