"""A namespace that causes many reloads is slowed down, and no other one is."""

from collections.abc import Iterable
from functools import partial
from itertools import pairwise
from typing import Final

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import CycleEvent, EventBuffer, Latest
from haptic_trio.dataplane.planner import Planner
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.deployment.deployer import run_deployer
from haptic_trio.deployment.reload_pacing import FREE, ReloadPacing
from haptic_trio.deployment.schedule import PATIENCE, Schedule
from haptic_trio.deployment.scheduler import run_scheduler
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
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
from tests.support.components.endpoints import MemoryEndpoint

INTERVAL: Final = 180.0
"""The default of `namespaceReloadInterval`."""
RELOADS: Final = 5.0
"""Seconds between two reloads by default."""
OLD_WORKERS: Final = 20
HARD_STOP: Final = 1800.0
"""Defaults of `maxOldProcesses` and `hardStopAfter`: reloads and seconds that connections outlive."""


def holds(pacing: ReloadPacing) -> dict[str, float]:
    return dict(pacing.holds)


def test_holds_follow_the_first_reloads_and_double_up_to_the_interval() -> None:
    pacing, now, found = ReloadPacing(160.0), 0.0, []
    for _ in range(FREE + 7):
        pacing.record({"shop"}, now)
        hold = holds(pacing).get("shop", now) - now
        found.append(hold)
        # Soon enough that nothing is forgotten.
        now += 0.001
    assert found[:FREE] == [0.0] * FREE
    assert found[FREE:] == pytest.approx([10, 20, 40, 80, 160, 160, 160], rel=0.01)


def test_holds_stay_with_another_interval_and_end_without_one() -> None:
    pacing = ReloadPacing(160.0)
    for _ in range(FREE + 1):
        pacing.record({"shop"}, 0.0)

    pacing.set_interval(320.0)
    assert holds(pacing) == {"shop": 10.0}
    pacing.record({"shop"}, 0.0)
    assert holds(pacing) == {"shop": 40.0}
    pacing.set_interval(0.0)
    assert holds(pacing) == {}


def test_reloads_are_forgotten_one_in_each_interval() -> None:
    pacing = ReloadPacing(100.0)
    for _ in range(FREE):
        pacing.record({"shop"}, 0.0)
    for number in range(1, 10):
        pacing.record({"shop"}, 100.0 * number)
    assert holds(pacing) == {}
    pacing.record({"shop"}, 901.0)
    assert holds(pacing) == {"shop": pytest.approx(901.0 + 100 / 16, abs=0.1)}


def test_a_namespace_has_no_hold_for_the_reloads_of_another_one() -> None:
    pacing = ReloadPacing(100.0)
    for number in range(2 * FREE):
        pacing.record({"shop"}, float(number))
    pacing.record({"bank"}, 20.0)
    assert set(holds(pacing)) == {"shop"}


def test_without_an_interval_there_is_no_hold() -> None:
    pacing = ReloadPacing(0.0)
    for _ in range(100):
        pacing.record({"shop"}, 1.0)
    assert holds(pacing) == {}


class Edge:
    """A scheduler, a deployer and an HAProxy in memory; the configuration is a backend for each namespace."""

    def __init__(self, *namespaces: str) -> None:
        self.settings = dict.fromkeys(namespaces, 1)
        self.shared = 1
        self.endpoint = MemoryEndpoint("one")
        self.endpoints = Latest[EndpointsDiscovered]()
        self.prepared = Latest[ConfigPrepared]()
        self.validated = Latest[ConfigValidated]()
        self.completed = Latest[DeploymentCompleted]()
        self.reloads: list[float] = []
        self._cycles = 0
        self._fast_lane = True
        self.endpoints.put(EndpointsDiscovered(endpoints=(self.endpoint,)))

    def _generation(self) -> Generation:
        backends = "".join(
            f"backend {name}_web_80\n  timeout server {value}s\n" for name, value in self.settings.items()
        )
        return make_generation(parse_config(f"frontend http\n  timeout client {self.shared}s\n{backends}"), ())

    async def start(self, nursery: trio.Nursery, *, fast_lane: bool = True) -> None:
        self._fast_lane = fast_lane
        deployments_in, deployments_out = trio.open_memory_channel[DeploymentScheduled](0)
        cycles_in, cycles_out = trio.open_memory_channel[CycleEvent](50)
        planner = Planner()
        await nursery.start(
            partial(
                run_deployer,
                deployments_out,
                cycles_in,
                self.completed,
                self.endpoints,
                sync=partial(sync_endpoint, planner=planner),
                deployment_timeout=30,
                drain_timeout=5,
                max_parallel=0,
                reload_pacing=ReloadPacing(INTERVAL),
                report_ports=lambda _error: None,
                events=EventBuffer(100_000),
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
                schedule=Schedule(RELOADS, fast_lane=fast_lane),
                add_data=planner.add_data,
                events=EventBuffer(100_000),
                heartbeat=Heartbeat("scheduler", 100),
            )
        )

        async def drain() -> None:
            async for event in cycles_out:
                if isinstance(event, DeploymentCompleted) and any(result.reloaded for result in event.results):
                    self.reloads.append(trio.current_time())

        nursery.start_soon(drain)
        self.deploy()
        await trio.sleep(RELOADS)
        self.reloads.clear()

    def deploy(self) -> None:
        """Publish the configuration as it is now, as the coordinator and the checker do."""
        self._cycles += 1
        common = {"correlation": f"c{self._cycles}", "reason": Reason.CHANGED, "generation": self._generation()}
        started = trio.current_time()
        if self._fast_lane:
            self.prepared.put(ConfigPrepared(started=started, phases=Phases(), **common))  # type: ignore[arg-type]
        self.validated.put(ConfigValidated(started=started, phases=Phases(), **common))  # type: ignore[arg-type]

    async def toggle(self, namespace: str, pause: float) -> None:
        """Have *namespace* make a change that needs a reload, all the time."""
        while True:
            self.settings[namespace] += 1
            self.deploy()
            await trio.sleep(pause)

    def runs(self, namespace: str) -> int:
        """Return the setting of *namespace* that HAProxy runs."""
        assert self.endpoint.running is not None
        section = self.endpoint.running.config.find("backend", f"{namespace}_web_80")
        assert section is not None
        return int(section.directives[0].words[2].removesuffix("s"))

    async def arrives(self, namespace: str) -> float:
        """Have *namespace* make a change that needs a reload, and return the seconds until HAProxy runs it."""
        self.settings[namespace] += 1
        wanted, began = self.settings[namespace], trio.current_time()
        self.deploy()
        with trio.fail_after(2 * INTERVAL):
            seen = 0
            while self.runs(namespace) != wanted:
                seen, _ = await self.completed.wait_newer(seen)
        return trio.current_time() - began


def most_within(times: Iterable[float], seconds: float) -> int:
    """Return the largest number of *times* in any period of *seconds*."""
    known = list(times)
    return max(sum(begin <= time < begin + seconds for time in known) for begin in known)


@pytest.mark.parametrize("pause", [2.0, 7.0, 200.0])
async def test_one_namespace_ends_no_connection_of_others_before_its_time(
    pause: float, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    edge = Edge("noisy", "calm")
    await edge.start(nursery)
    nursery.start_soon(edge.toggle, "noisy", pause)
    await trio.sleep(1.2 * HARD_STOP)
    assert most_within(edge.reloads, HARD_STOP) < OLD_WORKERS
    # Its changes are collected, and the newest one arrives at the end of each hold.
    assert max(later - earlier for earlier, later in pairwise(edge.reloads)) <= max(INTERVAL, pause) + RELOADS
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("pause", [0.1, 1.0, 7.0])
async def test_changes_of_other_namespaces_do_not_wait(
    pause: float, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    edge = Edge("noisy", "calm", "other")
    await edge.start(nursery)
    nursery.start_soon(edge.toggle, "noisy", pause)
    await trio.sleep(2 * RELOADS * FREE)
    for namespace in ("calm", "other") * 2:
        before = edge.settings["noisy"]
        assert await edge.arrives(namespace) < RELOADS + PATIENCE
        # A reload for others includes what waits.
        assert edge.runs("noisy") >= before
        await trio.sleep(RELOADS)
    nursery.cancel_scope.cancel()


@pytest.mark.parametrize("fast_lane", [True, False])
async def test_a_change_that_belongs_to_no_namespace_does_not_wait(
    *, fast_lane: bool, autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    edge = Edge("noisy")
    await edge.start(nursery, fast_lane=fast_lane)
    with trio.move_on_after(2 * RELOADS * FREE):
        await edge.toggle("noisy", 1.0)
    assert edge.runs("noisy") != edge.settings["noisy"]
    edge.shared += 1
    edge.deploy()
    await trio.sleep(2 * RELOADS + PATIENCE)
    assert edge.runs("noisy") == edge.settings["noisy"]
    nursery.cancel_scope.cancel()


async def test_the_last_change_of_a_namespace_arrives_when_its_hold_ends(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    edge = Edge("noisy")
    await edge.start(nursery)
    with trio.move_on_after(2 * RELOADS * FREE):
        await edge.toggle("noisy", 1.0)
    assert edge.runs("noisy") != edge.settings["noisy"]
    await trio.sleep(INTERVAL)
    assert edge.runs("noisy") == edge.settings["noisy"]
    nursery.cancel_scope.cancel()
