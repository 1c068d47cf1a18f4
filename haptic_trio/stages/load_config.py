"""Stage 1, `load_config`: watches ConfigMap and Secret, and loads the configuration of this iteration."""

from collections.abc import AsyncIterator, Callable
from collections.abc import Set as AbstractSet
from functools import partial

import trio

from haptic_trio.channels import ConfigSeen, EventBuffer, Latest
from haptic_trio.config.load import LoadedConfig
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.k8s.client import Client, Deleted, Listed, Selection, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.messages import ConfigInvalid
from haptic_trio.stages.process import ConfigSource, Load

CONFIG_MAPS = ResourceType("v1", "configmaps")
SECRETS = ResourceType("v1", "secrets")


async def run_load_config(
    client: Client,
    source: ConfigSource,
    candidates: Latest[ConfigSeen],
    *,
    load: Load,
    checked: LoadedConfig | None = None,
    last_good: LoadedConfig | None,
    unstartable: AbstractSet[str],
    events: EventBuffer,
    task_status: trio.TaskStatus[LoadedConfig] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Watch ConfigMap and Secret until cancelled, and put each new pair of them into *candidates*.

    started() gives the configuration to run: the present one if it is valid
    and not among the *unstartable*, else *last_good*; without that it waits
    for a valid one. *checked* is used instead of loading the same version.
    """
    async with trio.open_nursery() as nursery:
        current: dict[ResourceType, Resource | None] = {}

        def see(resource_type: ResourceType, resource: Resource | None) -> None:
            current[resource_type] = resource
            if len(current) == 2:
                seen = ConfigSeen(current[CONFIG_MAPS], current[SECRETS])
                # A watch that lists again repeats the known objects.
                if candidates.value is None or candidates.value.version != seen.version:
                    candidates.put(seen)

        for resource_type, name in ((CONFIG_MAPS, source.config_map), (SECRETS, source.secret)):
            selection = Selection(
                type=resource_type, namespaces=(source.namespace,), field_selector=f"metadata.name={name}"
            )
            await nursery.start(_follow, client, selection, partial(see, resource_type))
        task_status.started(await _first_valid(candidates, load, checked, last_good, unstartable, source, events))


async def _follow(
    client: Client,
    selection: Selection,
    see: Callable[[Resource | None], None],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    async with client.watch(selection) as events:
        see(_sole(await anext(events)))
        task_status.started()
        await _see_all(events, see)


async def _see_all(events: AsyncIterator[WatchEvent], see: Callable[[Resource | None], None]) -> None:
    async for event in events:
        see(_sole(event))


def _sole(event: WatchEvent) -> Resource | None:
    match event:
        case Listed(objects):
            return objects[0] if objects else None
        case Upserted(resource):
            return resource
        case Deleted():
            return None


async def _first_valid(
    candidates: Latest[ConfigSeen],
    load: Load,
    checked: LoadedConfig | None,
    last_good: LoadedConfig | None,
    unstartable: AbstractSet[str],
    source: ConfigSource,
    events: EventBuffer,
) -> LoadedConfig:
    version = 0
    while True:
        version, seen = await candidates.wait_newer(version)
        if last_good is not None and seen.version in unstartable:
            return last_good
        if checked is not None and checked.version == seen.version:
            return checked
        problems: tuple[Problem, ...] = (_absent(source),)
        if seen.config_map is not None:
            try:
                # The watch continues meanwhile, so a correction is not missed.
                return await trio.to_thread.run_sync(load, seen.config_map, seen.secret)
            except ProblemsError as exc:
                problems = exc.problems
        if last_good is not None:
            # Stage `watch_config` checks the same candidate, and reports it.
            return last_good
        events.record(ConfigInvalid(version=seen.version, problems=problems))


def _absent(source: ConfigSource) -> Problem:
    return Problem(
        message="not found",
        source=f"ConfigMap {source.namespace}/{source.config_map}",
        hint="create it, or name another one with --config-map",
    )
