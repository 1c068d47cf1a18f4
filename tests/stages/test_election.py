"""The Lease decides which replica leads, with the settings of the running configuration."""

from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.config.model import Config, ControllerConfig, Duration, LeaderElection
from haptic_trio.k8s.api.lease import LEASES
from haptic_trio.messages import LeadershipChanged
from haptic_trio.stages.election import lead_alone, make_identity, run_leadership
from haptic_trio.stages.leadership import drain_limit
from tests.k8s.api.api_cluster import connected
from tests.support.api_server.server import ApiServer, serving
from tests.support.components.controller import ControllerRig, config_map
from tests.support.messages import drain


class Candidate:
    def __init__(self, server: ApiServer) -> None:
        self.server = server
        self.overrides: Latest[LeaderElection] = Latest()
        self.leadership: Latest[LeadershipChanged] = Latest()
        self.events = EventBuffer()

    @property
    def is_leader(self) -> bool:
        return self.leadership.value is not None and self.leadership.value.is_leader

    def desired(self, **fields: Any) -> None:
        self.overrides.put(LeaderElection(**fields))

    async def wait(self, *, is_leader: bool) -> None:
        seen = 0
        with trio.fail_after(10):
            while self.is_leader is not is_leader:
                seen, _ = await self.leadership.wait_newer(seen)

    def spec(self, name: str = "haptic-trio-leader") -> dict[str, Any]:
        spec: dict[str, Any] = self.server.stored(LEASES, "default", name)["spec"]
        return spec


@pytest.fixture
async def candidate(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Candidate]:
    async with serving() as server, connected(server, tmp_path / "kubeconfig") as cluster:
        candidate = Candidate(server)
        async with trio.open_nursery() as electing:
            await electing.start(
                partial(
                    run_leadership,
                    cluster,
                    "default",
                    candidate.overrides,
                    candidate.leadership,
                    identity="me",
                    events=candidate.events,
                )
            )
            yield candidate
            electing.cancel_scope.cancel()
        assert not candidate.is_leader


async def test_no_replica_bids_for_the_lease_before_it_has_a_valid_configuration(candidate: Candidate) -> None:
    await wait_all_tasks_blocked(0.05)

    assert candidate.leadership.value == LeadershipChanged(is_leader=False, identity="me", transitions=0)
    assert candidate.server.requests == []
    assert drain(candidate.events) == []


async def test_leadership_is_acquired_published_and_released_at_the_end(candidate: Candidate) -> None:
    candidate.desired()
    await candidate.wait(is_leader=True)

    assert drain(candidate.events) == [LeadershipChanged(is_leader=True, identity="me", transitions=0, term=1)]
    assert candidate.spec()["holderIdentity"] == "me"


async def test_other_durations_keep_the_lease_and_another_name_leaves_it_to_expire(candidate: Candidate) -> None:
    candidate.desired()
    await candidate.wait(is_leader=True)
    candidate.desired(lease_duration=Duration(40))
    await candidate.server.until(lambda: candidate.spec()["leaseDurationSeconds"] == 40)
    assert len(drain(candidate.events)) == 1

    candidate.desired(lease_name="other")
    await candidate.server.until(
        lambda: (
            ("default", "other") in candidate.server.state.collections[LEASES].objects
            and candidate.spec("other")["holderIdentity"] == "me"
        )
    )
    await candidate.wait(is_leader=True)
    assert candidate.spec()["holderIdentity"] == "me", "not released: others may not know of the new name yet"


async def test_without_election_this_replica_leads_and_with_it_again_only_with_the_lease(candidate: Candidate) -> None:
    candidate.desired(enabled=False)
    await candidate.wait(is_leader=True)
    await wait_all_tasks_blocked(0.02)
    assert candidate.server.requests == []

    candidate.server.faults.forbidden.add("leases")
    candidate.desired()
    await candidate.wait(is_leader=False)
    candidate.server.faults.forbidden.clear()
    await candidate.wait(is_leader=True)
    assert candidate.leadership.value is not None
    assert candidate.leadership.value.term == 2


async def test_leading_without_a_lease_starts_at_once() -> None:
    leadership: Latest[LeadershipChanged] = Latest()

    lead_alone(leadership, EventBuffer())

    assert leadership.value is not None
    assert leadership.value.is_leader


def test_identity_is_of_one_run() -> None:
    assert make_identity() != make_identity()


@pytest.mark.parametrize(
    ("election", "limit"),
    [
        (LeaderElection(), 5),
        (LeaderElection(lease_duration=Duration(12)), 2),
        (LeaderElection(enabled=False, lease_duration=Duration(12)), 5),
    ],
)
def test_deployment_in_flight_ends_before_others_may_lead(election: LeaderElection, limit: float) -> None:
    assert drain_limit(ControllerConfig(leader_election=election)) == limit


async def test_iteration_that_has_come_up_says_what_it_wants_of_the_election(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(controller={"leaderElection": {"leaseName": "mine"}}))

    async with rig.running():
        await rig.reached(5, 1)

    assert rig.process.election.value == LeaderElection(lease_name="mine")
    assert Config().controller.leader_election != rig.process.election.value
