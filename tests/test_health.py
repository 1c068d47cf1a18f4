"""Health, readiness and metrics as a probe sees them, over real HTTP."""

import itertools
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import msgspec
import pytest
import trio
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.registry import Collector
from trio.testing import MockClock

from haptic_trio.cli.serving.probes import health_of
from haptic_trio.health import REST, HealthReport, make_app, serve_app
from haptic_trio.heartbeat import HeartbeatState
from haptic_trio.messages import ReconcileCompleted
from haptic_trio.metrics import Metrics
from haptic_trio.pipeline.rejection.summary import ObjectProblem, ObjectProblems
from tests.support.components.controller import ControllerRig, config_map

IDLE = HeartbeatState(name="debouncer", stalled=False, busy_for=0.0, limit=30.0)
STALLED = HeartbeatState(
    name="deployer", stalled=True, busy_for=61.0, limit=60.0, detail="busy for 61.0 s, limit 60.0 s"
)


class Probe:
    """Asks a running server."""

    def __init__(self, metrics: Metrics, client: httpx.AsyncClient) -> None:
        self.report = HealthReport(iteration=3, stage=5, is_ready=True, is_leader=True, components=(IDLE,))
        self.metrics = metrics
        self.client = client
        self.prepared = 0
        """Number of calls that prepare for a scrape."""

    def change(self, **fields: object) -> None:
        self.report = msgspec.structs.replace(self.report, **fields)


@pytest.fixture
async def probe(nursery: trio.Nursery) -> AsyncIterator[Probe]:
    metrics = Metrics(CollectorRegistry())
    probes: list[Probe] = []

    async def prepare() -> None:
        await trio.lowlevel.checkpoint()
        probes[0].prepared += 1

    app = make_app(lambda: probes[0].report, metrics.registry, prepare=prepare)
    addresses = await nursery.start(partial(serve_app, app, "127.0.0.1:0"))
    async with httpx.AsyncClient(base_url=addresses[0], trust_env=False) as client:
        probes.append(Probe(metrics, client))
        yield probes[0]
    nursery.cancel_scope.cancel()


async def test_verbose_readiness_has_the_problems_of_objects(nursery: trio.Nursery) -> None:
    report = HealthReport(iteration=3, stage=5, is_ready=True, is_leader=True, components=(IDLE,))
    problems = ObjectProblems(
        warnings=1, listed=(ObjectProblem(object="Ingress default/web", reason="PortNotFound", problem="no port"),)
    )
    app = make_app(lambda: report, CollectorRegistry(), problems=lambda: problems)
    addresses = await nursery.start(partial(serve_app, app, "127.0.0.1:0"))
    async with httpx.AsyncClient(base_url=addresses[0], trust_env=False) as client:
        assert "problems" not in (await client.get("/readyz")).json()
        found = (await client.get("/readyz?verbose")).json()["problems"]
    nursery.cancel_scope.cancel()

    assert msgspec.convert(found, ObjectProblems) == problems


async def test_process_is_live_while_no_component_is_stalled(probe: Probe) -> None:
    answer = await probe.client.get("/healthz")

    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    assert answer.json() == {
        "iteration": 3,
        "stage": 5,
        "is_ready": True,
        "is_leader": True,
        "components": [{"name": "debouncer", "stalled": False, "busy_for": 0.0, "limit": 30.0, "detail": ""}],
    }


async def test_stalled_component_makes_the_process_unhealthy_and_is_named(probe: Probe) -> None:
    probe.change(components=(IDLE, STALLED))

    answer = await probe.client.get("/healthz")

    assert answer.status_code == 503
    assert [item["detail"] for item in answer.json()["components"] if item["stalled"]] == [STALLED.detail]
    assert answer.json()["reasons"] == [f"deployer: {STALLED.detail}"]
    assert (await probe.client.get("/readyz")).status_code == 200


async def test_process_that_is_not_ready_is_live_and_has_reasons(probe: Probe) -> None:
    probe.change(iteration=0, stage=0, is_ready=False, missing=("no iteration runs",), components=())

    readiness, health = await probe.client.get("/readyz"), await probe.client.get("/healthz")

    assert (readiness.status_code, health.status_code) == (503, 200)
    assert readiness.text.startswith('{"reasons":["no iteration runs"],')
    assert "missing" not in readiness.json()
    assert "reasons" not in health.json()


async def test_metrics_are_served_by_name_with_their_values(probe: Probe) -> None:
    probe.metrics.reconciliations.labels("deployed").inc()
    probe.metrics.is_leader.set(1)

    answer = await probe.client.get("/metrics")

    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/plain")
    lines = answer.text.splitlines()
    assert 'haptic_reconciliation_total{outcome="deployed"} 1.0' in lines
    assert "haptic_leader_election_is_leader 1.0" in lines
    assert probe.prepared == 1


class Collected:
    """A collector that notes in which round of the event loop it is asked."""

    def __init__(self) -> None:
        self.round = 0
        self.rounds: list[int] = []

    def collect(self) -> list[Metric]:
        self.rounds.append(self.round)
        return []

    async def count_rounds(self) -> None:
        while True:
            self.round += 1
            await trio.lowlevel.checkpoint()


async def test_other_tasks_run_between_two_scrapes_however_many_clients_ask() -> None:
    registry, collected = CollectorRegistry(), Collected()
    report = HealthReport(iteration=3, stage=5, is_ready=True, is_leader=True, components=())
    app = make_app(lambda: report, registry)
    registry.register(collected)
    collected.rounds.clear()
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")

    async def ask_again_and_again() -> None:
        for _ in range(10):
            await client.get("/metrics")

    async with client, trio.open_nursery() as nursery:
        nursery.start_soon(collected.count_rounds)
        async with trio.open_nursery() as asking:
            for _ in range(30):
                asking.start_soon(ask_again_and_again)
        nursery.cancel_scope.cancel()

    assert 10 <= len(collected.rounds) < 300
    assert all(later - earlier >= 1 for earlier, later in itertools.pairwise(collected.rounds[::2]))


async def test_scrapes_take_a_share_of_the_time_and_clients_that_wait_share_one(autojump_clock: MockClock) -> None:
    registry, began = CollectorRegistry(), list[float]()

    async def work() -> None:
        began.append(trio.current_time())

    class Slow(Collector):
        def collect(self) -> list[Metric]:
            autojump_clock.jump(1.0)
            return []

    report = HealthReport(iteration=3, stage=5, is_ready=True, is_leader=True, components=())
    app = make_app(lambda: report, registry, prepare=work)
    registry.register(Slow())
    client = httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x")

    async with client, trio.open_nursery() as nursery:
        for start in range(100):
            await trio.sleep_until(start * 0.25)
            nursery.start_soon(client.get, "/metrics")

    assert all(later - earlier >= 1.0 + REST for earlier, later in itertools.pairwise(began))
    assert len(began) <= 8


async def test_unknown_path_is_not_found(probe: Probe) -> None:
    assert (await probe.client.get("/")).status_code == 404


@pytest.mark.process
async def test_report_follows_the_iteration_and_is_not_ready_between_two(tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    before = health_of(rig.process)
    rig.cluster.put(config_map(dataplane={"deploymentTimeout": "7s"}))

    async with rig.running():
        await rig.wait(ReconcileCompleted)
        during = health_of(rig.process)
    after = health_of(rig.process)

    assert (before.iteration, before.is_ready, before.is_live) == (0, False, True)
    assert (during.iteration, during.stage, during.is_ready, during.is_leader) == (1, 5, True, True)
    assert (
        before.missing
        == ("no iteration is running: the process is starting or between two iterations",)
        == after.missing
    )
    assert during.missing == ()
    limits = {component.name: component.limit for component in during.components}
    assert limits.keys() == {"checker", "coordinator", "deployer", "scheduler", "drift monitor", "debouncer"}
    assert limits["deployer"] == 14
    assert (after.iteration, after.stage, after.is_ready, after.components) == (0, 0, False, ())
    # What a probe reads can be written, configured durations included.
    assert msgspec.json.decode(msgspec.json.encode(during))["components"]
