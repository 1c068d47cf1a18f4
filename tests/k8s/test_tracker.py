"""A tracker names what readers may have to look up again, and little else."""

import gc
import weakref

from haptic_trio.k8s.overlay import Overlay
from haptic_trio.k8s.store import Store
from tests.k8s.objects import service, service_ref

BY_NAME = ("metadata.namespace", "metadata.name")
BY_HOST = ("metadata.namespace", "spec.hosts[*]", "spec.tier")


def test_tracker_names_keys_of_former_and_new_state_once() -> None:
    store = Store("services", BY_HOST)
    store.upsert(service("a", "x", spec={"hosts": ["h", "i"]}))
    tracker = store.track()
    assert tracker.take() == {}

    store.upsert(service("a", "x", spec={"hosts": ["i", "j"], "tier": 1}))
    store.upsert(service("a", "x", spec={"hosts": ["k"]}))

    assert tracker.take() == {
        service_ref("a", "x"): {
            ("x",),
            ("x", "h"),
            ("x", "i"),
            ("x", "j"),
            ("x", "k"),
            ("x", "i", "1"),
            ("x", "j", "1"),
        }
    }
    assert tracker.take() == {}


def test_list_that_changes_nothing_touches_nothing() -> None:
    store = Store("services", BY_NAME)
    first = [service("a", "x", spec=1), service("b", "x", spec=1)]
    store.replace(first)
    tracker = store.track()

    store.replace([service("a", "x", spec=1), service("b", "x", spec=2)])

    assert set(tracker.take()) == {service_ref("b", "x")}


def test_tracker_sees_what_readers_see() -> None:
    store = Store("services", BY_NAME)
    tracker = store.track()
    with store.frozen():
        store.upsert(service("a", "x"))
        assert tracker.take() == {}
    assert set(tracker.take()) == {service_ref("a", "x")}


def test_tracker_without_references_is_forgotten() -> None:
    store = Store("services", BY_NAME)
    gone = weakref.ref(store.track())
    gc.collect()
    assert gone() is None
    store.upsert(service("a", "x"))


def test_tracker_of_an_overlay_names_what_changes_below_it() -> None:
    store = Store("services", BY_NAME)
    overlay = Overlay(store, {service_ref("a", "x"): service("a", "x", spec=2)})
    tracker = overlay.track()

    store.upsert(service("b", "x", spec=1))

    assert tracker.take() == {service_ref("b", "x"): {("x",), ("x", "b")}}
