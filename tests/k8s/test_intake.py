"""The changes of a namespace that a cycle takes in, and the order of the others."""

from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.index import Keys
from haptic_trio.k8s.intake import FIRST_SHARE, LEAST_SHARE, MOST_SHARE, Intake
from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.k8s.store import Store, Stores
from tests.k8s.objects import service, service_ref

BY_NAME = ("metadata.namespace", "metadata.name")


def refs(count: int, namespace: str = "big", kind: str = "Service") -> list[ResourceRef]:
    return [ResourceRef(kind, namespace, f"s{number:05}") for number in range(count)]


def begun(seconds: float = 0.1) -> Intake:
    intake = Intake(seconds)
    # After the first cycle, which takes in everything.
    assert intake.begin() == ()
    assert intake.begin() == ()
    return intake


def admitted(intake: Intake, wanted: Iterable[ResourceRef]) -> int:
    return sum(intake.admits(ref) for ref in wanted)


@pytest.mark.parametrize("intake", [Intake(), Intake(0.1)], ids=["without a limit", "before the first cycle"])
def test_nothing_waits(intake: Intake) -> None:
    assert admitted(intake, refs(10 * MOST_SHARE)) == 10 * MOST_SHARE
    assert not intake.is_waiting


def test_objects_beyond_the_share_of_their_namespace_wait_in_order() -> None:
    intake, wanted = begun(), refs(FIRST_SHARE + 3)

    assert admitted(intake, wanted) == FIRST_SHARE

    assert intake.is_waiting
    assert intake.waiting == {"big": 3}
    assert intake.begin() == tuple(wanted[FIRST_SHARE:])
    assert not intake.is_waiting


def test_other_namespaces_and_other_kinds_do_not_wait() -> None:
    intake = begun()
    admitted(intake, refs(FIRST_SHARE + 3))

    assert intake.admits(ResourceRef("Service", "small", "s"))
    assert intake.admits(ResourceRef("Secret", "big", "s"))
    assert intake.admits(ResourceRef("IngressClass", "", "s"))


def test_later_changes_wait_behind_those_that_wait() -> None:
    intake = begun()
    admitted(intake, refs(3 * FIRST_SHARE))
    late = ResourceRef("Service", "big", "a")

    assert late not in intake.begin()
    assert not intake.admits(late)

    assert late not in intake.begin()
    assert late in intake.begin()


def test_another_change_of_an_object_keeps_its_place() -> None:
    intake, wanted = begun(), refs(FIRST_SHARE + 2)
    admitted(intake, wanted)

    assert not intake.admits(wanted[-2])
    assert intake.admits(wanted[0])

    assert intake.begin() == tuple(wanted[-2:])


def test_a_cycle_for_other_changes_takes_in_nothing_that_waits() -> None:
    intake, wanted = begun(), refs(FIRST_SHARE + 2)
    admitted(intake, wanted)

    assert intake.begin(is_for_others=True) == ()

    assert intake.waiting == {"big": 2}
    assert intake.begin() == tuple(wanted[-2:])


def test_a_deleted_object_waits_no_longer() -> None:
    intake, wanted = begun(), refs(FIRST_SHARE + 1)
    admitted(intake, wanted)

    intake.forget(wanted[-1])

    assert not intake.is_waiting
    assert intake.begin() == ()


def test_waiting_namespaces_divide_a_share() -> None:
    intake = begun()
    for name in "abcd":
        admitted(intake, refs(2 * FIRST_SHARE, name))

    taken = intake.begin()

    assert {name: sum(ref.namespace == name for ref in taken) for name in "abcd"} == dict.fromkeys(
        "abcd", FIRST_SHARE // 4
    )


def test_the_share_follows_the_duration_of_cycles() -> None:
    intake = begun(seconds=0.1)
    admitted(intake, refs(100_000))

    intake.note(0.4)
    assert len(intake.begin()) == FIRST_SHARE // 4
    intake.note(0.07)
    assert len(intake.begin()) == FIRST_SHARE // 4
    intake.note(0.04)
    assert len(intake.begin()) == FIRST_SHARE // 2
    for _cycle in range(20):
        intake.note(0.01)
        taken = len(intake.begin())
    assert taken == MOST_SHARE
    for _cycle in range(20):
        intake.note(10.0)
        taken = len(intake.begin())
    assert taken == LEAST_SHARE


def test_the_first_cycle_leaves_the_share_as_it_is() -> None:
    intake = Intake(0.1)
    intake.begin()
    admitted(intake, refs(1000))

    # It renders everything, with few changes and with many.
    intake.note(10.0)

    assert len(intake.begin()) == FIRST_SHARE


def test_a_cycle_for_all_changes_takes_in_everything() -> None:
    intake, wanted = begun(), refs(3 * FIRST_SHARE)
    admitted(intake, wanted)

    assert intake.begin(is_for_others=True, is_for_all=True) == tuple(wanted[FIRST_SHARE:])
    assert not intake.is_waiting


def test_a_fast_cycle_with_few_objects_leaves_the_share_as_it_is() -> None:
    intake = begun()
    admitted(intake, refs(1000))
    intake.begin(is_for_others=True)
    assert intake.admits(ResourceRef("Service", "small", "s"))

    intake.note(0.001)

    assert len(intake.begin()) == FIRST_SHARE


def test_a_slow_cycle_with_few_objects_leaves_the_share_as_it_is() -> None:
    intake = begun()
    admitted(intake, refs(LEAST_SHARE))

    intake.note(5.0)
    intake.begin()

    assert admitted(intake, refs(2 * FIRST_SHARE)) == FIRST_SHARE


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 300)), max_size=6), st.lists(st.floats(0, 1)))
def test_every_object_is_taken_in_once_and_soon(bulks: list[tuple[str, int]], durations: list[float]) -> None:
    intake, wanted, taken = begun(), set[ResourceRef](), list[ResourceRef]()
    for namespace, count in bulks:
        objects = refs(count, namespace)
        taken += [ref for ref in objects if ref not in wanted and intake.admits(ref)]
        wanted.update(objects)
    cycles = 0
    while intake.is_waiting:
        intake.note(durations[cycles] if cycles < len(durations) else 0.05)
        found = intake.begin()
        assert found
        taken += found
        cycles += 1

    assert sorted(taken) == sorted(wanted)
    assert cycles <= len(wanted)


class Pair:
    """Two stores of one kind, of which one ignores a field."""

    def __init__(self) -> None:
        self.whole, self.reduced = Store("whole", BY_NAME), Store("reduced", BY_NAME, ["spec.noise"])
        self.stores = Stores([self.whole, self.reduced], Intake(0.1))
        self.stores.take_in()

    def put(self, *resources: Resource) -> None:
        for resource in resources:
            for store in self.stores.values():
                store.upsert(resource)

    def delete(self, ref: ResourceRef) -> list[bool]:
        return [store.delete(ref) for store in self.stores.values()]

    @property
    def visible(self) -> list[int]:
        return [len(store) for store in self.stores.values()]


def many(count: int, **spec: object) -> list[Resource]:
    return [service(f"s{number:05}", "big", spec=spec) for number in range(count)]


def test_readers_see_each_object_in_all_stores_or_in_none() -> None:
    pair = Pair()

    pair.put(*many(FIRST_SHARE + 5))
    assert pair.visible == [FIRST_SHARE, FIRST_SHARE]
    pair.put(service("small", "small"))
    assert pair.visible == [FIRST_SHARE + 1, FIRST_SHARE + 1]

    pair.stores.take_in()
    assert pair.visible == [FIRST_SHARE + 6, FIRST_SHARE + 6]


def test_stores_agree_where_only_one_has_a_change() -> None:
    pair = Pair()
    objects = many(FIRST_SHARE + 2)
    pair.put(*objects)
    pair.stores.take_in()
    pair.stores.take_in()

    pair.put(*many(FIRST_SHARE, noise=1))
    pair.put(*many(FIRST_SHARE + 2, tier=2)[FIRST_SHARE:])

    def changed(store: Store) -> list[str]:
        return [one["metadata"]["name"] for one in store.list() if one["spec"].get("tier")]

    assert changed(pair.whole) == changed(pair.reduced) == []
    pair.stores.take_in()
    assert changed(pair.whole) == changed(pair.reduced) == ["s00100", "s00101"]


def test_changes_during_a_freeze_wait_after_it() -> None:
    pair = Pair()

    with pair.stores.frozen():
        pair.put(*many(FIRST_SHARE + 5))
        assert pair.visible == [0, 0]

    assert pair.visible == [FIRST_SHARE, FIRST_SHARE]
    with pair.stores.frozen():
        pass
    assert pair.visible == [FIRST_SHARE, FIRST_SHARE]


def test_the_newest_version_is_taken_in() -> None:
    pair = Pair()
    pair.put(*many(FIRST_SHARE + 1))

    pair.put(service(f"s{FIRST_SHARE:05}", "big", spec={"tier": 2}))
    pair.stores.take_in()

    for store in pair.stores.values():
        found = store.by_ref(service_ref(f"s{FIRST_SHARE:05}", "big"))
        assert found is not None
        assert found["spec"] == {"tier": 2}


def test_a_deletion_of_an_object_that_waits_takes_effect_at_once() -> None:
    pair = Pair()
    pair.put(*many(FIRST_SHARE + 2))
    served, waiting = service_ref("s00000", "big"), service_ref(f"s{FIRST_SHARE:05}", "big")
    pair.put(service("s00000", "big", spec={"tier": 2}))

    assert pair.delete(served) == [True, True]
    assert pair.delete(waiting) == [True, True]
    assert pair.delete(waiting) == [False, False]

    assert pair.visible == [FIRST_SHARE - 1, FIRST_SHARE - 1]
    pair.stores.take_in()
    assert pair.visible == [FIRST_SHARE, FIRST_SHARE]
    assert all(store.by_ref(waiting) is None for store in pair.stores.values())


def test_deletions_beyond_the_share_of_their_namespace_wait_in_order() -> None:
    pair = Pair()
    pair.put(*many(FIRST_SHARE + 5))
    pair.stores.take_in()
    pair.stores.take_in()
    served = [service_ref(one["metadata"]["name"], "big") for one in many(FIRST_SHARE + 5)]

    for ref in served:
        assert pair.delete(ref) == [True, True]
        assert pair.delete(ref) == [False, False]
    # It is created again, with another identity.
    pair.put(service(served[-1].name, "big", spec={"tier": 2}))

    assert [ref for ref in served if pair.whole.by_ref(ref)] == served[FIRST_SHARE:]
    assert pair.visible == [5, 5]
    assert pair.stores.intake.waiting == {"big": 5}
    assert pair.whole.present() == {served[-1]}
    pair.stores.take_in()
    assert [one["spec"] for one in pair.whole.list()] == [{"tier": 2}]
    assert pair.visible == [1, 1]
    assert not pair.stores.intake.is_waiting


def test_a_change_is_not_lost_if_another_store_that_waits_for_the_object_no_longer_selects_it() -> None:
    pair = Pair()
    pair.put(*many(FIRST_SHARE + 1))
    late = service_ref(f"s{FIRST_SHARE:05}", "big")

    assert pair.reduced.delete(late)
    pair.stores.take_in()

    assert pair.whole.by_ref(late) is not None
    assert pair.reduced.by_ref(late) is None


def test_an_object_whose_change_waits_is_as_before_until_then() -> None:
    pair = Pair()
    pair.put(*many(FIRST_SHARE))
    pair.stores.take_in()
    tracker = pair.whole.track()

    pair.put(*many(FIRST_SHARE, tier=1))
    pair.put(service("late", "big", spec={"hosts": ["a"]}))
    assert service_ref("late", "big") not in tracker.take()
    pair.stores.take_in()

    touched: dict[ResourceRef, set[Keys]] = tracker.take()
    assert touched == {service_ref("late", "big"): {("big",), ("big", "late")}}


def test_a_list_that_is_repeated_replaces_what_waits() -> None:
    pair = Pair()
    pair.put(*many(FIRST_SHARE + 2))

    for store in pair.stores.values():
        changes = store.replace(many(FIRST_SHARE + 1))
        assert changes.removed == (service_ref(f"s{FIRST_SHARE + 1:05}", "big"),)
        assert changes.added == changes.changed == ()

    pair.stores.take_in()
    assert pair.visible == [FIRST_SHARE + 1, FIRST_SHARE + 1]


def test_what_waits_goes_over_to_the_stores_of_another_iteration() -> None:
    former, later = Pair(), Pair()
    later.stores = Stores([later.whole, later.reduced], Intake(0.1))
    former.put(*many(FIRST_SHARE + 3))

    later.stores.take_over(former.stores, ["whole", "reduced"])
    later.put(service(f"s{FIRST_SHARE:05}", "big", spec={"tier": 2}))
    later.stores.take_in()

    assert later.visible == [FIRST_SHARE + 3, FIRST_SHARE + 3]
    assert later.whole.get("big", f"s{FIRST_SHARE:05}")[0]["spec"] == {"tier": 2}


def test_namespaces_take_turns_with_heavy_objects() -> None:
    intake = begun()
    big, (small,) = refs(3), refs(1, "small")
    for ref in (*big, small):
        intake.hold(ref)
    seen = []
    for _turn in range(5):
        found = intake.next_heavy()
        assert found is not None
        seen.append(found)
        # The attacker's object changes again at once.
        intake.hold(found) if found.namespace == "big" else intake.forget(found)

    assert seen == [big[0], small, big[1], big[2], big[0]]
