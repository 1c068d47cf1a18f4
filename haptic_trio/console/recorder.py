"""Bounded recorder of recent events, and their totals.

Recording an event costs one append; the views for clients are computed on
request.
"""

import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import trio

from haptic_trio import messages as m
from haptic_trio.console.protocol import EventView, InstanceView, ReloadView, StageView
from haptic_trio.k8s.resource import ResourceRef

MOST_EVENTS = 1000
MOST_INSTANCES = 1000
MOST_SOURCES = 100
MOST_OBJECTS = 10

Formatter: TypeAlias = Callable[[Any], tuple[str, str, dict[str, Any]]]
"""Returns level, message and fields of an event."""
Clean: TypeAlias = Callable[[Any], Any]
"""Returns a JSON value with secrets redacted."""


class Entry(msgspec.Struct, frozen=True):
    """A recorded event."""

    number: int
    at: float
    event: msgspec.Struct
    line: tuple[str, str, dict[str, Any]]
    """Level, message and fields, if they are computed when the event is recorded."""


class Recorder:
    """The latest events, and the current state that they describe.

    *formatter_of* returns the formatter of an event type. Events with texts from
    outside pass *clean* at once: a Secret may be unknown later.
    """

    def __init__(
        self,
        formatter_of: Callable[[type[msgspec.Struct]], Formatter | None],
        clean: Clean,
        *,
        clock: Callable[[], float] = trio.current_time,
    ) -> None:
        self.stages: list[StageView] = []
        self.instances: dict[str, InstanceView] = {}
        self.problems: dict[str, tuple[str, ...]] = {}
        self.quarantined = 0
        self.last = 0
        """Number of the newest event."""
        self._formatter_of = formatter_of
        self._clean = clean
        self._clock = clock
        self._entries: deque[Entry] = deque(maxlen=MOST_EVENTS)

    def observe(self, event: msgspec.Struct) -> None:
        """Record *event*; never blocks."""
        self.last += 1
        now = self._clock()
        line: tuple[str, str, dict[str, Any]] = ("", "", {})
        if _has_foreign_text(event):
            line = self._line_of(event)
        self._entries.append(Entry(self.last, now, _light(event), line))
        self._follow(event, now)

    def entries(self, since: int = 0) -> list[Entry]:
        """Return the recorded events after number *since*."""
        return [entry for entry in self._entries if entry.number > since]

    def events(self, since: int = 0, *, most: int = MOST_EVENTS) -> tuple[EventView, ...]:
        """Return the views of events after number *since*, at most the newest *most*."""
        return tuple(self._view(entry) for entry in self.entries(since)[-most:])

    def _view(self, entry: Entry) -> EventView:
        event = entry.event
        level, text, fields = entry.line if entry.line[0] else self._line_of(event)
        return EventView(
            number=entry.number,
            at=entry.at,
            kind=event.kind if isinstance(event, Lightened) else type(event).__name__,
            correlation=getattr(event, "correlation", ""),
            level=level,
            text=text,
            fields=fields,
        )

    def _line_of(self, event: msgspec.Struct) -> tuple[str, str, dict[str, Any]]:
        if isinstance(event, Lightened):
            return event.line
        formatter = self._formatter_of(type(event))
        if formatter is None:
            return "debug", type(event).__name__, {}
        level, text, fields = formatter(event)
        plain = msgspec.to_builtins(fields, enc_hook=str)
        return level, text, self._clean(plain) if _has_foreign_text(event) else plain

    def _follow(self, event: msgspec.Struct, now: float) -> None:
        match event:
            case m.StageReached():
                if event.stage == 1:
                    self.stages = []
                self.stages.append(StageView(stage=event.stage, name=event.name, seconds=event.seconds))
            case m.InstanceDeployed():
                self._put_deployed(event, now)
            case m.InstanceFailed():
                known = self.instances.get(event.endpoint, InstanceView(name=event.endpoint))
                self.instances[event.endpoint] = InstanceView(
                    name=event.endpoint,
                    generation=known.generation,
                    reloads=known.reloads,
                    last_reload=known.last_reload,
                    correlation=event.correlation,
                    at=now,
                    seconds=event.seconds,
                    error=self._clean(event.error),
                )
            case m.DeploymentStarted():
                self._generation = event.generation
            case m.EndpointsDiscovered():
                names = {endpoint.name for endpoint in event.endpoints[:MOST_INSTANCES]}
                self.instances = {name: self.instances.get(name, InstanceView(name=name)) for name in sorted(names)}
            case m.Quarantined() | m.Released():
                self.quarantined = event.quarantined
            case m.IterationEnded():
                self.quarantined = 0
            case m.ProblemsReported():
                self._put_problems(event)

    _generation = ""

    def _put_deployed(self, event: m.InstanceDeployed, now: float) -> None:
        result = event.result
        if result.endpoint not in self.instances and len(self.instances) >= MOST_INSTANCES:
            return
        known = self.instances.get(result.endpoint, InstanceView(name=result.endpoint))
        last_reload = known.last_reload
        if result.reloaded:
            last_reload = ReloadView(
                at=now,
                correlation=event.correlation,
                reasons=result.reasons,
                objects=self._objects_of(event.correlation),
            )
        self.instances[result.endpoint] = InstanceView(
            name=result.endpoint,
            generation=self._generation[:12],
            correlation=event.correlation,
            at=now,
            seconds=result.seconds,
            operations=result.operations,
            reloaded=result.reloaded,
            reasons=result.reasons,
            held=result.held,
            reloads=known.reloads + result.reloaded,
            last_reload=last_reload,
        )

    def _objects_of(self, correlation: str) -> tuple[str, ...]:
        """Return the names of the first objects whose changes the cycle *correlation* covers.

        It also covers the triggers that waited while the cycle before it ran.
        """
        found: list[tuple[ResourceRef, ...]] = []
        is_inside = False
        for entry in reversed(self._entries):
            match entry.event:
                case m.ReconcileStarted() as event:
                    if is_inside:
                        break
                    is_inside = event.correlation == correlation
                case m.ReconcileTriggered() as event if is_inside:
                    found.append(event.objects)
        return tuple(dict.fromkeys(str(ref) for refs in reversed(found) for ref in refs))[:MOST_OBJECTS]

    def _put_problems(self, event: m.ProblemsReported) -> None:
        self.problems.pop(event.source, None)
        if event.problems and len(self.problems) < MOST_SOURCES:
            self.problems[event.source] = tuple(self._clean(str(problem)) for problem in event.problems[:20])


class Lightened(msgspec.Struct, frozen=True, kw_only=True):
    """Summary of an event, which does not keep the configuration in the event alive."""

    kind: str
    line: tuple[str, str, dict[str, Any]]
    correlation: str = ""
    phases: m.Phases | None = None


_WITH_FOREIGN_TEXT = (
    m.ConfigInvalid,
    m.HttpContentRejected,
    m.InstanceFailed,
    m.InstanceOperationFailed,
    m.ProblemsReported,
    m.Quarantined,
    m.ReconcileFailed,
    m.ValidationFailed,
    m.WarningRaised,
    m.WarningResolved,
)


def _has_foreign_text(event: msgspec.Struct) -> bool:
    """Whether *event* has texts from outside, such as a message of HAProxy."""
    return isinstance(event, _WITH_FOREIGN_TEXT)


def _light(event: msgspec.Struct) -> msgspec.Struct:
    match event:
        case m.ConfigPrepared() | m.ConfigValidated():
            phases = event.phases
            fields: dict[str, Any] = {
                "correlation": event.correlation,
                "generation": event.generation.id[:12],
                **{f"{name}_ms": round(getattr(phases, name) * 1000, 1) for name in ("render", "parse", "check")},
            }
            level, text = "debug", "configuration prepared"
            if isinstance(event, m.ConfigValidated):
                level, text = "info" if event.warnings else "debug", "configuration validated"
            kind = type(event).__name__
            return Lightened(kind=kind, line=(level, text, fields), correlation=event.correlation, phases=phases)
        case m.DeploymentScheduled():
            fields = {"correlation": event.correlation, "reason": event.why, "endpoints": len(event.endpoints)}
            line = ("debug", "deployment scheduled", fields)
            return Lightened(kind="DeploymentScheduled", line=line, correlation=event.correlation)
        case m.EndpointsDiscovered():
            names = [endpoint.name for endpoint in event.endpoints[:20]]
            return Lightened(kind="EndpointsDiscovered", line=("info", "endpoints discovered", {"endpoints": names}))
        case m.ConfigChanged():
            line = ("info", "configuration changed", {"version": event.loaded.version})
            return Lightened(kind="ConfigChanged", line=line)
    return event


def unix_now() -> float:
    """Return the time of day in seconds since 1970."""
    return time.time()
