"""Watch of ConfigMap and Secret, which outlives the iterations."""

from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, NoReturn

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.config.load import ConfigSource
from haptic_trio.errors import HapticError, Problem, leaves_of, text_of
from haptic_trio.k8s.client import Client, Deleted, Listed, Selection, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.messages import ProblemsReported

CONFIG_MAPS: Final = ResourceType("v1", "configmaps")
SECRETS: Final = ResourceType("v1", "secrets")

RETRY_BASE: Final = 0.5
RETRY_MAX: Final = 30.0
"""Seconds until a failed watch is opened again; the delay doubles."""


async def run_config_watch(
    client: Client, source: ConfigSource, candidates: Latest[ConfigSeen], *, events: EventBuffer
) -> NoReturn:
    """Put each new pair of ConfigMap and Secret into *candidates*, until cancelled."""
    current: dict[ResourceType, Resource | None] = {}
    backoff = Backoff(base=RETRY_BASE, limit=RETRY_MAX, jitter=lambda: 0.0)

    def see(resource_type: ResourceType, resource: Resource | None) -> None:
        current[resource_type] = resource
        backoff.reset()
        if len(current) == 2:
            seen = ConfigSeen(current[CONFIG_MAPS], current[SECRETS])
            # A watch that lists again repeats the known objects.
            if candidates.value is None or candidates.value.version != seen.version:
                candidates.put(seen)

    while True:
        try:
            async with trio.open_nursery() as nursery:
                for resource_type, name in ((CONFIG_MAPS, source.config_map), (SECRETS, source.secret)):
                    selection = Selection(
                        type=resource_type, namespaces=(source.namespace,), field_selector=f"metadata.name={name}"
                    )
                    nursery.start_soon(_follow, client, selection, partial(see, resource_type))
        except* (HapticError, OSError) as group:
            problems = tuple(Problem(message=text_of(error)) for error in leaves_of(group))
            events.record(ProblemsReported(source=f"watch of {CONFIG_MAPS}", problems=problems))
        # The watches have failed, or they have ended with the cluster.
        await trio.sleep(backoff.next())


async def _follow(client: Client, selection: Selection, see: Callable[[Resource | None], None]) -> None:
    async with client.watch(selection) as events:
        await _see_all(events, see)


async def _see_all(events: AsyncIterator[WatchEvent], see: Callable[[Resource | None], None]) -> None:
    async for event in events:
        match event:
            case Listed(objects):
                see(objects[0] if objects else None)
            case Upserted(resource):
                see(resource)
            case Deleted():
                see(None)
