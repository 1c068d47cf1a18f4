"""An endpoint that fails to take what it holds back is retried with growing delays, and delays no other endpoint."""

from collections.abc import Callable
from functools import partial
from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import CycleEvent, EventBuffer, Latest
from haptic_trio.dataplane.endpoint import DeploymentRejectedError, Endpoint, SyncResult
from haptic_trio.dataplane.sync import WaitNewer
from haptic_trio.deployment.deployer import run_deployer
from haptic_trio.deployment.rounds import FIRST_PAUSE, LONGEST_PAUSE, Rounds
from haptic_trio.deployment.schedule import Schedule
from haptic_trio.deployment.scheduler import run_scheduler
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentReason,
    DeploymentScheduled,
    EndpointsDiscovered,
    Phases,
    Reason,
    ValidationFailed,
)
from tests.support.components.endpoints import MemoryEndpoint, generation

INTERVAL = 0.1
"""`minDeploymentInterval`, as short as a user can wish for."""


class Rig:
    """A scheduler and a deployer; endpoints hold structure back, and those in `stuck` fail to take it."""

    def __init__(self, *names: str) -> None:
        self.endpoints = Latest[EndpointsDiscovered]()
        self.prepared = Latest[ConfigPrepared]()
        self.validated = Latest[ConfigValidated]()
        self.completed = Latest[DeploymentCompleted]()
        self.stuck = set(names)
        self.running = dict.fromkeys(names, "0")
        self.attempts: list[tuple[float, str]] = []
        self.changed = trio.Event()
        self.endpoints.put(EndpointsDiscovered(endpoints=tuple(map(MemoryEndpoint, names))))

    async def start(self, nursery: trio.Nursery) -> None:
        deployments_in, deployments_out = trio.open_memory_channel[DeploymentScheduled](0)
        cycles_in, cycles_out = trio.open_memory_channel[CycleEvent](50)
        await nursery.start(
            partial(
                run_deployer,
                deployments_out,
                cycles_in,
                self.completed,
                self.endpoints,
                sync=self.sync,
                deployment_timeout=30,
                drain_timeout=5,
                max_parallel=0,
                report_ports=lambda _error: None,
                events=EventBuffer(10_000),
                heartbeat=Heartbeat("deployer", 100),
            )
        )
        await nursery.start(
            partial(
                run_scheduler,
                self.prepared,
                self.validated,
                Latest[ValidationFailed](),
                self.endpoints,
                self.completed,
                deployments_in,
                schedule=Schedule(INTERVAL),
                add_data=self.add_data,
                events=EventBuffer(10_000),
                heartbeat=Heartbeat("scheduler", 100),
            )
        )

        async def drain() -> None:
            async for _event in cycles_out:
                pass

        nursery.start_soon(drain)

    async def add_data(self, _valid: Generation, prepared: Generation) -> Generation:
        return prepared

    async def sync(
        self,
        endpoint: Endpoint,
        desired: Generation,
        /,
        *,
        verify: bool,
        may_reload: bool,
        slowed: frozenset[str],
        checked: Generation | None,
        wait_newer: WaitNewer,
    ) -> SyncResult:
        structure = desired.text.strip("# \n").split()[0]
        await trio.sleep(0.01)
        wants = structure != self.running[endpoint.name]
        if wants and may_reload:
            self.attempts.append((trio.current_time(), endpoint.name))
            if endpoint.name in self.stuck:
                raise DeploymentRejectedError(endpoint.name, "no")
            self.running[endpoint.name] = structure
            self.changed.set()
        held = (f"structure {structure}",) if wants and not may_reload else ()
        return SyncResult(endpoint=endpoint.name, changed=True, reloaded=wants and may_reload, held=held)

    def configure(self, structure: int, data: int = 0) -> None:
        name = f"c{structure}.{data}"
        made = generation(f"{structure} {data}")
        common = {"correlation": name, "reason": Reason.CHANGED, "generation": made, "phases": Phases()}
        started = trio.current_time()
        self.prepared.put(ConfigPrepared(started=started, **common))  # type: ignore[arg-type]
        self.validated.put(ConfigValidated(started=started, **common))  # type: ignore[arg-type]

    def times(self, name: str = "a") -> list[float]:
        return [time for time, one in self.attempts if one == name]

    async def until_running(self, structure: int, name: str = "a") -> None:
        with trio.fail_after(2 * LONGEST_PAUSE):
            while self.running[name] != str(structure):
                self.changed = trio.Event()
                await self.changed.wait()


async def test_a_deployment_that_fails_is_repeated_later_and_later(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    rig = Rig("a")
    await rig.start(nursery)

    rig.configure(1)
    await trio.sleep(600)

    # One each second would be 600; without any pause it was 40 a second.
    assert 5 < len(rig.attempts) < 40
    pauses = [later - earlier for earlier, later in pairwise(rig.times())]
    assert max(pauses) >= LONGEST_PAUSE / 2
    assert rig.times()[-1] > 500


async def test_data_that_changes_all_the_time_does_not_shorten_the_pauses(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    rig = Rig("a")
    await rig.start(nursery)

    for data in range(600):
        rig.configure(1, data)
        await trio.sleep(1)

    assert len(rig.attempts) < 60


async def test_other_structure_is_tried_at_once_and_success_ends_the_pauses(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    rig = Rig("a")
    await rig.start(nursery)
    rig.configure(1)
    await trio.sleep(300)

    rig.stuck.clear()
    rig.configure(2)
    changed = trio.current_time()
    await rig.until_running(2)
    assert trio.current_time() - changed < 2

    rig.stuck.add("a")
    before = len(rig.attempts)
    rig.configure(3)
    await trio.sleep(FIRST_PAUSE + 1)
    assert len(rig.attempts) - before >= 2


async def test_an_endpoint_that_fails_does_not_keep_another_from_reloading(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    rig = Rig("a", "b")
    await rig.start(nursery)
    rig.configure(1)
    await trio.sleep(300)

    rig.stuck.discard("b")
    rig.configure(2)
    changed = trio.current_time()
    await rig.until_running(2, "b")

    assert trio.current_time() - changed < 2


def failing(rounds: Rounds, times: int, held: tuple[str, ...]) -> Callable[[], float]:
    """Have the endpoint `a` hold back *held* and fail so many times; return what says until when it is paused."""
    endpoint = MemoryEndpoint("a")
    for number in range(times):
        for may_reload in (False, True):
            rounds.begin(
                DeploymentScheduled(
                    correlation=f"c{number}",
                    generation=generation("1"),
                    endpoints=(endpoint,),
                    why=DeploymentReason.VALIDATED,
                    may_reload=may_reload,
                ),
                0.0,
            )
            target = rounds.take("a")
            assert target is not None
            if may_reload:
                rounds.fail(target, 100.0)
            else:
                result = SyncResult(endpoint="a", changed=False, reloaded=False, held=held)
                rounds.succeed(target, result, 100.0)
    return lambda: dict(rounds.state.paused).get("a", 0.0)


@pytest.mark.parametrize(("times", "pause"), [(1, 1.0), (2, 2.0), (3, 4.0), (7, 60.0), (2_000, 60.0)])
def test_pauses_double_up_to_the_longest(times: int, pause: float) -> None:
    paused = failing(Rounds(), times, ("a port",))

    assert paused() == 100.0 + pause


def test_another_reason_starts_again() -> None:
    rounds = Rounds()
    failing(rounds, 5, ("a port",))

    paused = failing(rounds, 1, ("a certificate",))

    assert paused() == 100.0 + FIRST_PAUSE


def test_an_endpoint_that_is_gone_is_forgotten() -> None:
    rounds = Rounds()
    paused = failing(rounds, 5, ("a port",))

    rounds.drop("a", 100.0)

    assert paused() == 0.0
