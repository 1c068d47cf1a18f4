"""Number of HAProxy instances, as an object of a store: rate limits of all instances together are rendered from it."""

from collections.abc import Sequence
from typing import Any, Final

import trio

from haptic_trio.channels import Change, Latest
from haptic_trio.config.model import Config
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.k8s.store import Store
from haptic_trio.messages import ResourceChanged

INSTANCES: Final = "haproxyInstances"
"""Name of the store. It has one object."""


def counts_instances(config: Config) -> bool:
    """Whether the templates of *config* need the number of instances."""
    return config.templating.extra_context.get("rateLimitScope") == "fleet"


def make_instance_store() -> Store:
    """Return the store, which is empty: one instance."""
    return Store(INSTANCES, ("metadata.name",))


def instance_objects(endpoints: Sequence[Endpoint] | None) -> list[dict[str, Any]]:
    """Return the objects of the store for *endpoints*; at least one instance counts."""
    return [
        {
            "apiVersion": "haptic-trio/v1",
            "kind": "Instances",
            "metadata": {"name": "all"},
            "spec": {"number": max(1, len(endpoints or ()))},
        }
    ]


async def run_instance_count(
    endpoints: Latest[tuple[Endpoint, ...]],
    changes: trio.MemorySendChannel[Change],
    store: Store | None,
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *store* equal to the number of *endpoints* and send its changes, until cancelled.

    Without a store no template reads the number. Takes ownership of *changes*.
    """
    with changes:
        seen = endpoints.version
        if store is not None:
            store.replace(instance_objects(endpoints.value))
        task_status.started()
        while store is not None:
            seen, present = await endpoints.wait_newer(seen)
            if changed := store.replace(instance_objects(present)):
                await changes.send(ResourceChanged(stores=(store.name,), refs=changed.refs))
