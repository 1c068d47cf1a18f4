"""Read access to a running controller, in the form of the console's protocol."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import msgspec
import trio

from haptic_trio.channels import Channels, EventBuffer
from haptic_trio.config.load import LoadedConfig
from haptic_trio.console.certificates import Certificates
from haptic_trio.console.configuration import Configuration, Source
from haptic_trio.console.gauges import Gauges, read_stores
from haptic_trio.console.history.generations import History
from haptic_trio.console.live import Live
from haptic_trio.console.protocol import ComponentView, IterationView, Moment, State
from haptic_trio.console.recorder import Recorder, unix_now
from haptic_trio.console.routes import Routes
from haptic_trio.console.timeline import cycles_of
from haptic_trio.dataplane.figures import ReadsFigures
from haptic_trio.heartbeat import Heartbeats
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import LeadershipChanged
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.summary import ObjectProblems


@dataclass(frozen=True, kw_only=True)
class IterationSnapshot:
    """The running iteration at one moment. Callers must not keep it: it holds stores and channels alive."""

    number: int
    opened: float
    stage: int
    is_ready: bool
    loaded: LoadedConfig | None
    heartbeats: Heartbeats
    channels: Channels | None
    stores: Stores | None
    pipeline: Pipeline | None


class Watched:
    """A running controller, as the console shows it. Computes views on request only."""

    def __init__(
        self,
        recorder: Recorder,
        events: EventBuffer,
        *,
        iteration: Callable[[], IterationSnapshot | None],
        leadership: Callable[[], LeadershipChanged | None],
        fleet: Callable[[], Any],
        objects: Callable[[], ObjectProblems] = ObjectProblems,
        sources: Callable[[], Iterable[ReadsFigures]] = tuple,
    ) -> None:
        """*fleet* returns plain data or None, *objects* problems of objects, *sources* instances with figures."""
        self.recorder = recorder
        self.configuration = Configuration(self._source)
        self.history = History(self.configuration.consult)
        self.routes = Routes(self.configuration)
        self.certificates = Certificates(self.configuration)
        self.live = Live(sources)
        self._events = events
        self._iteration = iteration
        self._leadership = leadership
        self._fleet = fleet
        self._objects = objects
        self._gauges = Gauges()

    def forget(self) -> None:
        """Drop what is kept for viewers; called when the last one disconnects."""
        self.configuration.forget()
        self.routes.forget()
        self.certificates.forget()

    def observe(self, event: msgspec.Struct) -> None:
        """Record *event*; never blocks."""
        self.recorder.observe(event)
        self.history.observe(event)

    def moment(self) -> Moment:
        """Return the current time."""
        return Moment(clock=trio.current_time(), unix=unix_now())

    def state(self) -> State:
        """Return the summary."""
        iteration, recorder, leadership = self._iteration(), self.recorder, self._leadership()
        cycles = cycles_of(recorder.entries())
        heartbeats = iteration.heartbeats.states() if iteration is not None else ()
        return State(
            iteration=_view(iteration) if iteration is not None else None,
            stages=tuple(recorder.stages) if iteration is not None and iteration.stage else (),
            is_leader=leadership is not None and leadership.is_leader,
            identity=leadership.identity if leadership is not None else "",
            components=tuple(
                ComponentView(name=one.name, busy=one.busy_for > 0, stalled=one.stalled, detail=one.detail)
                for one in heartbeats
            ),
            instances=tuple(recorder.instances.values()),
            fleet=self._fleet(),
            cycles=cycles,
            fragments_rendered=sum(cycle.rendered for cycle in cycles),
            fragments_reused=sum(cycle.reused for cycle in cycles),
            quarantined=recorder.quarantined,
            problems=dict(recorder.problems),
            objects=self._objects(),
        )

    def channels(self) -> Any:
        """Return the fill levels of the channels."""
        iteration = self._iteration()
        return self._gauges.read(iteration.channels if iteration is not None else None, self._events)

    def stores(self) -> Any:
        """Return the sizes of the stores."""
        iteration = self._iteration()
        return read_stores(iteration.stores if iteration is not None else None)

    def _source(self) -> Source | None:
        iteration = self._iteration()
        if iteration is None or iteration.loaded is None or iteration.stores is None or iteration.pipeline is None:
            return None
        return Source(iteration.loaded.config, iteration.stores, iteration.pipeline)


def _view(iteration: IterationSnapshot) -> IterationView:
    return IterationView(
        number=iteration.number,
        opened=iteration.opened,
        stage=iteration.stage,
        is_ready=iteration.is_ready,
        config_version=iteration.loaded.version if iteration.loaded is not None else "",
    )
