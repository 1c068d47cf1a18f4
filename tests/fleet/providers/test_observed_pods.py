"""Pods of another controller: observed, reported, and never changed."""

from typing import Any

import pytest
import trio

from haptic_trio.fleet.model import EventType, ReconcileEvent
from haptic_trio.fleet.providers.observed_pods import ForeignPodsError, ObservedPods
from haptic_trio.k8s.resource import Resource
from tests.support.components.cluster import MemoryCluster


def make_pod(name: str, *, ready: str = "True", **metadata: Any) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "edge",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"app": "haproxy", "pod-template-hash": "5d8f"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "edge-5d8f", "controller": True}],
            **metadata,
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]},
    }


async def until(observed: ObservedPods, *names: str) -> None:
    with trio.fail_after(5):
        # The watch delivers the pods at an unknown time.
        while {one.id for group in observed.describe().groups for one in group.instances} != set(names):  # noqa: ASYNC110
            await trio.sleep(0.01)


async def test_pods_of_a_deployment_are_reported_with_their_owner(nursery: trio.Nursery) -> None:
    cluster = MemoryCluster(make_pod("a"), make_pod("b", ready="False"), make_pod("c", labels={"app": "other"}))
    observed = ObservedPods(cluster, "edge", clock=lambda: 1767225660.0)
    nursery.start_soon(observed.run)
    observed.aim({"app": "haproxy"})
    await until(observed, "a", "b")
    status = observed.describe()
    assert status.owner == "Deployment edge"
    (group,) = status.groups
    assert (group.name, group.ready) == ("Deployment edge", 1)
    assert [(one.id, one.state, one.health, one.age) for one in group.instances] == [
        ("a", "ready", "running", 60.0),
        ("b", "starting", "starting", 60.0),
    ]
    cluster.put(make_pod("d", deletionTimestamp="2026-01-01T00:01:00Z"))
    cluster.remove(make_pod("a"))
    await until(observed, "b", "d")
    found = observed.find("d")
    assert found is not None
    assert found.state == "draining"
    assert observed.find("a") is None
    nursery.cancel_scope.cancel()


async def test_changes_of_foreign_pods_are_rejected(nursery: trio.Nursery) -> None:
    observed = ObservedPods(MemoryCluster(make_pod("a")), "edge")
    nursery.start_soon(observed.run)
    observed.aim({"app": "haproxy"})
    await until(observed, "a")
    event = ReconcileEvent(type=EventType.TERMINATION_NOTICE, group="x", instance_id="a")
    with pytest.raises(ForeignPodsError, match="a belongs to Deployment edge"):
        observed.ask(event)
    with pytest.raises(ForeignPodsError, match="the pods belong to Deployment edge"):
        await observed.resize(3)
    observed.aim({})
    await until(observed)
    nursery.cancel_scope.cancel()
