"""Provider of bare pods, created from a PodTemplate that owns them.

    draining   the label `haptic-trio/serving` becomes `false`, and the Service has the pod no more; once balancers
               know it, and no client is connected any more, the drain is over
    removing   the pod is deleted, and has its own grace period

A watch keeps what the pods are; nothing is asked for but what a watch may not
have told yet. A deletion by anybody else, the end of a node, and an eviction
are termination notices.
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
"""Seconds after a pod left its Service in which balancers and nodes may still send it connections."""
COUNT_LIMIT = 2.0
"""Seconds that HAProxy may take to say how many connections it has."""
WRITE_TRIES = 5
"""How often a write is tried when others write to the same pod meanwhile."""


class PodServer(Protocol):
    """What the provider needs of an API server."""

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
"""Returns how many clients are connected to the HAProxy of a pod; None when nobody can say."""


async def scrape_sessions(pod: Resource) -> int | None:
    """Ask the metrics of the HAProxy in *pod*."""
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
    """The pods of *key* in *namespace*, and the records that they carry.

    *basis* gets the hash of the PodTemplate that `aim` names. *notice* is told
    what happens to pods; *report* what is wrong with the template.
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
        """Names of pods that were deleted by us, and that the watch still shows."""
        self._listed = trio.Event()
        self._template: Resource | None = None
        self._aim: Latest[tuple[str, Mapping[str, str]]] = Latest()

    def aim(self, template: str, labels: Mapping[str, str]) -> None:
        """Make pods from the PodTemplate *template* from now on, which must give them *labels*; none if it is empty."""
        if self._aim.value != (template, labels):
            self._aim.put((template, labels))

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Follow pods and template until cancelled."""
        task_status.started()
        seen, (name, labels) = await self._aim.wait_newer(0)
        while True:
            async with trio.open_nursery() as nursery:
                if name:
                    nursery.start_soon(self._follow_pods)
                    nursery.start_soon(self._follow_template, name, labels)
                seen, (name, labels) = await self._aim.wait_newer(seen)
                nursery.cancel_scope.cancel(reason="another template is meant")

    # -- what is followed --------------------------------------------------

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
            self._tell_doom(pod)
        elif former is None or status_of(former, was_ready=True) is not status_of(pod, was_ready=True):
            self._tell(EventType.CHECK_INSTANCE, name)

    def _drop(self, name: str) -> None:
        self._removed.discard(name)
        if self._pods.pop(name, None) is not None:
            self._tell(EventType.INSTANCE_DELETED, name)

    def _tell_doom(self, pod: Resource) -> None:
        name = pod["metadata"]["name"]
        if name not in self._removed:
            # That is when it will be gone, its grace period included.
            self._tell(EventType.TERMINATION_NOTICE, name, read_time(pod["metadata"].get("deletionTimestamp")))

    def _tell(self, kind: EventType, name: str, deadline: float | None = None) -> None:
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
        """Have pods made from *template*, none while it is gone; one that is no good changes nothing."""
        problems: tuple[Problem, ...] = ()
        if template is None:
            # Its pods go with it, and so would those that were still made for it.
            self._template = None
            problems = (Problem(message="not found", source=source, hint="no pod can be made before it is there"),)
        elif missing := [f"{key}={value}" for key, value in labels.items() if labels_of(template).get(key) != value]:
            problems = (
                Problem(
                    message=f"its pods would not be deployed to: they lack {', '.join(missing)} of `podSelector`",
                    source=source,
                    path="template.metadata.labels",
                ),
            )
        else:
            self._template = template
            if self._basis.value != (found := hash_template(template)):
                self._basis.put(found)
        self._report(source, problems)

    # -- what the reconciler asks for --------------------------------------

    async def list_owned(self) -> Sequence[ProviderInstance]:
        """Return all pods with our mark; those that are going need no one to look after them."""
        await self._listed.wait()
        return [listed_as(pod) for pod in self._pods.values() if not pod["metadata"].get("deletionTimestamp")]

    async def adopt(self, record: InstanceRecord) -> None:
        """Tell again what an earlier leader may have been told."""
        await trio.lowlevel.checkpoint()
        pod = self._pods.get(record.id)
        if pod is not None and is_doomed(pod):
            self._tell_doom(pod)

    async def create(self, record: InstanceRecord, spec: GroupSpec, *, heir_of: str = "") -> str:  # noqa: ARG002
        """Make the pod; it begins to serve when it is ready."""
        if self._template is None:
            raise RetryableError("there is no PodTemplate to make a pod from")
        try:
            pod = await self._server.create(make_pod(self._template, record, self._namespace))
        except AlreadyExistsError:
            # Names are never used again, so it is the one that was asked for, and whose answer was lost.
            pod = await self._server.get(PODS, self._namespace, record.id)
        except InvalidError as exc:
            raise PermanentError(exc) from exc
        # The watch may need a moment to tell.
        self._pods.setdefault(record.id, pod)
        return record.id

    async def status(self, record: InstanceRecord) -> ProviderStatus:
        """Return how the pod is, as far as the API server knows."""
        await self._listed.wait()
        pod = self._pods.get(record.id)
        if pod is None:
            try:
                pod = await self._server.get(PODS, self._namespace, record.id)
            except NotFoundError:
                return ProviderStatus.NOT_FOUND
        return status_of(pod, was_ready=record.ready_at is not None)

    async def begin_drain(self, record: InstanceRecord, deadline: float) -> None:  # noqa: ARG002 - kept by the caller
        """Take the pod out of its Service."""
        await self._write(record.id, lambda pod: with_metadata(pod, label=(SERVING, "false")))

    async def drained(self, record: InstanceRecord) -> bool:
        """Whether nobody is connected any more; False as long as nobody can say."""
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

    # -- the store ---------------------------------------------------------

    async def load(self) -> Sequence[InstanceRecord]:
        """Return what the pods say is known of them."""
        await self._listed.wait()
        return [record for pod in self._pods.values() if (record := read_record(pod)) is not None]

    async def put(self, record: InstanceRecord) -> None:
        """Keep *record* with its pod. A pod is made together with its first record, and one that is gone needs none."""
        if record.state is InstanceState.PENDING and record.id not in self._pods:
            await trio.lowlevel.checkpoint()
            return
        await self._write(record.id, lambda pod: with_metadata(pod, record=record))

    async def _write(self, name: str, change: Callable[[Resource], Resource]) -> None:
        """Have the pod *name* changed, whoever else writes to it meanwhile; one that is gone is left alone."""
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
        raise RetryableError(f"others write to pod {name} all the time")


class PodStore:
    """The records of a `PodProvider`'s pods, which are kept with them."""

    def __init__(self, provider: PodProvider) -> None:
        self._provider = provider

    async def load(self) -> Sequence[InstanceRecord]:
        """Return all records."""
        return await self._provider.load()

    async def put(self, record: InstanceRecord) -> None:
        """Keep *record* in place of an earlier one with its id."""
        await self._provider.put(record)

    async def delete(self, instance_id: str) -> None:  # noqa: ARG002 - it goes with its pod
        """Drop a record."""
        await trio.lowlevel.checkpoint()
