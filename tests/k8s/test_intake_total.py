"""The changes of very many namespaces, and of large objects, that a cycle takes in, and which of them come first."""

from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.intake import FIRST_SHARE, LEAST_SHARE, MOST_SHARE, QUIET, TOTAL, UNIT, Intake, weight_of
from haptic_trio.k8s.resource import Resource, ResourceRef
from tests.k8s.objects import service

MANY = 3000
TARGET = 0.1


def objects(namespace: str, count: int = MANY) -> list[ResourceRef]:
    """Return one object of each of *count* namespaces, whose names begin with *namespace*."""
    return [ResourceRef("Ingress", f"{namespace}-{number:05}", "web") for number in range(count)]


def admitted(intake: Intake, wanted: Iterable[ResourceRef]) -> int:
    return sum(intake.admits(ref) for ref in wanted)


def begun(known: Iterable[ResourceRef] = (), cycles: int = QUIET) -> Intake:
    """Return an intake some *cycles* after the first one, which took in *known*."""
    intake = Intake(TARGET)
    admitted(intake, known)
    for _cycle in range(cycles + 1):
        assert intake.begin() == ()
    return intake


def test_a_cycle_takes_in_a_bounded_number_of_objects_of_very_many_namespaces() -> None:
    intake = begun()

    assert admitted(intake, objects("new")) == TOTAL * FIRST_SHARE

    assert len(intake.begin()) == FIRST_SHARE
    assert admitted(intake, objects("newer")) == (TOTAL - 1) * FIRST_SHARE


def test_the_first_cycle_takes_in_everything() -> None:
    assert admitted(Intake(TARGET), objects("new")) == MANY


def test_a_cycle_for_other_changes_has_the_whole_total_for_them() -> None:
    intake = begun()
    admitted(intake, objects("new"))

    assert intake.begin(is_for_others=True) == ()

    assert admitted(intake, objects("newer")) == TOTAL * FIRST_SHARE


def test_changes_of_a_quiet_namespace_do_not_wait_behind_those_of_new_ones() -> None:
    (quiet,) = objects("quiet", 1)
    intake = begun([quiet])
    admitted(intake, objects("new"))

    assert intake.admits(quiet)
    assert not intake.admits(ResourceRef("Service", "another", "web"))


def test_a_namespace_is_not_quiet_soon_after_a_change() -> None:
    (recent,) = objects("recent", 1)
    intake = begun([recent], cycles=QUIET - 2)
    admitted(intake, objects("new"))

    assert not intake.admits(recent)


def test_quiet_namespaces_have_a_total_as_well() -> None:
    prepared = objects("prepared")
    intake = begun(prepared)

    assert admitted(intake, prepared) == 2 * TOTAL * FIRST_SHARE


def test_a_namespace_with_recent_changes_has_its_turn_before_new_ones_that_waited_before_it() -> None:
    (recent,) = objects("recent", 1)
    intake = begun([recent], cycles=1)
    admitted(intake, objects("new"))
    admitted(intake, [recent])

    assert recent in intake.begin()


def test_the_prepared_namespace_whose_last_change_is_longest_ago_comes_first() -> None:
    prepared = objects("prepared", 3)
    last, first, second = prepared
    intake = begun(prepared, cycles=1)
    for ref in (first, second, last):
        assert intake.admits(ref)
        intake.begin()
    admitted(intake, objects("new"))
    intake.note(1000.0)

    admitted(intake, (last, second, first))

    # The other turns are for those that wait longest.
    found = intake.begin()
    assert [ref for ref in found if ref in prepared] == [first, second, last]
    assert len(found) == LEAST_SHARE


def test_a_new_namespace_has_its_turn_although_others_change_all_the_time() -> None:
    busy = objects("busy", 2 * FIRST_SHARE)
    intake = begun(busy)
    admitted(intake, objects("new", TOTAL * FIRST_SHARE))
    (late,) = objects("late", 1)
    admitted(intake, busy)
    assert not intake.admits(late)

    for _cycle in range(2 * TOTAL + 2):
        if late in intake.begin():
            return
        admitted(intake, busy)
    raise AssertionError("a new namespace waits for ever")


def test_many_objects_of_some_namespaces_do_not_keep_the_first_turns() -> None:
    intake = begun()
    names = [f"big-{number}" for number in range(FIRST_SHARE)]
    big = [ResourceRef("Ingress", name, f"i{number}") for name in names for number in range(90)]
    admitted(intake, big)
    (late,) = objects("late", 1)
    assert not intake.admits(late)

    assert any(late in intake.begin() for _cycle in range(3))


def test_a_deletion_makes_room_for_nothing_in_the_same_cycle() -> None:
    intake, new = begun(), objects("new")
    admitted(intake, new)

    for ref in new:
        intake.forget(ref)

    assert not intake.is_waiting
    assert admitted(intake, objects("newer")) == 0


def test_what_is_known_of_namespaces_goes_over_to_another_iteration() -> None:
    (quiet,) = objects("quiet", 1)
    later = Intake(TARGET)
    later.take_over(begun([quiet]))
    later.begin()
    later.begin()
    admitted(later, objects("new"))

    assert later.admits(quiet)


NUMBERS = st.integers(0, 40)
CHANGES = st.lists(st.tuples(st.sampled_from(["Ingress", "Service"]), NUMBERS, NUMBERS), max_size=400)
CYCLES = st.lists(st.tuples(CHANGES, CHANGES, st.floats(0, 1), st.booleans()), max_size=12)


@given(CYCLES)
def test_nothing_is_lost_or_waits_for_ever_and_each_cycle_is_bounded(
    cycles: list[tuple[list[tuple[str, int, int]], list[tuple[str, int, int]], float, bool]],
) -> None:
    intake = begun()
    waiting = set[ResourceRef]()

    def begin(*, is_for_others: bool) -> int:
        found = intake.begin(is_for_others=is_for_others)
        assert waiting.issuperset(found)
        assert len(set(found)) == len(found) <= MOST_SHARE
        waiting.difference_update(found)
        return len(found)

    for changed, deleted, seconds, is_for_others in cycles:
        intake.note(seconds)
        taken = begin(is_for_others=is_for_others)
        new = set[ResourceRef]()
        for kind, namespace, name in changed:
            ref = ResourceRef(kind, f"n{namespace}", f"o{name}")
            answer = intake.admits(ref)
            # Another store asks for the same object.
            assert intake.admits(ref) == answer
            (new if answer else waiting).add(ref)
        assert not new & waiting
        assert taken + len(new) <= 2 * TOTAL * MOST_SHARE
        for kind, namespace, name in deleted:
            ref = ResourceRef(kind, f"n{namespace}", f"o{name}")
            intake.forget(ref)
            waiting.discard(ref)
        assert sum(intake.waiting.values()) == len(waiting)

    rounds = 0
    while intake.is_waiting:
        assert begin(is_for_others=False)
        rounds += 1
    assert not waiting
    assert rounds <= 41 * 41 * 2 // LEAST_SHARE * 2


@given(st.integers(TOTAL * FIRST_SHARE, 5000), st.integers(1, FIRST_SHARE), st.booleans())
def test_the_share_of_a_quiet_namespace_does_not_depend_on_how_many_others_wait(
    others: int, own: int, is_first: bool
) -> None:
    quiet = [ResourceRef("Ingress", "quiet", f"i{number}") for number in range(own)]
    intake = begun(quiet)
    noise = objects("new", others)
    if is_first:
        admitted(intake, quiet)
    admitted(intake, noise)

    assert admitted(intake, quiet) == own


def refs(count: int, namespace: str = "big") -> list[ResourceRef]:
    return [ResourceRef("Service", namespace, f"s{number:05}") for number in range(count)]


def large(ref: ResourceRef, weight: int) -> Resource:
    """Return an object that counts as *weight* objects."""
    return service(ref.name, ref.namespace, more=["x" * 92] * ((weight - 1) * UNIT // 100 + 1))


def test_an_object_counts_by_its_size() -> None:
    ref = refs(1)[0]
    assert [weight_of(), weight_of(None), weight_of(service("a")), weight_of(None, large(ref, 9))] == [1, 1, 1, 9]
    # It takes as long to take it away.
    assert [weight_of(large(ref, 9), None), weight_of(large(ref, 9), service("a"))] == [9, 9]


def test_objects_with_very_many_levels_have_a_size() -> None:
    deep: Resource = {}
    for _ in range(100_000):
        deep = {"a": deep}

    assert weight_of(deep) == 1 + 100_000 * 8 // UNIT


def test_a_cycle_takes_in_fewer_large_objects() -> None:
    intake, wanted = begun(), refs(10)

    assert [intake.admits(ref, large(ref, FIRST_SHARE // 2)) for ref in wanted] == [True] * 2 + [False] * 8

    # Each cycle takes in as much; one that is larger than a share has a cycle of its own.
    taken = [intake.begin() for _ in range(4)]
    assert taken == [tuple(wanted[start : start + 2]) for start in (2, 4, 6, 8)]
    assert not intake.is_waiting
    intake.begin()
    assert [intake.admits(ref, large(ref, 9 * FIRST_SHARE)) for ref in wanted[:3]] == [True, False, False]
    assert [intake.begin(), intake.begin()] == [(wanted[1],), (wanted[2],)]
    assert not intake.is_waiting


def test_large_objects_leave_room_for_the_changes_of_others() -> None:
    intake, huge = begun(), large(refs(1)[0], 9 * FIRST_SHARE)
    for ref in refs(3):
        intake.admits(ref, huge)
    # Slow cycles make the share as small as can be.
    for _ in range(2):
        intake.note(100.0)
        intake.begin()

    assert all(intake.admits(ref) for ref in refs(LEAST_SHARE, "small"))


def test_large_objects_of_many_namespaces_take_turns() -> None:
    intake = begun()
    wanted = [refs(1, f"n{number}")[0] for number in range(3 * FIRST_SHARE)]
    taken = [ref for ref in wanted if intake.admits(ref, large(ref, FIRST_SHARE))]

    cycles: list[tuple[ResourceRef, ...]] = []
    while intake.is_waiting:
        cycles.append(intake.begin())

    assert sorted([*taken, *sum(cycles, ())], key=wanted.index) == wanted
    # One from the front, and one whose namespace has been quiet.
    assert max(len(cycle) for cycle in cycles) <= 2


def test_a_large_object_that_changes_all_the_time_is_not_in_every_cycle_of_others() -> None:
    (big,), victims = refs(1), refs(4, "victim")
    intake = begun()
    assert intake.admits(big, large(big, 3 * FIRST_SHARE))

    for ref in victims[:2]:
        assert intake.begin(is_for_others=True) == ()
        assert not intake.admits(big, large(big, 3 * FIRST_SHARE))
        assert intake.admits(ref, service("a"))
    # It has a cycle of its own as soon as no others wait, and owes more then.
    assert intake.begin() == (big,)
    for ref in victims[2:]:
        intake.begin(is_for_others=True)
        assert not intake.admits(big, large(big, 1))
        assert intake.admits(ref, service("a"))


def test_what_a_large_object_owes_ends_after_cycles_of_others() -> None:
    (big,) = refs(1)
    intake = begun()
    assert intake.admits(big, large(big, 3 * FIRST_SHARE))

    for _cycle in range(3):
        intake.begin(is_for_others=True)

    assert intake.admits(big, large(big, 1))
