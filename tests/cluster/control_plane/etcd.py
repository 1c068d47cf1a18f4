"""Objects written past the API server: in numbers, or while it is away, as another server of the same etcd does."""

import base64
import json
import uuid
from collections.abc import Iterable, Sequence
from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.processes import ETCD
from tests.cluster.workloads.client import Cluster

_AT_ONCE: Final = 100
"""Objects of a transaction; etcd takes 128."""
_PLACES: Final = {"Ingress": "ingress", "Service": "services/specs", "EndpointSlice": "endpointslices"}
_CREATED: Final = "2026-01-01T00:00:00Z"


async def write_objects(cluster: Cluster, namespace: str, objects: Iterable[Resource]) -> None:
    """Create Ingresses, Services (headless ones) or EndpointSlices in *namespace*."""
    puts = [
        {"requestPut": {"key": _key(namespace, one), "value": _encoded(_completed(one, namespace))}} for one in objects
    ]
    for first in range(0, len(puts), _AT_ONCE):
        await _transact(cluster, puts[first : first + _AT_ONCE])


async def remove_objects(cluster: Cluster, namespace: str, objects: Iterable[Resource]) -> None:
    """Delete objects of *namespace*."""
    await _transact(cluster, [{"requestDeleteRange": {"key": _key(namespace, one)}} for one in objects])


async def remove_all(cluster: Cluster, namespace: str) -> None:
    """Delete every object of *namespace* that `write_objects` could have written, in a moment."""
    for place in _PLACES.values():
        prefix = f"/registry/{place}/{namespace}/"
        # Up to what comes right after everything that begins so.
        end = prefix[:-1] + chr(ord("/") + 1)
        await _transact(cluster, [{"requestDeleteRange": {"key": _encoded(prefix), "range_end": _encoded(end)}}])


async def _transact(cluster: Cluster, steps: Sequence[dict[str, Any]]) -> None:
    async with cluster.http(timeout=30) as client:
        (await client.post(f"{ETCD}/v3/kv/txn", json={"success": steps})).raise_for_status()


def _key(namespace: str, resource: Resource) -> str:
    return _encoded(f"/registry/{_PLACES[resource['kind']]}/{namespace}/{resource['metadata']['name']}")


def _completed(resource: Resource, namespace: str) -> str:
    given = {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": _CREATED}
    return json.dumps({**resource, "metadata": {**resource["metadata"], **given}})


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
