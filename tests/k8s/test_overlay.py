import pytest
from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.k8s.index import KeySchema
from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import ReadableStore, Store
from tests.k8s.objects import service, service_ref

INDEX = ("metadata.namespace", "spec.hosts[*]")
IGNORED = ("status",)
LOOKUPS = ((), ("x",), ("y",), ("x", "a"), ("x", "b"), ("y", "a"), ("z",))

objects = st.builds(
    lambda name, namespace, version, hosts, status: service(
        name, namespace, version, spec={"hosts": hosts}, status=status
    ),
    st.sampled_from("pqrs"),
    st.sampled_from("xy"),
    st.sampled_from("12"),
    st.lists(st.sampled_from("ab"), max_size=2),
    st.integers(0, 1),
)
removals = st.lists(st.builds(service_ref, st.sampled_from("pqrs"), st.sampled_from("xy")), max_size=3)


def test_nothing_replaced_reads_as_the_base_itself() -> None:
    base: ReadableStore = Store("services", INDEX)
    overlay: ReadableStore = Overlay(base, {})

    assert overlay.list() is base.list()
    assert overlay.name == "services"


def test_a_hidden_object_is_in_no_look_up() -> None:
    base = Store("services", INDEX)
    base.replace([service("a", "x", spec={"hosts": ["h"]}), service("b", "x", spec={"hosts": ["h"]})])
    overlay = Overlay(base, {service_ref("a", "x"): None})

    assert overlay.get_single("x", "h") == base.by_ref(service_ref("b", "x"))
    assert overlay.by_ref(service_ref("a", "x")) is None
    assert len(overlay) == 1


def test_a_replaced_object_is_found_under_its_own_keys() -> None:
    base = Store("services", INDEX)
    base.upsert(service("a", "x", spec={"hosts": ["old"]}))
    replacement = service("a", "x", spec={"hosts": ["new"]})
    overlay = Overlay(base, {service_ref("a", "x"): replacement})

    assert overlay.get("x", "old") == ()
    assert overlay.get("x", "new") == (replacement,)


def test_a_look_up_that_no_replacement_touches_is_the_one_of_the_base() -> None:
    base = Store("services", INDEX)
    base.replace([service("a", "x", spec={"hosts": ["h"]}), service("b", "y", spec={"hosts": ["h"]})])
    overlay = Overlay(base, {service_ref("a", "x"): None})

    assert overlay.get("y") is base.get("y")


def test_a_replacement_under_another_reference_is_rejected() -> None:
    with pytest.raises(ValueError, match="cannot replace"):
        Overlay(Store("services", INDEX), {service_ref("b"): service("a")})


def test_a_change_of_another_object_works_nothing_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    # Very many rejected objects may be shown in other versions: they must not delay each change of others.
    base = Store("services", INDEX)
    base.replace([service(name, "x", spec={"hosts": ["h"]}) for name in "ab"])
    overlay = Overlay(base, {service_ref("a", "x"): service("a", "x", "2", spec={"hosts": ["h", "i"]})})
    before = overlay.differences
    base.upsert(service("b", "x", "2", spec={"hosts": ["i"]}))

    with monkeypatch.context() as patched:
        patched.delattr(KeySchema, "prefixes")
        assert overlay.differences is before
        assert [one["metadata"]["name"] for one in overlay.get("x", "i")] == ["a", "b"]

    base.delete(service_ref("a", "x"))
    assert overlay.differences is not before


@given(st.lists(objects), st.lists(objects, max_size=4), removals, st.lists(objects, max_size=2), removals)
def test_an_overlay_reads_as_a_store_to_which_the_replacements_were_written(
    content: list[Resource],
    replaced: list[Resource],
    hidden: list[ResourceRef],
    later: list[Resource],
    removed_later: list[ResourceRef],
) -> None:
    replacements: dict[ResourceRef, Resource | None] = {ref_of(resource): resource for resource in replaced}
    replacements |= dict.fromkeys(hidden)
    base = Store("services", INDEX, IGNORED)
    base.replace(content)
    overlay = Overlay(base, replacements)

    def check() -> None:
        expected = Store("services", INDEX, IGNORED)
        expected.replace(base.list())
        for ref, resource in replacements.items():
            if resource is None:
                expected.delete(ref)
            else:
                expected.upsert(resource)
        assert overlay.list() == expected.list()
        assert len(overlay) == len(expected)
        for keys in LOOKUPS:
            assert overlay.get(*keys) == expected.get(*keys)
        for name in "pqrs":
            assert overlay.by_ref(service_ref(name, "x")) == expected.by_ref(service_ref(name, "x"))
        assert {ref: overlay.by_ref(ref) for ref in overlay.differences} == overlay.differences
        assert bool(overlay.differences) == bool(overlay.touched)
        for keys in LOOKUPS:
            assert keys in overlay.touched or overlay.get(*keys) is base.get(*keys)

    check()
    # The base may go on.
    for resource in later:
        base.upsert(resource)
    for ref in removed_later:
        base.delete(ref)
    check()
