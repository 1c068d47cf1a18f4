"""Election at an API server that fails in every way: who leads, and when it is reported."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.api.lease import LEASES, LeaseElector, Standing
from haptic_trio.k8s.lease_election import LeaseSettings
from tests.k8s.api.api_cluster import Reports, connected
from tests.support.api_server.server import ApiServer, serving

FAST = LeaseSettings(duration=1.0, renew_deadline=0.6, retry_period=0.1)


@pytest.fixture
async def server() -> AsyncIterator[ApiServer]:
    async with serving() as server:
        yield server


class Replica:
    """A candidate and the leadership changes that it received."""

    def __init__(self, cluster: ApiCluster, name: str, settings: LeaseSettings) -> None:
        self.reports = Reports()
        self.standings: list[tuple[float, Standing]] = []
        self.elector = LeaseElector(
            cluster, "default", "leader", identity=name, settings=settings, report=self.reports, spread=lambda: 0.1
        )
        self.scope = trio.CancelScope()
        self.ended = trio.Event()
        self._reported = trio.Event()

    @property
    def is_leader(self) -> bool:
        return bool(self.standings) and self.standings[-1][1].is_leader

    async def run(self) -> None:
        with self.scope:
            await self.elector.run(self.take)
        self.ended.set()

    def take(self, standing: Standing) -> None:
        self.standings.append((trio.current_time(), standing))
        self._reported.set()
        self._reported = trio.Event()

    async def wait(self, *, is_leader: bool) -> float:
        """Wait for this state; return the time."""
        with trio.fail_after(10):
            while not self.standings or self.is_leader is not is_leader:
                await self._reported.wait()
        return self.standings[-1][0]

    async def stop(self) -> None:
        self.scope.cancel()
        await self.ended.wait()


class Replicas:
    def __init__(self, cluster: ApiCluster, nursery: trio.Nursery) -> None:
        self._cluster = cluster
        self._nursery = nursery

    def start(self, name: str, settings: LeaseSettings = FAST) -> Replica:
        replica = Replica(self._cluster, name, settings)
        self._nursery.start_soon(replica.run)
        return replica


@pytest.fixture
async def replicas(server: ApiServer, tmp_path: Path) -> AsyncIterator[Replicas]:
    async with connected(server, tmp_path / "kubeconfig") as cluster, trio.open_nursery() as nursery:
        yield Replicas(cluster, nursery)
        nursery.cancel_scope.cancel()


def stored(server: ApiServer) -> dict[str, Any]:
    spec: dict[str, Any] = server.stored(LEASES, "default", "leader")["spec"]
    return spec


def renewals(server: ApiServer) -> int:
    return sum(request.startswith("PUT") and "/leases/" in request for request in server.requests)


async def test_first_replica_leads_and_the_second_follows(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one")
    await one.wait(is_leader=True)
    two = replicas.start("two")
    await two.wait(is_leader=False)
    await server.until(lambda: renewals(server) > 5)

    assert one.is_leader
    assert not two.is_leader
    assert two.standings[-1][1].leader == "one"
    assert stored(server)["holderIdentity"] == "one"
    assert stored(server)["leaseTransitions"] == 0
    assert stored(server)["renewTime"] > stored(server)["acquireTime"]


async def test_clean_stop_hands_the_lease_over_at_once(server: ApiServer, replicas: Replicas) -> None:
    slow = LeaseSettings(duration=60, renew_deadline=40, retry_period=10)
    one = replicas.start("one", slow)
    await one.wait(is_leader=True)
    two = replicas.start("two", slow)
    await two.wait(is_leader=False)

    began = trio.current_time()
    await one.stop()
    led = await two.wait(is_leader=True)

    assert led - began < 1
    assert not one.is_leader
    assert stored(server)["leaseTransitions"] == 1


async def test_lease_of_a_replica_that_vanished_is_taken_after_its_duration(
    server: ApiServer, replicas: Replicas
) -> None:
    one = replicas.start("one")
    await one.wait(is_leader=True)
    two = replicas.start("two")
    await two.wait(is_leader=False)

    one.elector.abandon()
    began = trio.current_time()
    await one.stop()
    led = await two.wait(is_leader=True)

    assert FAST.duration - FAST.retry_period - 0.05 <= led - began <= FAST.duration + 1


async def test_leader_cut_off_steps_down_before_another_can_lead(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one")
    await one.wait(is_leader=True)
    last = trio.current_time()
    server.faults.hanging = True

    lost = await one.wait(is_leader=False)

    assert lost - last <= FAST.renew_deadline + 0.3
    assert not one.elector.is_held()
    server.faults.hanging = False
    await one.wait(is_leader=True)
    assert stored(server)["leaseTransitions"] == 0, "nobody else had it in between"


async def test_renewals_that_fail_for_a_moment_do_not_end_the_term(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one")
    await one.wait(is_leader=True)
    before = renewals(server)

    server.faults.failing = 3
    await server.until(lambda: renewals(server) > before + 6)

    assert [standing.is_leader for _, standing in one.standings].count(False) <= 1
    assert one.is_leader
    assert one.reports.messages == ""
    assert one.reports.reported >= 2


async def test_server_that_is_restarted_in_time_ends_no_term(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one", LeaseSettings(duration=8, renew_deadline=6, retry_period=0.1))
    await one.wait(is_leader=True)

    server.stop()
    await one.reports.wait(lambda reports: bool(reports.messages))
    await server.start()
    await one.reports.wait(lambda reports: not reports.messages)

    assert one.is_leader
    assert all(standing.is_leader for _, standing in one.standings[-1:])


async def test_lease_is_taken_as_soon_as_the_server_is_back_and_not_a_retry_period_later(
    server: ApiServer, replicas: Replicas
) -> None:
    one = replicas.start("one", LeaseSettings(duration=300, renew_deadline=200, retry_period=100))
    await one.wait(is_leader=True)
    server.faults.failing = 1_000_000
    # Other durations lead to a renewal at once, which fails: the next attempt is a retry period away.
    one.elector.change_settings(LeaseSettings(duration=301, renew_deadline=201, retry_period=100))
    await one.reports.wait(lambda reports: bool(reports.messages))
    await server.until(lambda: sum("/readyz" in request for request in server.requests) >= 2)
    server.faults.failing = 0

    await one.reports.wait(lambda reports: not reports.messages)
    assert one.is_leader


async def test_lease_changed_by_another_writer_is_noticed_and_given_up(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one", LeaseSettings(duration=60, renew_deadline=40, retry_period=20))
    await one.wait(is_leader=True)

    lease = server.stored(LEASES, "default", "leader")
    server.put({**lease, "spec": {**lease["spec"], "holderIdentity": "usurper"}})
    await one.wait(is_leader=False)

    assert stored(server)["holderIdentity"] == "usurper"


async def test_what_others_have_put_into_the_lease_stays(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one")
    await one.wait(is_leader=True)

    lease = server.stored(LEASES, "default", "leader")
    metadata = {**lease["metadata"], "labels": {"team": "edge"}}
    server.put({**lease, "metadata": metadata, "spec": {**lease["spec"], "strategy": "OldestEmulationVersion"}})
    before = renewals(server)
    await server.until(lambda: renewals(server) > before + 3)

    assert one.is_leader
    assert stored(server)["strategy"] == "OldestEmulationVersion"
    assert server.stored(LEASES, "default", "leader")["metadata"]["labels"] == {"team": "edge"}


async def test_deleted_lease_is_created_again(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one")
    await one.wait(is_leader=True)

    server.remove(server.stored(LEASES, "default", "leader"))
    await server.until(lambda: ("default", "leader") in server.state.collections[LEASES].objects)
    await one.wait(is_leader=True)

    assert stored(server)["holderIdentity"] == "one"


async def test_other_durations_take_effect_without_losing_the_lease(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one", LeaseSettings(duration=60, renew_deadline=40, retry_period=20))
    await one.wait(is_leader=True)

    one.elector.change_settings(LeaseSettings(duration=30, renew_deadline=20, retry_period=10))
    await server.until(lambda: stored(server)["leaseDurationSeconds"] == 30)

    assert one.is_leader
    assert len([1 for _, standing in one.standings if standing.is_leader]) == 1


async def test_replica_that_may_not_read_leases_says_so_and_leads_once_it_may(
    server: ApiServer, replicas: Replicas
) -> None:
    server.faults.forbidden.add("leases")
    one = replicas.start("one")
    await one.reports.wait(lambda reports: "forbidden" in reports.messages)
    assert not one.is_leader

    server.faults.forbidden.clear()
    await one.wait(is_leader=True)
    await one.reports.wait(lambda reports: not reports.messages)


async def test_many_replicas_elect_one(server: ApiServer, replicas: Replicas) -> None:
    candidates = [replicas.start(f"replica-{number}") for number in range(5)]
    await server.until(lambda: renewals(server) > 10)

    assert sum(each.is_leader for each in candidates) == 1


async def test_release_that_meets_a_silent_server_ends_all_the_same(server: ApiServer, replicas: Replicas) -> None:
    one = replicas.start("one")
    await one.wait(is_leader=True)
    server.faults.hanging = True

    began = trio.current_time()
    with trio.fail_after(10):
        await one.stop()

    assert trio.current_time() - began < 3
