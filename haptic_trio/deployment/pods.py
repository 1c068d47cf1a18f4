"""Discovery of HAProxy pods: each selected pod with an address whose agent answers is an endpoint.

Readiness does not count: a pod becomes ready by its first deployment. A pod
of the same name with another uid or address is another endpoint.
"""

from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Final, NoReturn

import httpx
import msgspec
import trio

from haptic_trio.channels import Latest
from haptic_trio.config.model import DataplaneKind
from haptic_trio.dataplane.agent.client import AgentAddress, AgentClient, open_http
from haptic_trio.dataplane.agent.endpoint import AgentLink, Cuts
from haptic_trio.dataplane.agent.follower import follow_agent
from haptic_trio.dataplane.agent.tls import RenewedContext, TlsFiles
from haptic_trio.dataplane.dataplaneapi.client import Credentials, open_api_client
from haptic_trio.dataplane.dataplaneapi.follower import follow_api
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.presence import Presence, Renewal
from haptic_trio.k8s.client import Client, Deleted, Listed, Report, Selection, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource, ResourceType

PODS: Final = ResourceType("v1", "pods")
AGENT_NAME: Final = "haptic-trio-agent"
"""Default name in the certificates of agents: pods have no host names."""
_ENDED: Final = frozenset({"Succeeded", "Failed"})


class AgentAccess(msgspec.Struct, frozen=True, kw_only=True):
    """Certificates for the connections to agents in pods."""

    tls: TlsFiles
    server_name: str = AGENT_NAME


class PodTarget(msgspec.Struct, frozen=True, kw_only=True):
    """Selector of pods, and the API in them."""

    labels: Mapping[str, str]
    """A pod must have all of them; without labels no pod is selected."""
    kind: DataplaneKind
    port: int
    credentials: Credentials | None = None
    """For the Data Plane API."""


class FoundPod(msgspec.Struct, frozen=True, kw_only=True):
    """A pod that may have an endpoint."""

    name: str
    uid: str
    address: str
    restarts: int = 0
    """Sum over all containers."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Pods with different identities are different endpoints."""
        return self.name, self.uid, self.address

    def url(self, scheme: str, port: int) -> str:
        """Return the URL of *port*."""
        host = f"[{self.address}]" if ":" in self.address else self.address
        return f"{scheme}://{host}:{port}"


def find_pod(resource: Resource) -> FoundPod | None:
    """Return the pod of *resource*; None if it has no address, is terminating, or has ended."""
    metadata: Mapping[str, Any] = resource.get("metadata") or {}
    status: Mapping[str, Any] = resource.get("status") or {}
    address = status.get("podIP")
    if not address or metadata.get("deletionTimestamp") or status.get("phase") in _ENDED:
        return None
    containers = [*(status.get("containerStatuses") or ()), *(status.get("initContainerStatuses") or ())]
    return FoundPod(
        name=metadata["name"],
        uid=metadata.get("uid") or "",
        address=address,
        restarts=sum(int(container.get("restartCount") or 0) for container in containers),
    )


def find_pods(resources: Iterable[Resource]) -> dict[str, FoundPod]:
    """Return the pods among *resources* that may have an endpoint, by name."""
    found = (find_pod(resource) for resource in resources)
    return {pod.name: pod for pod in found if pod is not None}


class _Followed:
    """A pod with a follower."""

    def __init__(self, pod: FoundPod) -> None:
        self.pod = pod
        self.scope = trio.CancelScope()
        self.renewal = Renewal()
        self.endpoint: Endpoint | None = None


class PodEndpoints:
    """Endpoints in the pods of one namespace. A task of the process; each iteration sets its target.

    Connections to pods that stay selected outlive an iteration.
    """

    def __init__(self, client: Client, namespace: str, access: AgentAccess | None, *, report: Report) -> None:
        """Raises TlsFilesError. Agents need *access*. *report* is called with the problems of each pod."""
        self._client = client
        self._namespace = namespace
        self._access = access
        self._context = RenewedContext(access.tls, server=False) if access is not None else None
        self._report = report
        self._target: Latest[PodTarget] = Latest()
        self._followed: dict[str, _Followed] = {}
        self._published: tuple[Endpoint, ...] = ()
        self._publish: Callable[[tuple[Endpoint, ...]], None] = lambda _endpoints: None
        self._cuts = Cuts()

    def aim(self, target: PodTarget) -> None:
        """Follow the pods of *target*; the endpoints of the previous target are removed before this returns."""
        if target != self._target.value:
            self._drop_all()
            self._target.put(target)

    async def run(
        self,
        publish: Callable[[tuple[Endpoint, ...]], None],
        *,
        task_status: trio.TaskStatus[tuple[Endpoint, ...]] = trio.TASK_STATUS_IGNORED,
    ) -> NoReturn:
        """Call *publish* with all endpoints, sorted by name, whenever one appears, is lost, or was renewed.

        started() passes none, because there is no target yet. Runs until
        cancelled.
        """
        self._publish = publish
        async with AsyncExitStack() as stack:
            http = await stack.enter_async_context(open_http(self._context)) if self._context is not None else None
            task_status.started(())
            seen, target = await self._target.wait_newer(0)
            while True:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._follow, target, http)
                    seen, target = await self._target.wait_newer(seen)
                    nursery.cancel_scope.cancel(reason="the target has changed")
        raise AssertionError("the loop ends by an exception")

    async def _follow(self, target: PodTarget, http: httpx.AsyncClient | None) -> None:
        if not target.labels:
            return
        labels = ",".join(f"{key}={value}" for key, value in sorted(target.labels.items()))
        selection = Selection(type=PODS, namespaces=(self._namespace,), label_selector=labels)
        pods: dict[str, Resource] = {}
        async with trio.open_nursery() as nursery, self._client.watch(selection) as events:
            async for event in events:
                _apply(pods, event)
                for pod in self._compare(find_pods(pods.values())):
                    nursery.start_soon(self._follow_pod, pod, target, http)

    def _compare(self, found: Mapping[str, FoundPod]) -> list[_Followed]:
        """Stop the followers of lost and replaced pods; return the pods that need a follower."""
        for name, followed in tuple(self._followed.items()):
            pod = found.get(name)
            if pod is None or pod.identity != followed.pod.identity:
                self._drop(name)
            elif pod.restarts != followed.pod.restarts:
                followed.pod = pod
                followed.renewal.request()
        self._publish_changes()
        fresh = [_Followed(pod) for name, pod in found.items() if name not in self._followed]
        self._followed.update({followed.pod.name: followed for followed in fresh})
        return fresh

    async def _follow_pod(self, followed: _Followed, target: PodTarget, http: httpx.AsyncClient | None) -> None:
        pod = followed.pod

        def publish(endpoint: Endpoint | None) -> None:
            # Not if another pod of the same name has replaced this one.
            if self._followed.get(pod.name) is followed:
                followed.endpoint = endpoint
                self._publish_changes()

        presence = Presence(f"pod {self._namespace}/{pod.name}", publish, self._report)
        with followed.scope:
            try:
                if target.kind is DataplaneKind.DATAPLANEAPI:
                    assert target.credentials is not None, "checked with the configuration"
                    url = pod.url("http", target.port)
                    async with open_api_client(pod.name, url, target.credentials) as api:
                        await follow_api(api, presence, followed.renewal, is_published=False)
                else:
                    assert http is not None
                    assert self._access is not None
                    assert self._context is not None
                    address = AgentAddress(
                        name=pod.name, url=pod.url("https", target.port), server_name=self._access.server_name
                    )
                    link = AgentLink(AgentClient(http, address), self._cuts)
                    await follow_agent(link, self._context, presence, followed.renewal, is_published=False)
            finally:
                presence.clear_problem()

    def _drop(self, name: str) -> None:
        self._followed.pop(name).scope.cancel(reason="the pod is lost or replaced")

    def _drop_all(self) -> None:
        for name in tuple(self._followed):
            self._drop(name)
        self._publish_changes()

    def _publish_changes(self) -> None:
        endpoints = tuple(
            followed.endpoint for _, followed in sorted(self._followed.items()) if followed.endpoint is not None
        )
        if not _are_same(endpoints, self._published):
            self._published = endpoints
            self._publish(endpoints)


def _apply(pods: dict[str, Resource], event: WatchEvent) -> None:
    match event:
        case Listed(objects):
            pods.clear()
            pods.update({resource["metadata"]["name"]: resource for resource in objects})
        case Upserted(resource):
            pods[resource["metadata"]["name"]] = resource
        case Deleted(resource):
            pods.pop(resource["metadata"]["name"], None)


def _are_same(one: tuple[Endpoint, ...], other: tuple[Endpoint, ...]) -> bool:
    return len(one) == len(other) and all(left is right for left, right in zip(one, other, strict=True))
