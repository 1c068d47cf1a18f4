import msgspec
import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import CycleEvent, EventBuffer
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentState,
    LeadershipChanged,
    Outcome,
    Phases,
    Reason,
    ReconcileCompleted,
    ReconcileTriggered,
    ValidationFailed,
)
from haptic_trio.pipeline.ledger import CycleLedger, run_ledger
from tests.support.components.endpoints import generation


def triggered(name: str) -> ReconcileTriggered:
    return ReconcileTriggered(correlation=name, reason=Reason.CHANGED, changes=1)


def validated(name: str) -> ConfigValidated:
    return ConfigValidated(correlation=name, reason=Reason.CHANGED, generation=generation(name), phases=Phases())


def rejected(name: str) -> ValidationFailed:
    return ValidationFailed(correlation=name, reason=Reason.CHANGED, phase="parse", problems=())


def completed(name: str, *, changed: bool = True, failed: tuple[str, ...] = ()) -> DeploymentCompleted:
    result = SyncResult(endpoint="e", changed=changed, reloaded=False)
    return DeploymentCompleted(correlation=name, generation="g", results=(result,), failed=failed, seconds=0)


def feed(ledger: CycleLedger, *events: CycleEvent) -> list[tuple[str, Outcome]]:
    """Return how cycles ended; the clock ticks a second with each event."""
    ended = []
    for now, event in enumerate(events):
        ended += [(message.correlation, message.outcome) for message in ledger.take(event, now)]
    return ended


@pytest.mark.parametrize(("is_leader", "outcome"), [(True, Outcome.UNCHANGED), (False, Outcome.VALIDATED)])
def test_a_cycle_that_changes_nothing_ends_without_a_deployment(is_leader: bool, outcome: Outcome) -> None:
    ledger = CycleLedger(is_leader=is_leader)
    same = msgspec.structs.replace(validated("b"), is_deployed=True)

    assert feed(ledger, triggered("a"), triggered("b"), same) == [("a", Outcome.SUPERSEDED), ("b", outcome)]
    assert ledger.open == ()


@pytest.mark.parametrize(
    ("completion", "outcome"),
    [
        (completed("a"), Outcome.DEPLOYED),
        (completed("a", changed=False), Outcome.UNCHANGED),
        (completed("a", failed=("two",)), Outcome.INCOMPLETE),
    ],
)
def test_leaders_cycle_ends_with_its_deployment(completion: DeploymentCompleted, outcome: Outcome) -> None:
    ledger = CycleLedger(is_leader=True)

    assert feed(ledger, triggered("a"), validated("a"), completion) == [("a", outcome)]
    assert ledger.open == ()


def test_followers_cycle_ends_with_its_validation() -> None:
    ledger = CycleLedger(is_leader=False)

    assert feed(ledger, triggered("a"), validated("a")) == [("a", Outcome.VALIDATED)]


def test_cycle_whose_deployment_was_overtaken_is_superseded() -> None:
    ledger = CycleLedger(is_leader=True)

    ended = feed(ledger, triggered("a"), validated("a"), triggered("b"), validated("b"), completed("b"))

    assert ended == [("a", Outcome.SUPERSEDED), ("b", Outcome.DEPLOYED)]


def test_cycle_ends_with_its_last_deployment_not_with_one_that_is_repeated() -> None:
    ledger = CycleLedger(is_leader=True)
    repeated = DeploymentCompleted(
        correlation="a", generation="g", results=(), failed=(), superseded=("e",), is_continued=True, seconds=0
    )

    assert feed(ledger, triggered("a"), validated("a"), repeated) == []
    assert feed(ledger, completed("a")) == [("a", Outcome.DEPLOYED)]


def test_triggers_that_were_taken_together_end_as_superseded_but_for_the_newest() -> None:
    ledger = CycleLedger(is_leader=True)

    ended = feed(ledger, triggered("a"), triggered("b"), triggered("c"), rejected("c"))

    assert ended == [("a", Outcome.SUPERSEDED), ("b", Outcome.SUPERSEDED)]
    assert ledger.open == ()


def test_failed_cycle_leaves_an_older_one_that_still_deploys() -> None:
    ledger = CycleLedger(is_leader=True)

    ended = feed(ledger, triggered("a"), validated("a"), triggered("b"), rejected("b"), completed("a"))

    assert ended == [("a", Outcome.DEPLOYED)]


def test_lost_leadership_ends_what_waits_for_a_deployment() -> None:
    ledger = CycleLedger(is_leader=True)
    lost = LeadershipChanged(is_leader=False, identity="x", transitions=2)

    ended = feed(ledger, triggered("a"), validated("a"), triggered("b"), validated("b"), lost)

    assert ended == [("a", Outcome.SUPERSEDED), ("b", Outcome.VALIDATED)]


def test_retried_deployment_does_not_end_a_cycle_twice() -> None:
    ledger = CycleLedger(is_leader=True)

    ended = feed(ledger, triggered("a"), validated("a"), completed("a", failed=("e",)), completed("a"))

    assert ended == [("a", Outcome.INCOMPLETE)]


async def test_ledger_reports_the_duration_of_a_cycle_and_ends_with_its_input(autojump_clock: MockClock) -> None:
    cycles_in, cycles_out = trio.open_memory_channel[CycleEvent](50)
    events = EventBuffer()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: run_ledger(cycles_out, is_leader=True, events=events))
        await cycles_in.send(triggered("a"))
        await trio.sleep(3)
        await cycles_in.send(completed("a"))
        cycles_in.close()

    reported = events.receiver.receive_nowait()
    assert reported == ReconcileCompleted(correlation="a", outcome=Outcome.DEPLOYED, seconds=3)


def prepared(name: str) -> ConfigPrepared:
    return ConfigPrepared(correlation=name, reason=Reason.CHANGED, generation=generation(name), phases=Phases())


def test_cycle_ends_with_the_deployment_of_its_data_before_it_is_known_to_be_valid() -> None:
    ledger = CycleLedger(is_leader=True)

    assert feed(ledger, triggered("a"), prepared("a"), completed("a"), validated("a")) == [("a", Outcome.DEPLOYED)]
    assert ledger.open == ()


def test_cycle_goes_on_while_endpoints_hold_back_some_of_it() -> None:
    ledger = CycleLedger(is_leader=True)
    held = msgspec.structs.replace(completed("a"), state=DeploymentState(held=("e",)))

    ended = feed(ledger, triggered("a"), prepared("a"), held, validated("a"), completed("a"))

    assert ended == [("a", Outcome.DEPLOYED)]


def test_rejection_of_a_deployed_generation_ends_no_other_reconciliation() -> None:
    ledger = CycleLedger(is_leader=True)

    ended = feed(ledger, triggered("a"), prepared("a"), completed("a"), triggered("b"), rejected("a"))

    assert ended == [("a", Outcome.DEPLOYED)]
    assert ledger.open == ("b",)


def test_follower_that_checks_now_and_then_ends_older_cycles_as_superseded() -> None:
    ledger = CycleLedger(is_leader=False)

    ended = feed(ledger, triggered("a"), prepared("a"), triggered("b"), prepared("b"), validated("b"))

    assert ended == [("a", Outcome.SUPERSEDED), ("b", Outcome.VALIDATED)]
