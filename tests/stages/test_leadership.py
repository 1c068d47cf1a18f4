"""While this replica leads, it deploys; what others lead, it only validates."""

from functools import partial

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.channels import CycleEvent, Latest
from haptic_trio.messages import (
    ConfigValidated,
    DeploymentScheduled,
    LeadershipChanged,
    Outcome,
    Reason,
    ReconcileCompleted,
    ReconcileTriggered,
)
from haptic_trio.stages.leadership import run_leadership_terms
from tests.support.components.controller import ControllerRig, config_map, leading
from tests.support.kubernetes import service

pytestmark = pytest.mark.process


class Terms:
    """`run_leadership_terms` with a lead that notes when it begins and ends."""

    def __init__(self) -> None:
        self.leadership = Latest[LeadershipChanged]()
        self.cycles_in, self.cycles = trio.open_memory_channel[CycleEvent](50)
        self.story: list[str] = []

    async def lead(self) -> None:
        self.story.append("begin")
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            self.story.append("end")

    async def start(self, nursery: trio.Nursery) -> None:
        await nursery.start(partial(run_leadership_terms, self.leadership, self.lead, cycles=self.cycles_in))


@pytest.fixture
def terms() -> Terms:
    return Terms()


async def test_terms_are_ready_once_it_is_known_who_leads(
    autojump_clock: MockClock, terms: Terms, nursery: trio.Nursery
) -> None:
    with trio.move_on_after(100) as waiting:
        await terms.start(nursery)
    assert waiting.cancelled_caught
    terms = Terms()
    terms.leadership.put(leading(False))

    await terms.start(nursery)

    assert terms.story == []


async def test_each_term_begins_when_leadership_is_won_and_ends_when_it_is_lost(
    autojump_clock: MockClock, terms: Terms, nursery: trio.Nursery
) -> None:
    terms.leadership.put(leading())
    await terms.start(nursery)
    for is_leader in (False, True, False):
        await trio.sleep(10)
        terms.leadership.put(leading(is_leader))
    await trio.sleep(10)

    assert terms.story == ["begin", "end", "begin", "end"]


async def test_terms_do_not_overlap_when_leadership_returns_while_the_former_one_drains(
    autojump_clock: MockClock, terms: Terms, nursery: trio.Nursery
) -> None:
    terms.leadership.put(leading())
    await terms.start(nursery)
    await trio.sleep(10)

    terms.leadership.put(leading(False))
    await wait_all_tasks_blocked()
    terms.leadership.put(leading())
    await trio.sleep(10)

    assert terms.story == ["begin", "end", "begin"]


async def test_news_of_leadership_that_changes_nothing_does_not_end_the_term(
    autojump_clock: MockClock, terms: Terms, nursery: trio.Nursery
) -> None:
    terms.leadership.put(leading())
    await terms.start(nursery)
    await trio.sleep(10)

    terms.leadership.put(leading(transitions=3))
    await trio.sleep(10)

    assert terms.story == ["begin"]


async def test_ledger_knows_the_leader_from_the_start(
    autojump_clock: MockClock, terms: Terms, nursery: trio.Nursery
) -> None:
    terms.leadership.put(leading())
    await terms.start(nursery)
    await trio.sleep(10)
    terms.leadership.put(leading(False))
    await trio.sleep(10)

    reported = [terms.cycles.receive_nowait() for _ in range(2)]
    assert reported == [leading(), leading(False)]


async def test_follower_validates_and_does_not_deploy(rig: ControllerRig) -> None:
    rig.process.leadership.put(leading(False))
    rig.cluster.put(config_map(), service("web"))

    async with rig.running():
        completed = await rig.wait(ReconcileCompleted)
        assert rig.iteration is not None
        assert rig.iteration.is_ready
        await wait_all_tasks_blocked(0.01)

    assert completed.outcome is Outcome.VALIDATED
    assert rig.events.all(DeploymentScheduled) == []
    assert rig.endpoint.running is None


async def test_follower_that_becomes_leader_deploys_the_present_state_at_once(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.process.leadership.put(leading(False))
    rig.cluster.put(config_map(dataplane={"minDeploymentInterval": "60s"}), service("web"))

    async with rig.running():
        await rig.wait(ConfigValidated)
        rig.process.leadership.put(leading())
        await rig.deployed("backend web")
        assert trio.current_time() == 0


async def test_leader_that_was_deposed_stops_deploying_until_it_leads_again(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(), service("web"))

    async with rig.running():
        await rig.deployed("backend web")
        rig.process.leadership.put(leading(False))
        await wait_all_tasks_blocked(0.01)
        rig.cluster.put(service("api"))
        since = len(rig.events)
        followed = await rig.wait(ReconcileCompleted, since=since)
        assert followed.outcome is Outcome.VALIDATED
        assert "backend api" not in rig.endpoint.text

        rig.process.leadership.put(leading())
        await rig.deployed("backend api")


async def test_deployment_in_flight_when_leadership_is_lost_is_drained_and_no_other_begins(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.cluster.put(config_map(), service("web"))
    rig.endpoint.seconds = 3

    async with rig.running():
        await rig.endpoint.begun.wait_newer(0)
        rig.cluster.put(service("api"))
        await rig.wait(ConfigValidated, lambda event: "backend api" in event.generation.text)
        rig.process.leadership.put(leading(False))
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(3)
        await rig.deployed("backend web")
        await wait_all_tasks_blocked(0.01)

        assert rig.endpoint.begun.version == 1
        assert "backend api" not in rig.endpoint.text


async def test_drift_monitor_runs_on_followers_too(mock_clock: MockClock, rig: ControllerRig) -> None:
    rig.process.leadership.put(leading(False))
    rig.cluster.put(config_map())

    async with rig.running():
        await rig.wait(ReconcileCompleted)
        await wait_all_tasks_blocked(0.01)
        mock_clock.jump(60)
        triggered = await rig.wait(ReconcileTriggered, lambda event: event.reason is Reason.DRIFT)
        completed = await rig.wait(ReconcileCompleted, lambda event: event.correlation == triggered.correlation)

    assert completed.outcome is Outcome.VALIDATED
    assert rig.endpoint.running is None


async def test_leader_stays_leader_across_iterations(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.deployed("maxconn 10")
        rig.cluster.put(config_map(number=20))
        await rig.deployed("maxconn 20")

    assert rig.events.all(LeadershipChanged) == []
