"""Stage 2, `components`: builds validator, renderer, ledger of reconciliations and HTTP store."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import trio

from haptic_trio.channels import Channels, EventBuffer
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.model import Config, ReconcilerMode, StoreKind, ValidationMode, WatchedResource
from haptic_trio.dataplane.local.check import CheckDirectory
from haptic_trio.deployment.instance_count import counts_instances, make_instance_store
from haptic_trio.gateway.listeners.port_rules import TAKEN_PORTS
from haptic_trio.heartbeat import Heartbeats
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.keeping import keep_contents
from haptic_trio.k8s.client import Client
from haptic_trio.k8s.intake import Intake
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import ResourceType
from haptic_trio.k8s.shared_watches import SharedWatches
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.logs import set_level
from haptic_trio.pipeline.contents.store import open_contents, report_to, run_contents
from haptic_trio.pipeline.cycle import Pipeline
from haptic_trio.pipeline.ledger import run_ledger
from haptic_trio.pipeline.render import Renderer
from haptic_trio.pipeline.review.dry_run import DryRuns
from haptic_trio.pipeline.validate import Validator
from haptic_trio.stages.iteration_components import IterationComponents
from haptic_trio.stages.process import Process
from haptic_trio.templating.deferred import KeyedObject
from haptic_trio.templating.values.faults import ContentUnavailableError


async def run_components(
    process: Process,
    loaded: LoadedConfig,
    channels: Channels,
    heartbeats: Heartbeats,
    *,
    watches: SharedWatches,
    own: Callable[[IterationComponents], None],
    built: IterationComponents | None = None,
    task_status: trio.TaskStatus[IterationComponents] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Build the components of the iteration, then run the ledger, the HTTP store and its files until cancelled.

    started() returns the components. *built* is used instead, if it is given.
    *own* gets the components when they are there: it lets the caller close them.
    """
    if process.follow_log_level:
        set_level(loaded.config.logging.level)
    if built is None:
        built = await build_components(process, loaded, process.retained.contents, process.events, watches)
    own(built)
    process.retained.quarantine, process.retained.contents = built.quarantine, built.memory
    leadership = process.leadership.value
    async with trio.open_nursery() as nursery:
        await nursery.start(
            partial(
                run_ledger,
                channels.cycles_out.clone(),
                is_leader=leadership is not None and leadership.is_leader,
                events=process.events,
            )
        )
        nursery.start_soon(partial(run_contents, built.contents, channels.changes_in.clone(), events=process.events))
        nursery.start_soon(keep_contents, built.memory, report_to(process.events))
        task_status.started(replace(built, heartbeats=heartbeats))


async def build_components(
    process: Process, loaded: LoadedConfig, memory: ContentMemory, events: EventBuffer, watches: SharedWatches
) -> IterationComponents:
    """Return the components for *loaded*, with empty stores; the caller closes them. *events* receives their events."""
    config = loaded.config
    stores = make_stores(config, process.client)
    contents = open_contents(config, report_to(events), memory)
    # Compiling the templates takes as much CPU time as a few renders.
    renderer = await trio.to_thread.run_sync(Renderer, config, contents)
    quarantine = await trio.to_thread.run_sync(process.retained.quarantine.successor, config.templating.extra_context)
    directory = CheckDirectory(process.scratch)
    validator = Validator(process.haproxy, check_timeout=config.validation.check_timeout, directory=directory)
    pipeline = Pipeline(stores, renderer, validator, quarantine, events, places=process.places)
    return IterationComponents(
        config=config,
        watches=watches.open_session(),
        stores=stores,
        contents=contents,
        memory=memory,
        quarantine=quarantine,
        pipeline=pipeline,
        dry_runs=DryRuns(
            stores,
            renderer,
            validator,
            quarantine,
            pipeline=pipeline,
            binary=process.haproxy,
            scratch=process.scratch,
        ),
        heartbeats=Heartbeats(),
        directory=directory,
    )


def make_stores(config: Config, client: Client) -> Stores:
    """Return an empty store for each watched resource of *config*; on-demand stores fetch with *client*."""

    def make(name: str, watched: WatchedResource) -> Store:
        ignored = (*config.watched_resources_ignore_fields, *watched.ignore_fields)
        if watched.store is StoreKind.FULL:
            return Store(name, watched.index_by, ignored)
        return OnDemandStore(
            name,
            watched.index_by,
            ignored,
            make_object=KeyedObject,
            make_error=ContentUnavailableError,
            fetch=partial(client.get, ResourceType(watched.api_version, watched.resources)),
            cache_size=watched.cache_size,
            cache_ttl=watched.cache_ttl,
        )

    stores = [make(name, watched) for name, watched in config.watched_resources.items()]
    if {"gateway", "tcp-services"} & set(config.templating.libraries):
        # Not a kind of the cluster: `haptic_trio.deployment.taken_ports` fills this store.
        stores.append(Store(TAKEN_PORTS, ("spec.port",)))
    if counts_instances(config):
        # Neither is this one: `haptic_trio.deployment.instance_count` fills it.
        stores.append(make_instance_store())
    return Stores(stores, make_intake(config))


def make_intake(config: Config) -> Intake:
    """Return what decides how many changes a cycle takes in; without the fast lane, all."""
    seconds = float(config.reconciler.intake_time)
    is_fast = config.reconciler.mode is not ReconcilerMode.CLASSIC and config.validation.mode is ValidationMode.FAST
    return Intake(seconds) if is_fast and seconds else Intake()
