"""Writer of the published configuration, run while this replica leads.

Each object is applied when it differs from the applied one. A new leader
applies all objects once. Changes of the objects by other clients stay until
the next change of the configuration.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from math import inf
from typing import Any, Final, NoReturn, Protocol

import trio

from haptic_trio.backoff import Backoff
from haptic_trio.channels import AnyChange, InstanceState, Latest
from haptic_trio.errors import HapticError, Problem
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import AbsentKindError, ApiError
from haptic_trio.k8s.resource import Resource, ResourceType, ref_of
from haptic_trio.messages import ConfigPrepared, ConfigValidated, EndpointsDiscovered
from haptic_trio.status.published import (
    CONFIGURATIONS,
    FILES,
    Snapshot,
    configuration_of,
    files_of,
    names_in,
    status_of,
)
from haptic_trio.status.sources import FIELD_MANAGER

INTERVAL: Final = 10.0
"""Seconds between two rounds of writes."""
RETRY_BASE: Final = 1.0
RETRY_MAX: Final = 60.0

Read = Callable[[tuple[Generation, ...]], Awaitable[Snapshot | None]]
"""Returns the text of the newest render if it is that of one of the generations, else None."""


class PublishingServer(Protocol):
    """The part of `ApiCluster` that the writer uses."""

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """Return an object, or raise `NotFoundError`."""
        ...

    async def apply(
        self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Resource:
        """Apply *resource* (server-side apply) and return the stored object."""
        ...

    async def delete(self, resource_type: ResourceType, namespace: str, name: str) -> None:
        """Delete an object, or raise `NotFoundError`."""
        ...


class Inputs:
    """The cells that a published configuration is made from."""

    def __init__(
        self,
        prepared: Latest[ConfigPrepared],
        validated: Latest[ConfigValidated],
        instances: Latest[Mapping[str, InstanceState]],
        endpoints: Latest[EndpointsDiscovered],
    ) -> None:
        self._prepared = prepared
        self._validated = validated
        self._instances = instances
        self._endpoints = endpoints

    def changes(self) -> AnyChange:
        """Return a waiter for the next change; a prepared generation is of interest only once an instance runs it."""
        cells: tuple[Latest[Any], ...] = (self._validated, self._instances, self._endpoints)
        return AnyChange(cells)

    @property
    def states(self) -> Mapping[str, InstanceState]:
        """The state of each instance that was deployed to."""
        return self._instances.value or {}

    @property
    def endpoints(self) -> tuple[str, ...]:
        """Names of all instances."""
        found = self._endpoints.value
        return tuple(endpoint.name for endpoint in found.endpoints) if found is not None else ()

    @property
    def generations(self) -> tuple[Generation, ...]:
        """Generations that may be published: the valid one, and a prepared one that some instance runs."""
        found = [self._validated.value.generation] if self._validated.value is not None else []
        if self._prepared.value is not None:
            prepared = self._prepared.value.generation
            if any(state.generation == prepared.id for state in self.states.values()):
                found.append(prepared)
        return tuple(found)


class Publisher:
    """Writes the configuration object *name* in *namespace*, and an object for each file."""

    def __init__(
        self,
        server: PublishingServer,
        namespace: str,
        name: str,
        inputs: Inputs,
        read: Read,
        *,
        clean: Callable[[str], str],
        report: Callable[[tuple[Problem, ...]], None],
        interval: float = INTERVAL,
    ) -> None:
        """*clean* redacts messages about instances; *report* gets the problem of writing, and nothing once it works."""
        self._server = server
        self._namespace = namespace
        self._name = name
        self._inputs = inputs
        self._read = read
        self._clean = clean
        self._report = report
        self._interval = interval
        self._backoff = Backoff(base=RETRY_BASE, limit=RETRY_MAX)
        self._applied: dict[str, Resource] = {}
        """Objects for files by name, as they were applied."""
        self._configuration: Resource | None = None
        self._uid = ""
        self._status: Resource | None = None
        self._stale: set[str] | None = None
        """Names of objects for files of an earlier configuration; None before they are known."""

    async def run(self) -> NoReturn:
        """Write until cancelled; at most one round in the interval, and none without a difference."""
        changes = self._inputs.changes()
        while True:
            try:
                has_written, is_current = await self._publish()
            except (ApiError, AbsentKindError, NotFoundError) as error:
                self._report((self._problem(error),))
                # The objects may have been deleted, so the next attempt applies all of them.
                self._applied.clear()
                self._configuration = self._status = self._stale = None
                await trio.sleep(max(self._interval, self._backoff.next()))
                continue
            if self._backoff.failures:
                self._backoff.reset()
                self._report(())
            if has_written:
                await trio.sleep(self._interval)
            # The newest render may be that of no generation yet, so that no cell changes when it is.
            with trio.move_on_after(inf if is_current else self._interval):
                await changes.wait()

    def _problem(self, error: HapticError) -> Problem:
        if isinstance(error, AbsentKindError):
            hint = "apply chart/files/published-configuration.yaml, or set controller.publishConfiguration to false"
            return Problem(message=str(error), hint=hint)
        hint = error.hint if isinstance(error, ApiError) else ""
        return Problem(message=f"cannot publish the configuration: {error}", hint=hint)

    async def _publish(self) -> tuple[bool, bool]:
        """Apply what differs; return whether anything did, and whether the newest generation is published."""
        has_written = False
        generations = self._inputs.generations
        snapshot = None
        if generations and not self._has_published(generations[-1]):
            snapshot = await self._read(generations)
            if snapshot is not None:
                has_written = await self._write_texts(snapshot)
        if self._configuration is not None:
            has_written |= await self._write_status()
        return has_written, not generations or self._has_published(generations[-1])

    def _has_published(self, generation: Generation) -> bool:
        return self._configuration is not None and self._configuration["spec"]["generation"] == generation.id

    async def _write_texts(self, snapshot: Snapshot) -> bool:
        configuration = configuration_of(self._namespace, self._name, snapshot)
        if self._stale is None:
            self._stale = await self._find_former()
        # First, because afterwards nothing names them.
        await self._delete((self._stale | self._applied.keys()) - names_in(configuration))
        self._stale = set()
        stored = await self._apply(configuration)
        uid = stored["metadata"].get("uid", "")
        for resource in files_of(self._namespace, self._name, uid, snapshot):
            name = ref_of(resource).name
            if self._applied.get(name) != resource:
                await self._apply(resource)
                self._applied[name] = resource
        self._configuration = configuration
        return True

    async def _delete(self, names: set[str]) -> None:
        for name in sorted(names):
            with suppress(NotFoundError):
                await self._server.delete(FILES, self._namespace, name)
            self._applied.pop(name, None)

    async def _find_former(self) -> set[str]:
        """Return the names of the objects that a former leader has written."""
        try:
            return names_in(await self._server.get(CONFIGURATIONS, self._namespace, self._name))
        except NotFoundError:
            return set()

    async def _write_status(self) -> bool:
        status = status_of(self._namespace, self._name, self._clean_states(), self._inputs.endpoints)
        if status == self._status:
            return False
        await self._apply(status, subresource="status")
        self._status = status
        return True

    def _clean_states(self) -> dict[str, InstanceState]:
        return {name: _cleaned(state, self._clean) for name, state in self._inputs.states.items()}

    async def _apply(self, resource: Resource, *, subresource: str = "") -> Resource:
        return await self._server.apply(resource, field_manager=FIELD_MANAGER, force=True, subresource=subresource)


def _cleaned(state: InstanceState, clean: Callable[[str], str]) -> InstanceState:
    return InstanceState(
        wanted=state.wanted,
        generation=state.generation,
        held=tuple(map(clean, state.held)),
        is_partial=state.is_partial,
        error=clean(state.error) if state.error else "",
    )
