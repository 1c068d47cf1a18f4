"""The status of Ingresses has the addresses of the nodes that run HAProxy pods."""

from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.channels import Latest
from haptic_trio.k8s.resource import Resource
from haptic_trio.status.ingress import Addresses
from haptic_trio.status.node_addresses import follow_nodes, node_addresses
from tests.k8s.api.api_cluster import connected
from tests.support.api_server.server import serving

LABELS = {"app": "haproxy"}
DUAL = {"ExternalIP": ["203.0.113.1", "2001:db8::1"], "InternalIP": ["10.0.0.1", "fd00::1"], "Hostname": ["one"]}
INTERNAL_ONLY = {"InternalIP": ["10.0.0.2"], "ExternalDNS": ["two.example.com"]}


def node(name: str, given: dict[str, list[str]]) -> Resource:
    listed = [{"type": kind, "address": address} for kind, found in given.items() for address in found]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"addresses": listed}}


def pod(name: str, on: str, *, ready: bool = True, phase: str = "Running", **metadata: Any) -> Resource:
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "edge", "labels": LABELS, **metadata},
        "spec": {"nodeName": on},
        "status": {"phase": phase, "conditions": conditions},
    }


NODES = [node("one", DUAL), node("two", INTERNAL_ONLY), node("idle", {"ExternalIP": ["203.0.113.9"]})]


@pytest.mark.parametrize(
    ("kind", "entries"),
    [
        pytest.param("external", ("10.0.0.2", "203.0.113.1", "2001:db8::1"), id="internal ones in place of none"),
        pytest.param("internal", ("10.0.0.1", "10.0.0.2", "fd00::1"), id="internal"),
    ],
)
def test_nodes_with_ready_pods_count_with_both_families(kind: str, entries: tuple[str, ...]) -> None:
    pods = [pod("a", "one"), pod("b", "two"), pod("c", "two"), pod("d", "idle", ready=False)]

    assert node_addresses(pods, NODES, kind) == Addresses(entries)


def test_nodes_of_running_pods_count_while_none_is_ready() -> None:
    pods = [
        pod("a", "two", ready=False),
        pod("b", "one", ready=False, phase="Pending"),
        pod("c", "one", deletionTimestamp="2026-01-01T00:00:00Z"),
    ]

    assert node_addresses(pods, NODES, "external").entries == ("10.0.0.2",)
    assert node_addresses([], NODES, "external").entries == ()
    assert node_addresses([pod("a", "gone"), {**pod("b", "one"), "spec": None}], NODES, "external").entries == ()


async def test_addresses_follow_pods_and_nodes(tmp_path: Path, nursery: trio.Nursery) -> None:
    addresses: Latest[Addresses] = Latest()
    async with serving() as server, connected(server, tmp_path / "kubeconfig") as cluster:
        server.put(
            *NODES, {**pod("other", "idle"), "metadata": {"name": "other", "namespace": "edge"}}, pod("a", "one")
        )
        nursery.start_soon(follow_nodes, cluster, "edge", LABELS, "external", addresses)
        with trio.fail_after(10):
            seen, found = await addresses.wait_newer(0)
            assert found.entries == ("203.0.113.1", "2001:db8::1")
            server.put(pod("b", "two"))
            seen, found = await addresses.wait_newer(seen)
            assert found.entries == ("10.0.0.2", "203.0.113.1", "2001:db8::1")
            server.put(node("two", {"ExternalIP": ["203.0.113.2"]}))
            seen, found = await addresses.wait_newer(seen)
            assert found.entries == ("203.0.113.1", "203.0.113.2", "2001:db8::1")
            server.remove(pod("a", "one"))
            seen, found = await addresses.wait_newer(seen)
            assert found.entries == ("203.0.113.2",)
        nursery.cancel_scope.cancel()
