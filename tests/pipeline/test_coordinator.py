"""One reconciliation after another, the newest first, and the story of each in order."""

from collections.abc import Callable
from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.channels import CycleEvent, EventBuffer, Latest
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    ConfigValidated,
    Phases,
    Reason,
    ReconcileFailed,
    ReconcileStarted,
    ReconcileTriggered,
    ValidationFailed,
)
from haptic_trio.pipeline.coordinator import run_coordinator
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.rejection.errors import RejectedError
from tests.support.components.endpoints import generation
from tests.support.messages import PROBLEM, drain


class SlowPipeline(Pipeline):
    """A pipeline whose duration and rejections the test sets."""

    def __init__(self) -> None:
        self.seconds = 2.0
        self.rejected: set[str] = set()
        self.ran: list[str] = []
        self.at_once = 0

    @property
    def is_behind(self) -> bool:
        return False

    async def run(self, correlation: str, reason: Reason = Reason.CHANGED, **_more: object) -> ConfigValidated:
        started = trio.current_time()
        assert self.at_once == 0
        self.ran.append(correlation)
        self.at_once += 1
        try:
            await trio.sleep(self.seconds)
        finally:
            self.at_once -= 1
        if correlation in self.rejected:
            error = RejectedError("check", (PROBLEM,))
            error.phases = Phases(render=0.5, check=1.5)
            raise error
        return ConfigValidated(
            correlation=correlation,
            reason=reason,
            generation=generation(correlation),
            phases=Phases(render=self.seconds),
            warnings=(PROBLEM,),
            started=started,
        )


class Rig:
    """A running coordinator with the test at all its ends."""

    def __init__(self) -> None:
        self.triggers, self._triggers_out = trio.open_memory_channel[ReconcileTriggered](50)
        self._cycles_in, self.cycles = trio.open_memory_channel[CycleEvent](50)
        self.validated = Latest[ConfigValidated]()
        self.rejected = Latest[ValidationFailed]()
        self.pipeline = SlowPipeline()
        self.events = EventBuffer()
        self.heartbeat = Heartbeat("coordinator", 10)

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(
            partial(
                run_coordinator,
                self._triggers_out,
                self._cycles_in,
                self.validated,
                self.rejected,
                pipeline=self.pipeline,
                fast_lane=None,
                events=self.events,
                heartbeat=self.heartbeat,
            )
        )

    def trigger(self, correlation: str, reason: Reason = Reason.CHANGED) -> None:
        self.triggers.send_nowait(ReconcileTriggered(correlation=correlation, reason=reason, changes=1))

    def in_ledger(self) -> list[CycleEvent]:
        events = []
        while True:
            try:
                events.append(self.cycles.receive_nowait())
            except (trio.WouldBlock, trio.EndOfChannel):
                return events


@pytest.fixture
def rig() -> Rig:
    return Rig()


async def test_valid_cycle_reports_its_events_in_order_with_one_correlation(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    await trio.sleep(7)

    rig.trigger("c1", Reason.SYNCHRONIZED)
    _version, validated = await rig.validated.wait_newer(0)

    assert validated == ConfigValidated(
        correlation="c1",
        reason=Reason.SYNCHRONIZED,
        generation=generation("c1"),
        phases=Phases(render=2),
        warnings=(PROBLEM,),
        started=7,
    )
    assert drain(rig.events) == [
        ReconcileStarted(correlation="c1", reason=Reason.SYNCHRONIZED, changes=1),
        validated,
    ]
    assert rig.rejected.version == 0


async def test_ledger_knows_a_cycle_before_it_can_be_deployed(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    seen: list[CycleEvent] = []

    async def deploy_at_once() -> None:
        await rig.validated.wait_newer(0)
        seen.extend(rig.in_ledger())

    nursery.start_soon(deploy_at_once)
    await rig.start(nursery)
    rig.trigger("c1")
    await trio.sleep(10)

    assert [type(event) for event in seen] == [ReconcileTriggered, ConfigValidated]


async def test_rejected_cycle_says_where_it_failed_and_how_long_each_phase_took(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    rig.pipeline.rejected.add("c1")
    await rig.start(nursery)

    rig.trigger("c1", Reason.DRIFT)
    _version, rejected = await rig.rejected.wait_newer(0)

    assert rejected == ValidationFailed(correlation="c1", reason=Reason.DRIFT, phase="check", problems=(PROBLEM,))
    assert drain(rig.events)[1:] == [
        rejected,
        ReconcileFailed(correlation="c1", phase="check", seconds=2, phases=Phases(render=0.5, check=1.5)),
    ]
    assert rig.validated.version == 0


async def test_rejected_cycle_leaves_the_valid_one_before_it_in_place(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    rig.pipeline.rejected.add("c2")
    await rig.start(nursery)
    rig.trigger("c1")
    await trio.sleep(5)

    rig.trigger("c2")
    await trio.sleep(5)

    assert rig.validated.value is not None
    assert rig.validated.value.correlation == "c1"
    rig.trigger("c3")
    await trio.sleep(5)
    assert rig.validated.value.correlation == "c3"


async def test_triggers_that_came_while_a_cycle_ran_are_one_cycle_for_the_newest(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.trigger("c1")
    await wait_all_tasks_blocked()
    for number in range(2, 30):
        rig.trigger(f"c{number}")

    await trio.sleep(10)

    assert rig.pipeline.ran == ["c1", "c29"]
    triggered = [event.correlation for event in rig.in_ledger() if isinstance(event, ReconcileTriggered)]
    assert triggered == [f"c{number}" for number in range(1, 30)]


@pytest.mark.parametrize("reasons", [(Reason.DRIFT, Reason.CHANGED), (Reason.CHANGED, Reason.DRIFT)])
async def test_suspected_drift_is_not_lost_among_changes_that_came_with_it(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery, reasons: tuple[Reason, Reason]
) -> None:
    await rig.start(nursery)
    rig.trigger("c1")
    await wait_all_tasks_blocked()
    for number, reason in enumerate(reasons, 2):
        rig.trigger(f"c{number}", reason)

    await trio.sleep(10)

    assert rig.validated.value is not None
    assert (rig.validated.value.correlation, rig.validated.value.reason) == ("c3", Reason.DRIFT)


async def test_running_cycle_is_not_cut_short_by_a_trigger(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.trigger("c1")
    await trio.sleep(1)
    rig.trigger("c2")

    _version, first = await rig.validated.wait_newer(0)

    assert first.correlation == "c1"
    assert trio.current_time() == 2
    _version, second = await rig.validated.wait_newer(1)
    assert second.correlation == "c2"
    assert trio.current_time() == 4


async def test_coordinator_is_busy_only_while_a_cycle_runs(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    rig.pipeline.seconds = 11
    await rig.start(nursery)
    await trio.sleep(1000)
    assert not rig.heartbeat.state().stalled

    rig.trigger("c1")
    await trio.sleep(10.5)
    assert rig.heartbeat.state().stalled
    await trio.sleep(1)

    assert rig.heartbeat.state().busy_for == 0


async def test_coordinator_ends_with_its_input_after_the_last_trigger(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        rig.trigger("c1")
        rig.triggers.close()

    assert rig.pipeline.ran == ["c1"]
    assert [type(event) for event in rig.in_ledger()] == [ReconcileTriggered, ConfigValidated]


@pytest.mark.parametrize("at", [0.0, 1.0, 3.0])
async def test_cancelled_coordinator_closes_its_ends_and_publishes_nothing_more(
    autojump_clock: MockClock, rig: Rig, at: float
) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        rig.trigger("c1")
        await trio.sleep(at)
        nursery.cancel_scope.cancel()

    assert rig.validated.version == int(at > 2)
    with pytest.raises(trio.BrokenResourceError):
        rig.trigger("c2")
    rig.in_ledger()
    with pytest.raises(trio.EndOfChannel):
        rig.cycles.receive_nowait()


async def test_fault_of_the_program_is_not_taken_for_a_rejection(autojump_clock: MockClock, rig: Rig) -> None:
    def fail() -> float:
        raise ZeroDivisionError

    broken: Callable[[], float] = fail

    class Broken(SlowPipeline):
        async def run(self, correlation: str, reason: Reason = Reason.CHANGED, **_more: object) -> ConfigValidated:
            broken()
            return await super().run(correlation, reason)

    rig.pipeline = Broken()
    with pytest.RaisesGroup(ZeroDivisionError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await rig.start(nursery)
            rig.trigger("c1")
