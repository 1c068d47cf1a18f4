"""Lists of candidates that are too long for the line of a map."""

from haptic_trio.gateway.routes.lists import Candidate, list_of
from haptic_trio.gateway.routes.matches import Condition, Match
from haptic_trio.gateway.routes.programs import MAX_CONDITIONS, MAX_PROGRAM
from tests.gateway.objects import route


def candidate(namespace: str, number: int, *, size: int = 1_000, day: int = 1, last: bool = False) -> Candidate:
    """Return a candidate with *size* bytes of conditions, or without conditions if it is the *last* one."""
    match = Match() if last else Match(headers=(Condition("h", "x" * (size - len("h,h,"))),))
    one = route(f"r{number}", namespace=namespace, created=f"2026-01-{day:02}T00:00:00Z")
    return Candidate(match, f"{namespace}-{number}", one, (), (0, 0))


def targets(candidates: list[Candidate]) -> list[str]:
    """Return the targets of the list of *candidates*."""
    value, _ = list_of(candidates)
    assert len(value) <= MAX_PROGRAM
    return [part.rpartition(">")[2] for part in value.removeprefix("?").split(";")]


def names(candidates: list[Candidate]) -> list[str]:
    """Return the routes that the list of *candidates* omits."""
    return [f"{one['metadata']['namespace']}-{one['metadata']['name']}" for one in list_of(candidates)[1]]


def test_a_list_that_fits_is_whole() -> None:
    found = [candidate("a", number) for number in range(5)]

    assert targets(found) == [f"a-{number}" for number in range(5)]
    assert names(found) == []


def test_a_list_that_is_too_long_keeps_a_share_for_each_namespace_in_order_of_precedence() -> None:
    old = [candidate("a", number, day=1) for number in range(20)]
    young = [candidate("b", number, day=2) for number in range(4)]

    # A share is 6,000 bytes; the room that the second namespace leaves goes by age.
    found = targets([*young[:2], *old, *young[2:]])

    assert found == ["b-0", "b-1", "a-0", "a-1", "a-10", "a-11", "a-12", "a-13", "a-14", "b-2", "b-3"]


def test_the_target_without_conditions_always_has_room() -> None:
    found = [candidate("a", number, day=1) for number in range(20)]

    assert targets([*found, candidate("b", 0, day=2, last=True)])[-1] == "b-0"


def test_warnings_reach_each_namespace_first() -> None:
    found = [candidate(namespace, number, size=5_000) for namespace in ("a", "b", "c") for number in range(3)]

    assert names(found)[:3] == ["a-r2", "b-r0", "c-r0"]


def test_the_longest_match_has_room_with_the_longest_targets() -> None:
    found = candidate("a", 0, size=MAX_CONDITIONS)
    target = f"=HTTPRoute/{'n' * 63}/{'r' * 253}/99.99"

    value, omitted = list_of(
        [Candidate(found.match, target, found.route, (), (0, 0)), Candidate(Match(), target, found.route, (), (1, 0))]
    )

    assert len(value) <= MAX_PROGRAM
    assert not omitted


def test_a_target_of_another_namespace_is_followed_by_the_owner_of_its_route() -> None:
    one = route("r", namespace="own")
    found = [
        Candidate(match, "gateway::app_web_80", one, (), (0, 0), "own") for match in (Match(method="GET"), Match())
    ]

    assert list_of(found)[0] == "?m,GET>gateway::app_web_80>own;>gateway::app_web_80>own"
    assert list_of(found[1:])[0] == "gateway::app_web_80"
    assert list_of(found[1:], is_wide=True)[0] == "gateway::app_web_80>own"
