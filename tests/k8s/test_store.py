from collections.abc import Sequence
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, rule

from haptic_trio.errors import ProblemsError
from haptic_trio.k8s.index import AmbiguousLookupError, TooManyKeysError
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import Changes, Store, Stores
from tests.k8s.objects import service, service_ref

BY_NAME = ("metadata.namespace", "metadata.name")
BY_HOST = ("metadata.namespace", "spec.hosts[*]", "spec.tier")


def names(resources: Sequence[Resource]) -> list[str]:
    return [resource["metadata"]["name"] for resource in resources]


def test_list_is_ordered_by_namespace_and_name() -> None:
    store = Store("services", BY_NAME)
    for name, namespace in (("b", "x"), ("a", "y"), ("c", "a"), ("a", "x")):
        store.upsert(service(name, namespace))

    assert [(r["metadata"]["namespace"], r["metadata"]["name"]) for r in store.list()] == [
        ("a", "c"),
        ("x", "a"),
        ("x", "b"),
        ("y", "a"),
    ]
    assert len(store) == 4


def test_list_and_get_return_the_same_tuple_until_something_changes() -> None:
    store = Store("services", BY_NAME)
    store.upsert(service("a", "x"))
    store.upsert(service("b", "y"))
    everything, below = store.list(), store.get("x")

    store.upsert(service("b", "y", spec=1))

    assert store.list() is not everything
    assert store.get("x") is below


def test_fewer_keys_find_everything_below() -> None:
    store = Store("services", BY_NAME)
    store.replace([service("a", "x"), service("b", "x"), service("a", "y")])

    assert names(store.get("x")) == ["a", "b"]
    assert store.get("x", "b") == (service("b", "x"),)
    assert store.get("z") == ()
    assert store.get() == store.list()


def test_more_keys_than_the_index_has_are_rejected() -> None:
    store = Store("services", BY_NAME)

    with pytest.raises(TooManyKeysError, match="looked up by 3"):
        store.get("x", "a", "b")


def test_an_object_is_found_under_each_of_several_values() -> None:
    store = Store("ingresses", ("spec.rules[*].host",))
    store.upsert(service("a", spec={"rules": [{"host": "one"}, {"host": "two"}, {"host": "one"}]}))

    assert names(store.get("one")) == names(store.get("two")) == ["a"]

    store.upsert(service("a", spec={"rules": [{"host": "two"}]}))

    assert store.get("one") == ()
    assert names(store.get("two")) == ["a"]


def test_values_that_are_no_text_are_found_by_how_json_writes_them() -> None:
    store = Store("services", ("spec.port", "spec.on"))
    store.upsert(service("a", spec={"port": 80, "on": True}))

    assert names(store.get("80", "true")) == ["a"]


@pytest.mark.parametrize("spec", [{}, {"hosts": []}, {"hosts": [None]}])
def test_an_object_without_a_value_is_found_by_the_keys_before_it_only(spec: dict[str, Any]) -> None:
    store = Store("ingresses", BY_HOST)
    store.upsert(service("a", "x", spec=spec | {"tier": "t"}))

    assert names(store.get("x")) == ["a"]
    assert store.get("x", "None") == store.get("x", "null") == ()
    assert names(store.list()) == ["a"]


def test_get_single_returns_the_only_match_or_none() -> None:
    store = Store("services", BY_NAME)
    store.upsert(service("a", "x"))

    assert store.get_single("x", "a") == service("a", "x")
    assert store.get_single("x", "b") is None


def test_get_single_rejects_to_choose() -> None:
    store = Store("services", BY_NAME)
    store.replace([service("a", "x"), service("b", "x")])

    with pytest.raises(AmbiguousLookupError) as caught:
        store.get_single("x")

    assert caught.value.refs == (service_ref("a", "x"), service_ref("b", "x"))


def test_ignored_fields_are_not_stored_and_the_given_object_stays_as_it_is() -> None:
    store = Store("services", BY_NAME, ("metadata.managedFields", "status.conditions[*].lastProbeTime"))
    given_object = service("a", status={"conditions": [{"type": "Ready", "lastProbeTime": 1}]})
    given_object["metadata"]["managedFields"] = [1]

    assert store.upsert(given_object)

    stored = store.by_ref(service_ref("a"))
    assert stored is not None
    assert "managedFields" not in stored["metadata"]
    assert stored["status"] == {"conditions": [{"type": "Ready"}]}
    assert given_object["metadata"]["managedFields"] == [1]
    assert given_object["status"]["conditions"][0]["lastProbeTime"] == 1


def test_a_spec_with_more_levels_than_can_be_compared_is_stored() -> None:
    store = Store("services", BY_NAME)

    def put(levels: int, depth: int) -> bool:
        """Decode, and store from *depth* calls further, as a reflector does after it has decoded a list."""
        spec = msgspec.json.decode(b"[" * levels + b"]" * levels)
        found = service("a", version=str(levels))
        found["spec"] = spec
        return deeper(found, depth)

    def deeper(found: Resource, depth: int) -> bool:
        return bool(store.upsert(found)) if depth == 0 else deeper(found, depth - 1)

    assert put(500, 600)
    # Python 3.12 and later can compare it.
    put(500, 600)
    assert store.by_ref(service_ref("a")) is not None


def test_a_change_of_nothing_but_versions_and_ignored_fields_is_none() -> None:
    store = Store("services", BY_NAME, ("status",))
    store.upsert(service("a", version="1", status=1))
    before = store.list()
    newer = service("a", version="2", status=2)
    newer["metadata"]["managedFields"] = [1]

    assert not store.upsert(newer)
    assert not store.replace([newer])
    assert store.list() is before


def test_upsert_and_delete_say_whether_they_changed_something() -> None:
    store = Store("services", BY_NAME)

    assert store.upsert(service("a"))
    assert not store.upsert(service("a"))
    assert store.upsert(service("a", spec=1))
    assert store.delete(service_ref("a"))
    assert not store.delete(service_ref("a"))
    assert store.list() == ()


def test_replace_says_what_was_added_changed_and_removed() -> None:
    store = Store("services", BY_NAME)
    store.replace([service("same"), service("old"), service("other")])

    changes = store.replace([service("new"), service("other", spec=1), service("same")])

    assert changes == Changes((service_ref("new"),), (service_ref("other"),), (service_ref("old"),))
    assert names(store.list()) == ["new", "other", "same"]


def test_bad_expressions_are_rejected_all_at_once_with_their_place() -> None:
    with pytest.raises(ProblemsError) as caught:
        Store("x", ("metadata.name", "a..", "b["))
    assert [problem.path for problem in caught.value.problems] == ["indexBy[1]", "indexBy[2]"]

    with pytest.raises(ProblemsError) as caught:
        Store("x", (), ("a[?@.b]",))
    assert caught.value.problems[0].path == "ignoreFields[0]"


def test_a_frozen_store_shows_nothing_new_until_it_thaws() -> None:
    store = Store("services", BY_NAME)
    store.replace([service("a"), service("b")])
    before = store.list()

    with store.frozen():
        assert store.upsert(service("a", spec=1))
        assert not store.upsert(service("a", spec=1))
        assert store.delete(service_ref("b"))
        assert not store.delete(service_ref("b"))
        assert store.upsert(service("b", spec=2))
        assert store.replace([service("c")]) == Changes((service_ref("c"),), (), (service_ref("a"), service_ref("b")))
        assert store.list() is before
        assert len(store) == 2
        assert store.by_ref(service_ref("c")) is None

    assert names(store.list()) == ["c"]


def test_nested_freezes_thaw_with_the_last_one() -> None:
    store = Store("services", BY_NAME)

    with store.frozen():
        with store.frozen():
            store.upsert(service("a"))
        assert store.list() == ()

    assert names(store.list()) == ["a"]


def test_a_store_thaws_when_the_reader_fails() -> None:
    store = Store("services", BY_NAME)

    def fail() -> None:
        with store.frozen():
            store.upsert(service("a"))
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert names(store.list()) == ["a"]


def test_stores_freeze_together() -> None:
    stores = Stores([Store("a", BY_NAME), Store("b", BY_NAME)])

    with stores.frozen():
        for store in stores.values():
            store.upsert(service("x"))
        assert [len(store) for store in stores.values()] == [0, 0]

    assert [len(stores["a"]), len(stores["b"])] == [1, 1]


def test_an_upsert_in_a_large_store_touches_few_buckets() -> None:
    store = Store("services", BY_NAME)
    store.replace([service(f"s{number}", f"ns{number % 10}") for number in range(2000)])
    others = [store.get(f"ns{number}") for number in range(1, 10)]

    store.upsert(service("s0", "ns0", spec=1))

    assert all(store.get(f"ns{number}") is others[number - 1] for number in range(1, 10))


specs = st.fixed_dictionaries(
    {},
    optional={
        "hosts": st.lists(st.sampled_from("abc") | st.none(), max_size=3),
        "tier": st.sampled_from([1, "1", None]),
    },
)
objects = st.builds(
    lambda name, namespace, version, spec: service(name, namespace, version, spec=spec),
    st.sampled_from("pqr"),
    st.sampled_from("xy"),
    st.sampled_from("12"),
    specs,
)
refs = st.builds(service_ref, st.sampled_from("pqr"), st.sampled_from("xy"))


def model_get(content: dict[ResourceRef, Resource], keys: tuple[str, ...]) -> list[Resource]:
    """Answer a look-up by going through everything."""

    def columns(resource: Resource) -> list[set[str]]:
        spec = resource["spec"]
        hosts = {host for host in spec.get("hosts", ()) if host is not None}
        tier = {str(spec["tier"])} if spec.get("tier") is not None else set()
        return [{resource["metadata"]["namespace"]}, hosts, tier]

    found = [
        resource
        for resource in content.values()
        if all(key in column for key, column in zip(keys, columns(resource), strict=False))
    ]
    return sorted(found, key=lambda resource: (resource["metadata"]["namespace"], resource["metadata"]["name"]))


class StoreMachine(RuleBasedStateMachine):
    """A store, frozen at times, against a dictionary for the writer and another one for readers."""

    freezes = Bundle("freezes")

    def __init__(self) -> None:
        super().__init__()
        self.store = Store("services", BY_HOST)
        self.written: dict[ResourceRef, Resource] = {}
        self.visible: dict[ResourceRef, Resource] = {}
        self.freeze: Any = None
        self.tracker = self.store.track()
        self.answers: dict[tuple[str, ...], Sequence[Resource]] = {}

    def write(self, ref: ResourceRef, resource: Resource | None) -> bool:
        before = self.written.get(ref)
        if before is None and resource is None:
            return False
        if before is not None and resource is not None and before["spec"] == resource["spec"]:
            return False
        if resource is None:
            del self.written[ref]
        else:
            self.written[ref] = resource
        return True

    @rule(resource=objects)
    def upsert(self, resource: Resource) -> None:
        assert self.store.upsert(resource) == self.write(ref_of(resource), resource)

    @rule(ref=refs)
    def delete(self, ref: ResourceRef) -> None:
        assert self.store.delete(ref) == self.write(ref, None)

    @rule(resources=st.lists(objects, max_size=6))
    def replace(self, resources: list[Resource]) -> None:
        wanted = {ref_of(resource): resource for resource in resources}
        before = set(self.written)
        changed = {ref for ref in before | set(wanted) if self.write(ref, wanted.get(ref))}

        changes = self.store.replace(resources)

        assert set(changes.added) == wanted.keys() - before
        assert set(changes.removed) == before - wanted.keys()
        assert set(changes.refs) == changed

    @rule()
    def toggle_freeze(self) -> None:
        if self.freeze is None:
            self.freeze = self.store.frozen()
            self.freeze.__enter__()
        else:
            self.freeze.__exit__(None, None, None)
            self.freeze = None

    @invariant()
    def tracker_names_all_that_changed(self) -> None:
        before = {ref_of(r): r for r in self.answers.get((), ())}
        touched = self.tracker.take()
        after = {ref_of(r): r for r in self.store.list()}
        assert {ref for ref in before.keys() | after.keys() if before.get(ref) is not after.get(ref)} <= touched.keys()
        keys = set().union(*touched.values()) if touched else set()
        for asked in ((), ("x",), ("y",), ("x", "a"), ("y", "b"), ("x", "a", "1"), ("x", "c", "1")):
            answer = self.store.get(*asked)
            if asked in self.answers and answer != self.answers[asked]:
                assert asked in keys or (not asked and touched)
            self.answers[asked] = answer

    @invariant()
    def reads_as_the_model(self) -> None:
        if self.freeze is None:
            self.visible = dict(self.written)
        assert [r["spec"] for r in self.store.list()] == [r["spec"] for r in model_get(self.visible, ())]
        assert len(self.store) == len(self.visible)
        for keys in (("x",), ("y",), ("x", "a"), ("y", "b"), ("x", "a", "1"), ("x", "c", "1")):
            found = self.store.get(*keys)
            assert [ref_of(r) for r in found] == [ref_of(r) for r in model_get(self.visible, keys)]
        for ref, resource in self.visible.items():
            stored = self.store.by_ref(ref)
            assert stored is not None
            assert stored["spec"] == resource["spec"]


TestStoreMachine = StoreMachine.TestCase


@given(st.lists(objects), st.lists(objects))
def test_replace_is_the_same_as_single_writes(first: list[Resource], second: list[Resource]) -> None:
    replaced, written = Store("a", BY_HOST), Store("b", BY_HOST)
    replaced.replace(first)
    replaced.replace(second)
    # The last of several counts, and it alone.
    for resource in {ref_of(resource): resource for resource in first}.values():
        written.upsert(resource)
    for ref in {ref_of(resource) for resource in first} - {ref_of(resource) for resource in second}:
        written.delete(ref)
    for resource in {ref_of(resource): resource for resource in second}.values():
        written.upsert(resource)

    assert replaced.list() == written.list()
    assert replaced.get("x", "a") == written.get("x", "a")
