"""The life of one Pod on a node, from its address to its end."""

from collections.abc import Mapping, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.api import RETRY_INTERVAL, STRATEGIC, Api, ApiError
from tests.cluster.control_plane.processes import SECURE_PORT
from tests.cluster.node.container import Container, ImageMissingError, PodNetwork
from tests.cluster.node.environment import SourceMissingError, Sources, build_environment, fill_in
from tests.cluster.node.images import Images, command_of, search_path
from tests.cluster.node.namespaces import NetworkNamespace
from tests.cluster.node.sandbox import GATEWAY, Addresses, Launch, Mount, connect_pod
from tests.cluster.node.status import build_status, timestamp
from tests.cluster.node.volumes import files_of_volume, needed_tokens, write_files

DEFAULT_GRACE: Final = 30.0
TOKEN_SECONDS: Final = 3607
TOKEN_RENEWAL: Final = 0.8
"""The part of a token's life after which it is replaced."""


class Node(msgspec.Struct, frozen=True):
    """What all Pods of the kubelet share."""

    api: Api
    probes: httpx.AsyncClient
    sources: Sources
    images: Images
    addresses: Addresses
    filesystems: Sequence[str]
    data: Path
    """Where volumes and the containers' own files are."""
    logs: Path


class PodRunner:
    """Runs a Pod that is bound to our node."""

    def __init__(self, pod: Resource, node: Node) -> None:
        self.pod = pod
        """The newest version that the API server reported."""
        self.containers: dict[str, Container] = {}
        metadata = pod["metadata"]
        self._path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
        self._uid: str = metadata["uid"]
        self._node = node
        self._address = ""
        self._volumes = node.data / self._uid / "volumes"
        self._tokens: dict[tuple[str, str], tuple[str, float]] = {}
        self._ending = trio.Event()
        self._grace = DEFAULT_GRACE
        self._changed = trio.Event()
        self._sources_changed = trio.Event()
        self._init: list[Container] = []
        self._main: list[Container] = []

    def end(self, grace: float) -> None:
        """Let the Pod end; containers get *grace* seconds. Asked again, the first word holds."""
        if not self._ending.is_set():
            self._grace = grace
            self._ending.set()

    def refresh(self) -> None:
        """Say that a Secret or ConfigMap of the Pod's namespace changed."""
        self._sources_changed.set()

    async def run(self) -> None:
        """Run the Pod until it was asked to end and has ended; then delete it at the API server."""
        addresses, host_network = self._node.addresses, self.pod["spec"].get("hostNetwork", False)
        with NetworkNamespace.create() as namespace:
            address = GATEWAY if host_network else addresses.take()
            try:
                if not host_network:
                    connect_pod(namespace, address)
                await self._run_in(None if host_network else namespace.descriptor, address)
            finally:
                if not host_network:
                    addresses.give_back(address)
        await self._forget()

    async def _run_in(self, namespace: int | None, address: IPv4Address) -> None:
        self._address = str(address)
        metadata = self.pod["metadata"]
        logs = self._node.logs / f"{metadata['namespace']}_{metadata['name']}_{self._uid[:8]}"
        logs.mkdir(parents=True)
        network = PodNetwork(self._address, namespace, self._node.data / self._uid / "layers", logs, self._node.probes)
        self._init = [self._make(one, network, init=True) for one in self.pod["spec"].get("initContainers") or ()]
        self._main = [self._make(one, network) for one in self.pod["spec"]["containers"]]
        self.containers = {one.state.name: one for one in (*self._init, *self._main)}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._report)
            async with trio.open_nursery() as work:
                work.start_soon(self._run_containers, work)
                await self._ending.wait()
                await self._stop_containers(work.cancel_scope)
            nursery.cancel_scope.cancel(reason="the pod ended")

    def _make(self, spec: Mapping[str, Any], network: PodNetwork, *, init: bool = False) -> Container:
        sidecar = init and spec.get("restartPolicy") == "Always"
        policy = self.pod["spec"].get("restartPolicy", "Always")
        if init and not sidecar:
            policy = "OnFailure" if policy == "Always" else policy
        return Container(
            spec, network, self._prepare, self._note, restart_policy="Always" if sidecar else policy, sidecar=sidecar
        )

    async def _run_containers(self, nursery: trio.Nursery) -> None:
        await self._fill_volumes()
        nursery.start_soon(self._keep_volumes)
        for container in self._init:
            if self._ending.is_set():
                return
            nursery.start_soon(container.run)
            await (container.wait_started() if container.state.sidecar else container.done.wait())
            if not container.state.sidecar and (container.state.ended is None or container.state.ended.code != 0):
                return
        if not self._ending.is_set():
            for container in self._main:
                nursery.start_soon(container.run)

    async def _stop_containers(self, scope: trio.CancelScope) -> None:
        deadline = trio.current_time() + self._grace
        sidecars = [one for one in self._init if one.state.sidecar]
        others = [one for one in (*self._init, *self._main) if not one.state.sidecar]
        for group in (others, *([one] for one in reversed(sidecars))):
            async with trio.open_nursery() as nursery:
                for container in group:
                    if container.begun:
                        nursery.start_soon(container.stop, deadline)
        scope.cancel(reason="the pod ends")

    def _prepare(self, spec: Mapping[str, Any]) -> Launch:
        program = self._node.images.find(spec["image"])
        if program is None:
            raise ImageMissingError(f"no program stands for {spec['image']}")
        host = {"KUBERNETES_SERVICE_HOST": str(GATEWAY), "KUBERNETES_SERVICE_PORT": str(SECURE_PORT)}
        base = {"PATH": search_path(program), "HOME": "/root", **host, **program.environment}
        metadata = self.pod["metadata"]
        environment = build_environment(self._with_address(), spec, base, self._node.sources)
        return Launch(
            argv=[fill_in(text, environment) for text in command_of(spec, program)],
            environment=environment,
            mounts=[self._mount(one) for one in spec.get("volumeMounts") or ()],
            filesystems=self._node.filesystems,
            hostname=metadata["name"][:63],
            directory=spec.get("workingDir", "/"),
            read_only=(spec.get("securityContext") or {}).get("readOnlyRootFilesystem", False),
        )

    def _with_address(self) -> Resource:
        return {**self.pod, "status": {"podIP": self._address, "hostIP": str(GATEWAY)}}

    def _mount(self, mount: Mapping[str, Any]) -> Mount:
        volume = next(one for one in self.pod["spec"]["volumes"] if one["name"] == mount["name"])
        source = self._volumes / mount["name"]
        if path := mount.get("subPath"):
            source = source / path
            if "emptyDir" in volume:
                source.mkdir(parents=True, exist_ok=True)
            elif not source.exists():
                raise SourceMissingError(f"volume {mount['name']} has no {path}")
            # A kubelet mounts the file that is there now: it does not follow later changes.
            source = source.resolve()
        return Mount(source, mount["mountPath"], mount.get("readOnly", False) or "emptyDir" not in volume)

    async def _fill_volumes(self) -> None:
        while not self._ending.is_set():
            try:
                await self._write_volumes()
            except SourceMissingError as exc:
                for container in (*self._init, *self._main):
                    container.state.waiting = ("ContainerCreating", str(exc))
                self._note()
                await self._wait_sources(RETRY_INTERVAL)
            except (ApiError, httpx.TransportError):
                await trio.sleep(RETRY_INTERVAL)
            else:
                return

    async def _keep_volumes(self) -> None:
        while True:
            renewals = [at for _, at in self._tokens.values()]
            await self._wait_sources(min(renewals, default=trio.current_time() + TOKEN_SECONDS) - trio.current_time())
            try:
                await self._write_volumes()
            except (SourceMissingError, ApiError, httpx.TransportError):
                # What was mounted stays, as with a kubelet; the next change or attempt may succeed.
                await trio.sleep(RETRY_INTERVAL)

    async def _wait_sources(self, seconds: float) -> None:
        with trio.move_on_after(max(seconds, 0)):
            await self._sources_changed.wait()
        self._sources_changed = trio.Event()

    async def _write_volumes(self) -> None:
        for volume in self.pod["spec"].get("volumes") or ():
            tokens = {one["path"]: await self._token(volume["name"], one) for one in needed_tokens(volume)}
            files = files_of_volume(volume, self._with_address(), self._node.sources, tokens)
            directory = self._volumes / volume["name"]
            directory.mkdir(parents=True, exist_ok=True)
            if files is not None:
                write_files(directory, files)

    async def _token(self, volume: str, projection: Mapping[str, Any]) -> str:
        token, renewal = self._tokens.get((volume, projection["path"]), ("", 0.0))
        if trio.current_time() < renewal:
            return token
        metadata, seconds = self.pod["metadata"], projection.get("expirationSeconds", TOKEN_SECONDS)
        account = self.pod["spec"].get("serviceAccountName", "default")
        bound = {"apiVersion": "v1", "kind": "Pod", "name": metadata["name"], "uid": self._uid}
        spec: Resource = {"expirationSeconds": seconds, "boundObjectRef": bound, "audiences": []}
        if audience := projection.get("audience"):
            spec["audiences"] = [audience]
        path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        token = str((await self._node.api.create(path, request))["status"]["token"])
        self._tokens[volume, projection["path"]] = (token, trio.current_time() + seconds * TOKEN_RENEWAL)
        return token

    def _note(self) -> None:
        self._changed.set()

    async def _report(self) -> None:
        written: Resource | None = None
        while True:
            status = build_status(
                self.pod,
                address=self._address,
                host=str(GATEWAY),
                init=[one.state for one in self._init],
                main=[one.state for one in self._main],
                now=timestamp(),
            )
            if status != written and await self._write_status(status):
                written = status
            await self._changed.wait()
            self._changed = trio.Event()

    async def _write_status(self, status: Resource) -> bool:
        change = {"metadata": {"uid": self._uid}, "status": status}
        try:
            self.pod = await self._node.api.patch(f"{self._path}/status", change, STRATEGIC)
        except (ApiError, httpx.TransportError) as exc:
            # 404, 409: the Pod is gone. An API server that starts answers others before it can decide.
            if isinstance(exc, ApiError) and exc.status in {404, 409}:
                return True
        else:
            return True
        await trio.sleep(RETRY_INTERVAL)
        self._note()
        return False

    async def _forget(self) -> None:
        while True:
            try:
                await self._node.api.delete(self._path, grace=0, uid=self._uid)
            except (httpx.TransportError, ApiError):
                await trio.sleep(RETRY_INTERVAL)
            else:
                return
