from functools import partial
from itertools import pairwise

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.deployment.schedule import Schedule
from haptic_trio.deployment.scheduler import run_scheduler
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    EndpointsDiscovered,
    Phases,
    Reason,
    ValidationFailed,
)
from tests.support.components.endpoints import MemoryEndpoint, generation

ONE = MemoryEndpoint("one")
TWO = MemoryEndpoint("two")


def validated(name: str, reason: Reason = Reason.CHANGED) -> ConfigValidated:
    return ConfigValidated(correlation=name, reason=reason, generation=generation(name), phases=Phases())


def rejected(reason: Reason) -> ValidationFailed:
    return ValidationFailed(correlation="x", reason=reason, phase="check", problems=())


def completed(deployment: DeploymentScheduled, *failed: str) -> DeploymentCompleted:
    return DeploymentCompleted(
        correlation=deployment.correlation,
        generation=deployment.generation.id,
        results=(),
        failed=failed,
        seconds=0,
    )


async def add_data(valid: Generation, _prepared: Generation) -> Generation:
    return valid


def without_fast_lane(interval: float) -> Schedule:
    return Schedule(interval, fast_lane=False)


class Rig:
    """A running scheduler with the test at all its ends."""

    def __init__(self) -> None:
        self.prepared = Latest[ConfigPrepared]()
        self.validated = Latest[ConfigValidated]()
        self.rejected = Latest[ValidationFailed]()
        self.endpoints = Latest[EndpointsDiscovered]()
        self.completed = Latest[DeploymentCompleted]()
        self._deployments_in, self.deployments = trio.open_memory_channel[DeploymentScheduled](0)

    async def start(self, nursery: trio.Nursery, min_interval: float = 2) -> None:
        await nursery.start(
            partial(
                run_scheduler,
                self.prepared,
                self.validated,
                self.rejected,
                self.endpoints,
                self.completed,
                self._deployments_in,
                schedule=without_fast_lane(min_interval),
                add_data=add_data,
                events=EventBuffer(),
                heartbeat=Heartbeat("scheduler", 30),
            )
        )

    async def next(self) -> tuple[str, str, list[str], float]:
        with trio.fail_after(1000):
            self.last = await self.deployments.receive()
        names = [endpoint.name for endpoint in self.last.endpoints]
        return self.last.correlation, self.last.why, names, trio.current_time()

    async def complete(self, *failed: str) -> None:
        self.completed.put(completed(self.last, *failed))
        await wait_all_tasks_blocked()

    async def nothing_within(self, seconds: float) -> bool:
        with trio.move_on_after(seconds) as scope:
            await self.deployments.receive()
        return scope.cancelled_caught


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    rig.endpoints.put(EndpointsDiscovered(endpoints=(ONE, TWO)))
    return rig


async def test_valid_configuration_is_deployed_at_once(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)

    rig.validated.put(validated("a"))

    assert await rig.next() == ("a", "validated", ["one", "two"], 0)


async def test_scheduler_that_starts_late_deploys_the_present_configuration(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    rig.validated.put(validated("old"))
    rig.validated.put(validated("new"))

    await rig.start(nursery)

    assert await rig.next() == ("new", "validated", ["one", "two"], 0)


async def test_scheduler_deploys_only_the_latest_of_what_came_in_the_interval(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.validated.put(validated("a"))
    await rig.next()
    await rig.complete()

    for name in "bcd":
        rig.validated.put(validated(name))
        await wait_all_tasks_blocked()

    assert (await rig.next())[::3] == ("d", 2)
    await rig.complete()
    assert await rig.nothing_within(60)


async def test_minimum_interval_is_kept_from_the_end_of_a_deployment(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery, min_interval=2)
    rig.validated.put(validated("a"))
    await rig.next()
    await trio.sleep(1)
    await rig.complete()

    rig.validated.put(validated("b"))

    assert (await rig.next())[::3] == ("b", 3)


async def test_endpoint_that_takes_long_holds_up_a_deployment_for_one_interval_only(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery, min_interval=2)
    rig.validated.put(validated("a"))
    await rig.next()

    rig.validated.put(validated("b"))

    # Nothing has completed yet.
    assert (await rig.next())[::3] == ("b", 2)


async def test_failed_endpoints_are_not_the_schedulers_to_retry(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.validated.put(validated("a"))
    await rig.next()

    await rig.complete("two")

    assert await rig.nothing_within(200)


async def test_invalid_configuration_at_a_drift_check_deploys_the_last_valid_one(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.validated.put(validated("good"))
    await rig.next()
    await rig.complete()

    rig.rejected.put(rejected(Reason.CHANGED))
    assert await rig.nothing_within(60)
    rig.rejected.put(rejected(Reason.DRIFT))

    assert (await rig.next())[:3] == ("good", "drift", ["one", "two"])


async def test_rejection_before_any_valid_configuration_deploys_nothing(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)

    rig.rejected.put(rejected(Reason.DRIFT))

    assert await rig.nothing_within(60)


async def test_new_endpoint_gets_the_configuration_outside_the_minimum_interval(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery, min_interval=50)
    rig.validated.put(validated("a"))
    await rig.next()
    await rig.complete()

    three = MemoryEndpoint("three")
    rig.endpoints.put(EndpointsDiscovered(endpoints=(ONE, TWO, three)))

    assert await rig.next() == ("a", "endpoints", ["three"], 0)


async def test_new_endpoint_is_not_forgotten_before_there_is_a_configuration(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.endpoints.put(EndpointsDiscovered(endpoints=(ONE,)))
    await wait_all_tasks_blocked()

    rig.validated.put(validated("a"))

    assert (await rig.next())[2] == ["one"]


async def test_configuration_waits_for_the_first_endpoint(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    rig = Rig()
    await rig.start(nursery)
    rig.validated.put(validated("a"))
    assert await rig.nothing_within(60)

    rig.endpoints.put(EndpointsDiscovered(endpoints=(TWO,)))

    assert (await rig.next())[2] == ["two"]


async def test_scheduler_ends_when_the_deployer_is_gone(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        rig.deployments.close()
        rig.validated.put(validated("a"))


async def test_scheduler_closes_its_end_when_cancelled(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        nursery.cancel_scope.cancel()

    with pytest.raises(trio.EndOfChannel):
        rig.deployments.receive_nowait()


STEPS = st.lists(
    st.tuples(st.sampled_from(["valid", "drift", "complete", "one", "both"]), st.floats(0, 5, allow_nan=False)),
    max_size=60,
)


@given(STEPS)
def test_newest_configuration_is_scheduled_for_every_endpoint_within_the_interval(
    steps: list[tuple[str, float]],
) -> None:
    schedule, now = without_fast_lane(2), 0.0
    newest, wanted, has = "", set[str](), dict[str, str]()
    starts = list[float]()

    def start_what_is_due(until: float) -> None:
        while (due := schedule.due()) is not None and due <= until:
            deployment = schedule.start(max(due, now))
            if deployment.why != "endpoints":
                starts.append(max(due, now))
            has.update({endpoint.name: deployment.correlation for endpoint in deployment.endpoints})

    for number, (step, gap) in enumerate(steps):
        start_what_is_due(now + gap)
        now += gap
        match step:
            case "valid":
                newest = f"v{number}"
                schedule.take(validated(newest), now)
            case "drift":
                schedule.take(rejected(Reason.DRIFT), now)
            case "complete":
                schedule.take(DeploymentCompleted(correlation="", generation="", results=(), failed=(), seconds=0), now)
            case _:
                found = (ONE,) if step == "one" else (ONE, TWO)
                wanted = {endpoint.name for endpoint in found}
                for gone in has.keys() - wanted:
                    del has[gone]
                schedule.take(EndpointsDiscovered(endpoints=found), now)
    start_what_is_due(now + 2)

    assert schedule.due() is None or not wanted or not newest
    assert has == (dict.fromkeys(wanted, newest) if newest else {})
    assert all(later - earlier >= 2 - 1e-9 for earlier, later in pairwise(starts))
