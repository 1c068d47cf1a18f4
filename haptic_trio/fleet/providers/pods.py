"""Provider of bare pods, created from a PodTemplate that owns them.

    draining   the label `haptic-trio/serving` becomes `false`, which removes the pod from the Service; the drain ends
               when load balancers have had time to notice and no client is connected any more
    removing   the pod is deleted, with its own grace period

A watch keeps the state of the pods; a single pod is read only if the watch
may not have delivered it yet. A deletion from outside, the end of a node, and
an eviction are termination notices.
"""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Protocol

import httpx
import trio

from haptic_trio.channels import Latest
from haptic_trio.errors import Problem
from haptic_trio.fleet.model import (
    EventType,
    GroupKey,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    ProviderInstance,
    ProviderStatus,
    ReconcileEvent,
    RetryableError,
)
from haptic_trio.fleet.providers.pod_objects import (
    MARK,
    POD_TEMPLATES,
    PODS,
    SERVING,
    count_sessions,
    hash_template,
    is_doomed,
    labels_of,
    listed_as,
    make_pod,
    metrics_url,
    read_record,
    read_time,
    status_of,
    with_metadata,
)
from haptic_trio.k8s.client import Deleted, Listed, NotFoundError, Report, Selection, Upserted, WatchEvent
from haptic_trio.k8s.errors import AlreadyExistsError, ConflictError, InvalidError
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.workqueue.outcome import PermanentError

LAME_DUCK = 5.0
"""Seconds after a pod left its Service in which load balancers and nodes may still send it connections."""
COUNT_LIMIT = 2.0
"""Seconds that HAProxy may take to report its number of connections."""
WRITE_TRIES = 5
"""Attempts of a write that conflicts with other writers of the same pod."""


class PodServer(Protocol):
    """The part of an API client that the provider needs."""

    def watch(self, selection: Selection) -> AbstractAsyncContextManager[AsyncIterator[WatchEvent]]:
        """See `Client.watch`."""
        ...

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """See `Client.get`."""
        ...

    async def create(self, resource: Resource) -> Resource:
        """See `ApiCluster.create`."""
        ...

    async def replace(self, resource: Resource) -> Resource:
        """See `ApiCluster.replace`."""
        ...

    async def delete(self, resource_type: ResourceType, namespace: str, name: str) -> None:
        """See `ApiCluster.delete`."""
        ...


CountSessions = Callable[[Resource], Awaitable[int | None]]
"""Returns the number of clients connected to the HAProxy of a pod; None if it cannot be determined."""


async def scrape_sessions(pod: Resource) -> int | None:
    """Return the number of client connections from the metrics of HAProxy in *pod*; None if they cannot be read."""
    url = metrics_url(pod)
    if not url:
        return None
    with trio.move_on_after(COUNT_LIMIT):
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                answer = await client.get(url, params={"scope": "frontend"})
        except httpx.TransportError:
            return None
        return count_sessions(answer.text) if answer.status_code == 200 else None
    return None


class PodProvider:
    """Manages the pods of group *key* in *namespace*, and the records in their annotations.

    *basis* receives the hash of the PodTemplate named by `aim`. *notice* is
    called for events about pods, *report* for problems of the template.
    """

    def __init__(
        self,
        server: PodServer,
        namespace: str,
        key: GroupKey,
        *,
        basis: Latest[str],
        notice: Callable[[ReconcileEvent], None],
        report: Report,
        count: CountSessions = scrape_sessions,
        lame_duck: float = LAME_DUCK,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._server = server
        self._namespace = namespace
        self._key = key
        self._basis = basis
        self._notice = notice
        self._report = report
        self._count = count
        self._lame_duck = lame_duck
        self._clock = clock
        self._pods: dict[str, Resource] = {}
        self._removed: set[str] = set()
        """Names of pods that this provider has deleted and that the watch still shows."""
        self._listed = trio.Event()
        self._template: Resource | None = None
        self._aim: Latest[tuple[str, Mapping[str, str]]] = Latest()

    def aim(self, template: str, labels: Mapping[str, str]) -> None:
        """Create pods from the PodTemplate *template* from now on; it must give them *labels*. Empty: create none."""
        if self._aim.value != (template, labels):
            self._aim.put((template, labels))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Watch pods and template until cancelled; started() is called immediately."""
        task_status.started()
        seen, (name, labels) = await self._aim.wait_newer(0)
        while True:
            async with trio.open_nursery() as nursery:
                if name:
                    nursery.start_soon(self._follow_pods)
                    nursery.start_soon(self._follow_template, name, labels)
                seen, (name, labels) = await self._aim.wait_newer(seen)
                nursery.cancel_scope.cancel(reason="another template is configured")

    async def _follow_pods(self) -> None:
        selection = Selection(type=PODS, namespaces=(self._namespace,), label_selector=f"{MARK}={self._key.group}")
        async with self._server.watch(selection) as events:
            async for event in events:
                match event:
                    case Listed(objects):
                        present = {pod["metadata"]["name"]: pod for pod in objects}
                        for name in self._pods.keys() - present.keys():
                            self._drop(name)
                        for pod in objects:
                            self._see(pod)
                        self._listed.set()
                    case Upserted(pod):
                        self._see(pod)
                    case Deleted(pod):
                        self._drop(pod["metadata"]["name"])

    def _see(self, pod: Resource) -> None:
        name = pod["metadata"]["name"]
        former = self._pods.get(name)
        self._pods[name] = pod
        if is_doomed(pod) and (former is None or not is_doomed(former)):
            self._notify_termination(pod)
        elif former is None or status_of(former, was_ready=True) is not status_of(pod, was_ready=True):
            self._notify(EventType.CHECK_INSTANCE, name)

    def _drop(self, name: str) -> None:
        self._removed.discard(name)
        if self._pods.pop(name, None) is not None:
            self._notify(EventType.INSTANCE_DELETED, name)

    def _notify_termination(self, pod: Resource) -> None:
        name = pod["metadata"]["name"]
        if name not in self._removed:
            # The timestamp includes the grace period: at that time the pod will be gone.
            self._notify(EventType.TERMINATION_NOTICE, name, read_time(pod["metadata"].get("deletionTimestamp")))

    def _notify(self, kind: EventType, name: str, deadline: float | None = None) -> None:
        self._notice(
            ReconcileEvent(
                type=kind,
                group=self._key.group,
                instance_id=name,
                timestamp=self._clock(),
                cause="watch",
                deadline=deadline,
            )
        )

    async def _follow_template(self, name: str, labels: Mapping[str, str]) -> None:
        source = f"PodTemplate {self._namespace}/{name}"
        selection = Selection(type=POD_TEMPLATES, namespaces=(self._namespace,), field_selector=f"metadata.name={name}")
        try:
            async with self._server.watch(selection) as events:
                async for event in events:
                    match event:
                        case Listed(objects):
                            self._take_template(objects[0] if objects else None, source, labels)
                        case Upserted(template):
                            self._take_template(template, source, labels)
                        case Deleted():
                            self._take_template(None, source, labels)
        finally:
            self._report(source, ())

    def _take_template(self, template: Resource | None, source: str, labels: Mapping[str, str]) -> None:
        """Use *template* for new pods; None while it is missing. An unusable one is reported and changes nothing."""
        problems: tuple[Problem, ...] = ()
        if template is None:
            # Kubernetes deletes the pods of a deleted template, new ones included.
            self._template = None
            problems = (Problem(message="not found", source=source, hint="create it: pods are made from it"),)
        elif missing := [f"{key}={value}" for key, value in labels.items() if labels_of(template).get(key) != value]:
            problems = (
                Problem(
                    message=f"labels {', '.join(missing)} of `podSelector` are missing",
                    source=source,
                    path="template.metadata.labels",
                    hint="add them: without them the pods would not be deployed to",
                ),
            )
        else:
            self._template = template
            if self._basis.value != (found := hash_template(template)):
                self._basis.put(found)
        self._report(source, problems)

    async def list_owned(self) -> Sequence[ProviderInstance]:
        """Return all pods with the mark, except those that are being deleted."""
        await self._listed.wait()
        return [listed_as(pod) for pod in self._pods.values() if not pod["metadata"].get("deletionTimestamp")]

    async def adopt(self, record: InstanceRecord) -> None:
        """Repeat a termination notice that only an earlier leader may have received."""
        await trio.lowlevel.checkpoint()
        pod = self._pods.get(record.id)
        if pod is not None and is_doomed(pod):
            self._notify_termination(pod)

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str = "") -> str:  # noqa: ARG002
        """Create the pod; it begins to serve when it is ready.

        Raises `RetryableError`, or `PermanentError` if the API server rejects the pod.
        """
        if self._template is None:
            raise RetryableError("there is no PodTemplate to create a pod from")
        try:
            pod = await self._server.create(make_pod(self._template, record, self._namespace))
        except AlreadyExistsError:
            # Names are unique, so this is the requested pod: the response of an earlier attempt was lost.
            pod = await self._server.get(PODS, self._namespace, record.id)
        except InvalidError as exc:
            raise PermanentError(exc) from exc
        # The watch may deliver the pod later.
        self._pods.setdefault(record.id, pod)
        return record.id

    async def status(self, record: InstanceRecord) -> ProviderStatus:
        """Return the status of the pod, as the API server reports it."""
        await self._listed.wait()
        pod = self._pods.get(record.id)
        if pod is None:
            try:
                pod = await self._server.get(PODS, self._namespace, record.id)
            except NotFoundError:
                return ProviderStatus.NOT_FOUND
        return status_of(pod, was_ready=record.ready_at is not None)

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:  # noqa: ARG002 - kept by the caller
        """Remove the pod from its Service."""
        await self._write(record.id, lambda pod: with_metadata(pod, label=(SERVING, "false")))

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether no client is connected any more; False if that cannot be determined."""
        await self._listed.wait()
        pod = self._pods.get(record.id)
        if pod is None:
            return await self.status(record) is ProviderStatus.NOT_FOUND
        if self._clock() < (record.drain_started_at or 0.0) + self._lame_duck:
            return False
        return await self._count(pod) == 0

    async def delete(self, record: InstanceRecord, *, force: bool = False) -> None:  # noqa: ARG002 - it has its own grace
        """Delete the pod."""
        pod = self._pods.get(record.id)
        if pod is not None and pod["metadata"].get("deletionTimestamp"):
            return
        self._removed.add(record.id)
        try:
            await self._server.delete(PODS, self._namespace, record.id)
        except NotFoundError:
            self._removed.discard(record.id)

    async def load(self) -> Sequence[InstanceRecord]:
        """Return the records in the annotations of the pods."""
        await self._listed.wait()
        return [record for pod in self._pods.values() if (record := read_record(pod)) is not None]

    async def put(self, record: InstanceRecord) -> None:
        """Write *record* to its pod. The first record is written with the new pod, and a missing pod needs none."""
        if record.state is InstanceState.PENDING and record.id not in self._pods:
            await trio.lowlevel.checkpoint()
            return
        await self._write(record.id, lambda pod: with_metadata(pod, record=record))

    async def _write(self, name: str, change: Callable[[Resource], Resource]) -> None:
        """Apply *change* to the pod *name*, and retry if others write to it; does nothing for a missing pod."""
        pod = self._pods.get(name)
        for _ in range(WRITE_TRIES):
            try:
                if pod is None:
                    pod = await self._server.get(PODS, self._namespace, name)
                written = await self._server.replace(change(pod))
            except NotFoundError:
                return
            except ConflictError:
                pod = None
                continue
            if name in self._pods:
                self._pods[name] = written
            return
        raise RetryableError(f"pod {name}: {WRITE_TRIES} writes in a row conflicted with other writers")


class PodStore:
    """Store for the records in the pods of a `PodProvider`."""

    def __init__(self, provider: PodProvider) -> None:
        self._provider = provider

    async def load(self) -> Sequence[InstanceRecord]:
        """Return all records."""
        return await self._provider.load()

    async def put(self, record: InstanceRecord) -> None:
        """Write *record*, replacing an earlier one with its id."""
        await self._provider.put(record)

    async def delete(self, instance_id: str) -> None:  # noqa: ARG002 - the record disappears with its pod
        """Do nothing: the record disappears with its pod."""
        await trio.lowlevel.checkpoint()
