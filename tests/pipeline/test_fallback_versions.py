"""Lookups that find quarantined objects in the versions of their fallbacks."""

from haptic_trio.k8s.store import Store
from haptic_trio.pipeline.fallback_versions import keys_of_change
from tests.k8s.objects import service


def test_only_lookups_with_another_answer_are_affected() -> None:
    store = Store("services", ["spec.host"])
    former, other = service("a", spec={"host": "h1"}), service("a", spec={"host": "h2"})
    newer = {**former, "metadata": {**former["metadata"], "resourceVersion": "999"}}

    assert keys_of_change(store, former, other) == {(), ("h1",), ("h2",)}
    assert keys_of_change(store, former, None) == keys_of_change(store, None, former) == {(), ("h1",)}
    assert keys_of_change(store, former, newer) == set()
    assert keys_of_change(store, None, None) == set()
