from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.deployment.rounds import Rounds, Target
from haptic_trio.messages import DeploymentCompleted, DeploymentReason, DeploymentScheduled
from tests.support.components.endpoints import MemoryEndpoint, generation

ENDPOINTS = tuple(MemoryEndpoint(name) for name in ("one", "two", "three"))


def scheduled(name: str, *endpoints: MemoryEndpoint) -> DeploymentScheduled:
    return DeploymentScheduled(
        correlation=name, generation=generation(name), endpoints=endpoints, why=DeploymentReason.VALIDATED
    )


def succeed(rounds: Rounds, target: Target, *, is_partial: bool = False) -> list[DeploymentCompleted]:
    result = SyncResult(endpoint=target.endpoint.name, changed=True, reloaded=False, is_partial=is_partial)
    return rounds.succeed(target, result, 0)


def take(rounds: Rounds, name: str) -> Target:
    target = rounds.take(name)
    assert target is not None
    return target


def test_round_without_endpoints_is_completed_at_once() -> None:
    assert [message.correlation for message in Rounds().begin(scheduled("a"), 0)] == ["a"]


def test_newer_round_supersedes_what_was_not_begun_but_not_what_is_in_hand() -> None:
    rounds = Rounds()
    one, two, _three = ENDPOINTS
    rounds.begin(scheduled("a", one, two), 0)
    in_hand = take(rounds, "one")

    assert rounds.begin(scheduled("b", one, two), 1) == []
    (a,) = succeed(rounds, in_hand)

    assert (a.correlation, a.superseded, [result.endpoint for result in a.results]) == ("a", ("two",), ["one"])
    assert take(rounds, "one").deployment.correlation == "b"


def test_round_that_another_one_of_its_reconciliation_supersedes_is_continued() -> None:
    rounds = Rounds()
    one = ENDPOINTS[0]
    for name, ended in (("a", []), ("a", [("a", True)]), ("b", [("a", False)])):
        completed = rounds.begin(scheduled(name, one), 0)
        assert [(message.correlation, message.is_continued) for message in completed] == ended


def test_late_success_counts_for_its_own_round_only() -> None:
    rounds = Rounds()
    one = ENDPOINTS[0]
    rounds.begin(scheduled("a", one), 0)
    old = take(rounds, "one")
    rounds.begin(scheduled("b", one), 0)

    assert [message.correlation for message in succeed(rounds, old)] == ["a"]
    assert rounds.open == 1
    assert [message.correlation for message in succeed(rounds, take(rounds, "one"))] == ["b"]


def test_partial_deployment_completes_its_round_when_the_rest_is_deployed() -> None:
    rounds = Rounds()
    rounds.begin(scheduled("a", ENDPOINTS[0]), 0)

    assert succeed(rounds, take(rounds, "one"), is_partial=True) == []
    (a,) = succeed(rounds, take(rounds, "one"))

    assert (a.superseded, [result.endpoint for result in a.results]) == ((), ["one"])


def test_newer_round_supersedes_what_was_deployed_in_part() -> None:
    rounds = Rounds()
    one = ENDPOINTS[0]
    rounds.begin(scheduled("a", one), 0)
    assert succeed(rounds, take(rounds, "one"), is_partial=True) == []
    (a,) = rounds.begin(scheduled("b", one), 0)
    in_hand = take(rounds, "one")
    assert rounds.begin(scheduled("b", one), 0) == []
    (b,) = succeed(rounds, in_hand, is_partial=True)

    assert (a.correlation, a.superseded, a.is_continued) == ("a", ("one",), False)
    # The newer one belongs to the same reconciliation.
    assert (b.correlation, b.superseded, b.is_continued) == ("b", ("one",), True)
    assert rounds.open == 1


def test_retry_completes_nothing_a_second_time() -> None:
    rounds = Rounds()
    rounds.begin(scheduled("a", ENDPOINTS[0]), 0)

    (failed,) = rounds.fail(take(rounds, "one"), 3)
    assert (failed.failed, failed.seconds) == (("one",), 3)
    assert succeed(rounds, take(rounds, "one")) == []


def test_lost_endpoint_does_not_hold_a_round_open() -> None:
    rounds = Rounds()
    rounds.begin(scheduled("a", ENDPOINTS[0]), 0)

    (message,) = rounds.drop("one", 0)

    assert message.superseded == ("one",)
    assert rounds.take("one") is None


def test_endpoint_that_is_lost_before_its_target_is_deployed_does_not_hold_a_round_open() -> None:
    rounds = Rounds()
    rounds.begin(scheduled("a", *ENDPOINTS[:2]), 0)
    succeed(rounds, take(rounds, ENDPOINTS[1].name))

    take(rounds, "one")
    (message,) = rounds.drop("one", 0)

    assert message.superseded == ("one",)
    assert rounds.open == 0


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.sets(st.sampled_from(range(3)), min_size=1)),
        st.tuples(st.sampled_from(["take", "succeed", "continue", "fail", "drop"]), st.sampled_from(range(3))),
    ),
    max_size=60,
)


@given(STEPS)
def test_each_round_completes_exactly_once_and_accounts_for_each_endpoint(steps: list[tuple[str, object]]) -> None:
    rounds, in_hand = Rounds(), dict[str, Target]()
    begun: dict[str, set[str]] = {}
    completed: list[DeploymentCompleted] = []
    for number, (step, choice) in enumerate(steps):
        if isinstance(choice, set):
            chosen = [ENDPOINTS[index] for index in sorted(choice)]
            begun[str(number)] = {endpoint.name for endpoint in chosen}
            completed += rounds.begin(scheduled(str(number), *chosen), number)
            continue
        assert isinstance(choice, int)
        name = ENDPOINTS[choice].name
        if step == "take" and name not in in_hand and (target := rounds.take(name)) is not None:
            in_hand[name] = target
        elif step == "succeed" and name in in_hand:
            completed += succeed(rounds, in_hand.pop(name))
        elif step == "continue" and name in in_hand:
            completed += succeed(rounds, in_hand.pop(name), is_partial=True)
        elif step == "fail" and name in in_hand:
            completed += rounds.fail(in_hand.pop(name), number)
        elif step == "drop" and name not in in_hand:
            # As the deployer does: it finds that the endpoint of a target is lost.
            rounds.take(name)
            completed += rounds.drop(name, number)
    for name, target in in_hand.items():
        completed += succeed(rounds, target)
        assert name == target.endpoint.name
    for endpoint in ENDPOINTS:
        if (waiting := rounds.take(endpoint.name)) is not None:
            completed += succeed(rounds, waiting)

    assert rounds.open == 0
    assert Counter(message.correlation for message in completed) == Counter(list(begun))
    for message in completed:
        named = [*(result.endpoint for result in message.results), *message.failed, *message.superseded]
        assert sorted(named) == sorted(begun[message.correlation])
