"""Addresses of the nodes that run HAProxy, for the status of Ingresses."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NoReturn

import trio

from haptic_trio.channels import Latest
from haptic_trio.k8s.client import Client, Deleted, Listed, Selection, Upserted
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.status.ingress import Addresses, is_ip

PODS: Final = ResourceType("v1", "pods")
NODES: Final = ResourceType("v1", "nodes")
EXTERNAL, INTERNAL = "external", "internal"
ADDRESS_KINDS: Final = (EXTERNAL, INTERNAL)
"""Kinds of node addresses that can be published."""
_TYPES: Final = {EXTERNAL: "ExternalIP", INTERNAL: "InternalIP"}


def node_addresses(pods: Iterable[Resource], nodes: Iterable[Resource], kind: str) -> Addresses:
    """Return the addresses of the *nodes* on which ready *pods* run, IPv4 before IPv6, each family in order.

    While no pod is ready, such as during the restart of a single one, the
    nodes of all pods that run count: clients keep their addresses. A node
    without an external address has its internal ones. A node with both
    families counts with both.
    """
    present = [pod for pod in pods if _runs(pod)]
    chosen = [pod for pod in present if _is_ready(pod)] or present
    names = {pod["spec"].get("nodeName") for pod in chosen}
    found = {address for node in nodes if node["metadata"]["name"] in names for address in _addresses(node, kind)}
    return Addresses(tuple(sorted(found, key=lambda address: (":" in address, address))))


async def follow_nodes(
    client: Client, namespace: str, labels: Mapping[str, str], kind: str, addresses: Latest[Addresses]
) -> NoReturn:
    """Keep the addresses of the nodes that run pods of *namespace* with *labels* in *addresses* until cancelled.

    Nothing is put before pods and nodes are both known.
    """
    selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
    found: dict[ResourceType, dict[str, Resource]] = {}

    async def follow(selection: Selection) -> None:
        async with client.watch(selection) as events:
            async for event in events:
                objects = found.setdefault(selection.type, {})
                match event:
                    case Listed(listed):
                        found[selection.type] = {one["metadata"]["name"]: one for one in listed}
                    case Upserted(resource):
                        objects[resource["metadata"]["name"]] = resource
                    case Deleted(resource):
                        objects.pop(resource["metadata"]["name"], None)
                if len(found) == 2:
                    present = node_addresses(found[PODS].values(), found[NODES].values(), kind)
                    if present != addresses.value:
                        addresses.put(present)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow, Selection(type=PODS, namespaces=(namespace,), label_selector=selector))
        # A node has lists of images and much else.
        nursery.start_soon(follow, Selection(type=NODES, reduce=_reduced))
        # The watches end with the client.
        await trio.sleep_forever()
    raise AssertionError("unreachable")


def _reduced(node: Resource) -> Resource:
    """Return *node* with what `node_addresses` reads."""
    return {**node, "spec": {}, "status": {"addresses": _listed(node)}}


def _runs(pod: Resource) -> bool:
    phase = (pod.get("status") or {}).get("phase")
    is_ending = pod["metadata"].get("deletionTimestamp")
    return phase == "Running" and not is_ending and bool((pod.get("spec") or {}).get("nodeName"))


def _is_ready(pod: Resource) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in conditions)


def _addresses(node: Resource, kind: str) -> list[str]:
    def of_type(wanted: str) -> list[str]:
        given = (one.get("address") for one in _listed(node) if one.get("type") == wanted)
        return [address for address in given if address and is_ip(address)]

    return of_type(_TYPES[kind]) or of_type(_TYPES[INTERNAL])


def _listed(node: Resource) -> list[Any]:
    return list((node.get("status") or {}).get("addresses") or ())
