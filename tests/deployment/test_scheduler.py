from functools import partial

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.channels import Facts, Latest
from haptic_trio.deployment.scheduler import Schedule, run_scheduler
from haptic_trio.messages import (
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    EndpointsDiscovered,
    Phases,
    Reason,
    ValidationFailed,
)
from haptic_trio.pulse import Pulse
from tests.support.endpoints import MemoryEndpoint, generation

ONE = MemoryEndpoint("one")
TWO = MemoryEndpoint("two")


def validated(name: str, reason: Reason = Reason.CHANGED) -> ConfigValidated:
    return ConfigValidated(correlation=name, reason=reason, generation=generation(name), phases=Phases())


def refused(reason: Reason) -> ValidationFailed:
    return ValidationFailed(correlation="x", reason=reason, phase="check", problems=())


def completed(deployment: DeploymentScheduled, *failed: str) -> DeploymentCompleted:
    return DeploymentCompleted(
        correlation=deployment.correlation,
        generation=deployment.generation.id,
        results=(),
        failed=failed,
        seconds=0,
    )


class Rig:
    """A running scheduler with the test at all its ends."""

    def __init__(self) -> None:
        self.validated = Latest[ConfigValidated]()
        self.refused = Latest[ValidationFailed]()
        self.endpoints = Latest[EndpointsDiscovered]()
        self.completions, self._completions_out = trio.open_memory_channel[DeploymentCompleted](50)
        self._deployments_in, self.deployments = trio.open_memory_channel[DeploymentScheduled](0)

    async def start(self, nursery: trio.Nursery, min_interval: float = 2) -> None:
        await nursery.start(
            partial(
                run_scheduler,
                self.validated,
                self.refused,
                self.endpoints,
                self._completions_out,
                self._deployments_in,
                min_interval=min_interval,
                facts=Facts(),
                pulse=Pulse("scheduler", 30),
            )
        )

    async def next(self) -> tuple[str, str, list[str], float]:
        with trio.fail_after(1000):
            self.last = await self.deployments.receive()
        names = [endpoint.name for endpoint in self.last.endpoints]
        return self.last.correlation, self.last.why, names, trio.current_time()

    async def complete(self, *failed: str) -> None:
        await self.completions.send(completed(self.last, *failed))

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


async def test_scheduler_deploys_only_the_latest_of_what_came_while_one_ran(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.validated.put(validated("a"))
    await rig.next()

    for name in "bcd":
        rig.validated.put(validated(name))
        await wait_all_tasks_blocked()
    assert await rig.nothing_within(60)
    await rig.complete()

    assert (await rig.next())[0] == "d"
    await rig.complete()
    assert await rig.nothing_within(60)


async def test_minimum_interval_is_kept_between_deployments(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery, min_interval=2)
    rig.validated.put(validated("a"))
    await rig.next()
    await trio.sleep(1)
    await rig.complete()

    rig.validated.put(validated("b"))
    _name, _why, _endpoints, at = await rig.next()

    assert at == 3


async def test_failed_endpoints_alone_are_tried_again_later_each_time(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery, min_interval=2)
    rig.validated.put(validated("a"))
    await rig.next()
    times = []

    for _ in range(4):
        await rig.complete("two")
        name, why, endpoints, at = await rig.next()
        assert (name, why, endpoints) == ("a", "retry", ["two"])
        times.append(at)

    assert times == [2, 6, 14, 30]
    await rig.complete()
    assert await rig.nothing_within(100)


async def test_newer_configuration_overtakes_a_retry(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery, min_interval=2)
    rig.validated.put(validated("a"))
    for _ in range(4):
        await rig.next()
        await rig.complete("two")

    rig.validated.put(validated("b"))
    name, _why, endpoints, at = await rig.next()

    assert (name, endpoints) == ("b", ["one", "two"])
    assert at == 16


async def test_invalid_configuration_at_a_drift_check_deploys_the_last_valid_one(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)
    rig.validated.put(validated("good"))
    await rig.next()
    await rig.complete()

    rig.refused.put(refused(Reason.CHANGED))
    assert await rig.nothing_within(60)
    rig.refused.put(refused(Reason.DRIFT))

    assert (await rig.next())[:3] == ("good", "drift", ["one", "two"])


async def test_refusal_before_any_valid_configuration_deploys_nothing(
    autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery
) -> None:
    await rig.start(nursery)

    rig.refused.put(refused(Reason.DRIFT))

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


async def test_lost_endpoint_is_not_retried(autojump_clock: MockClock, rig: Rig, nursery: trio.Nursery) -> None:
    await rig.start(nursery)
    rig.validated.put(validated("a"))
    await rig.next()
    await rig.complete("two")
    await wait_all_tasks_blocked()

    rig.endpoints.put(EndpointsDiscovered(endpoints=(ONE,)))

    assert await rig.nothing_within(200)


async def test_scheduler_ends_when_the_deployer_is_gone(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        rig.completions.close()

    with pytest.raises(trio.EndOfChannel):
        rig.deployments.receive_nowait()


async def test_scheduler_closes_its_ends_when_cancelled(autojump_clock: MockClock, rig: Rig) -> None:
    async with trio.open_nursery() as nursery:
        await rig.start(nursery)
        nursery.cancel_scope.cancel()

    with pytest.raises(trio.BrokenResourceError):
        rig.completions.send_nowait(
            completed(DeploymentScheduled(correlation="a", generation=generation("a"), endpoints=(), why="validated"))
        )


STEPS = st.lists(
    st.tuples(st.sampled_from(["valid", "drift", "complete", "fail", "endpoints"]), st.floats(0, 5, allow_nan=False)),
    max_size=60,
)


@given(STEPS)
def test_schedule_always_ends_with_the_newest_configuration_on_every_endpoint(
    steps: list[tuple[str, float]],
) -> None:
    schedule, now = Schedule(2), 0.0
    schedule.take(EndpointsDiscovered(endpoints=(ONE, TWO)), now)
    newest, has = "", dict[str, str]()

    def complete(*failed: str) -> None:
        if schedule.running is not None:
            deployment = schedule.running
            done = {endpoint.name for endpoint in deployment.endpoints} - set(failed)
            has.update(dict.fromkeys(done, deployment.correlation))
            schedule.take(completed(deployment, *failed), now)

    def start_what_is_due() -> None:
        due = schedule.due()
        if due is not None and due <= now:
            assert schedule.running is None
            schedule.start()

    for number, (step, gap) in enumerate(steps):
        now += gap
        start_what_is_due()
        match step:
            case "valid":
                newest = f"v{number}"
                schedule.take(validated(newest), now)
            case "drift":
                schedule.take(refused(Reason.DRIFT), now)
            case "complete":
                complete()
            case "fail":
                complete("two")
            case "endpoints":
                schedule.take(EndpointsDiscovered(endpoints=(ONE, TWO)), now)
    for _ in range(8):
        complete()
        now += 100
        start_what_is_due()

    assert schedule.due() is None
    assert has == (dict.fromkeys(("one", "two"), newest) if newest else {})
