"""Sources that the console reads, in the form that viewers get."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import trio

from haptic_trio.channels import Channels, Facts
from haptic_trio.config.load import LoadedConfig
from haptic_trio.console.configuration import Configuration, Source
from haptic_trio.console.gauges import Gauges, read_stores
from haptic_trio.console.protocol import ComponentView, IterationView, Moment, State
from haptic_trio.console.recorder import Recorder, unix_now
from haptic_trio.console.timeline import cycles_of
from haptic_trio.heartbeat import Pulses
from haptic_trio.k8s.store import Stores
from haptic_trio.messages import LeadershipChanged
from haptic_trio.pipeline.cycle import Pipeline


@dataclass(frozen=True, kw_only=True)
class Look:
    """The iteration that runs, at a moment; whoever gets it must not keep it."""

    number: int
    opened: float
    stage: int
    is_ready: bool
    loaded: LoadedConfig | None
    pulses: Pulses
    channels: Channels | None
    stores: Stores | None
    pipeline: Pipeline | None


class Watched:
    """A running controller, as its viewers see it. Computes nothing unless it is asked."""

    def __init__(
        self,
        recorder: Recorder,
        facts: Facts,
        *,
        look: Callable[[], Look | None],
        leadership: Callable[[], LeadershipChanged | None],
        fleet: Callable[[], Any],
    ) -> None:
        """*fleet* gives what JSON can hold, or None."""
        self.recorder = recorder
        self.configuration = Configuration(self._source)
        self._facts = facts
        self._look = look
        self._leadership = leadership
        self._fleet = fleet
        self._gauges = Gauges()

    def moment(self) -> Moment:
        """Return what time it is."""
        return Moment(clock=trio.current_time(), unix=unix_now())

    def state(self) -> State:
        """Return everything that is small."""
        look, recorder, leadership = self._look(), self.recorder, self._leadership()
        cycles = cycles_of(recorder.entries())
        pulses = look.pulses.states() if look is not None else ()
        return State(
            iteration=_iteration(look) if look is not None else None,
            stages=tuple(recorder.stages) if look is not None and look.stage else (),
            is_leader=leadership is not None and leadership.is_leader,
            identity=leadership.identity if leadership is not None else "",
            components=tuple(
                ComponentView(name=one.name, busy=one.busy_for > 0, stalled=one.stalled, detail=one.detail)
                for one in pulses
            ),
            instances=tuple(recorder.instances.values()),
            fleet=self._fleet(),
            cycles=cycles,
            fragments_rendered=sum(cycle.rendered for cycle in cycles),
            fragments_reused=sum(cycle.reused for cycle in cycles),
            quarantined=recorder.quarantined,
            problems=dict(recorder.problems),
        )

    def channels(self) -> Any:
        """Return how full the channels are."""
        look = self._look()
        return self._gauges.read(look.channels if look is not None else None, self._facts)

    def stores(self) -> Any:
        """Return how large the stores are."""
        look = self._look()
        return read_stores(look.stores if look is not None else None)

    def _source(self) -> Source | None:
        look = self._look()
        if look is None or look.loaded is None or look.stores is None or look.pipeline is None:
            return None
        return Source(look.loaded.config, look.stores, look.pipeline)


def _iteration(look: Look) -> IterationView:
    return IterationView(
        number=look.number,
        opened=look.opened,
        stage=look.stage,
        is_ready=look.is_ready,
        config_version=look.loaded.version if look.loaded is not None else "",
    )
