"""A running cluster as tests see it."""

import signal
import ssl
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

import httpx
import msgspec
import trio
import yaml

from haptic_trio.k8s.resource import Resource
from tests.cluster.control_plane.api import APPLY, Api, ApiError
from tests.cluster.control_plane.orders import Action, AddImage, Execute, Executed, PartState, Signal
from tests.cluster.control_plane.state import State
from tests.cluster.node.namespaces import NetworkNamespace
from tests.cluster.workloads.network import NetworkTransport

POLL_INTERVAL: Final = 0.03
FIELD_MANAGER: Final = "test"
_T = TypeVar("_T")


async def until(ask: Callable[[], Awaitable[_T]]) -> _T:
    """Ask until the answer is a true one, and return that; the caller limits the time."""
    while True:
        if answer := await ask():
            return answer
        await trio.sleep(POLL_INTERVAL)


class OrderError(Exception):
    """The cluster could not execute an order; the text has the reason."""


class Cluster:
    """One object for everything that a test does with a cluster.

    `client` and `api` speak to the API server as an administrator, from outside the cluster's network.
    """

    def __init__(
        self, state: State, client: httpx.AsyncClient, control: httpx.AsyncClient, network: NetworkNamespace
    ) -> None:
        self.state = state
        self.kubeconfig = state.kubeconfig
        self.client = client
        self.api = Api(client)
        self.network = network
        self._control = control
        self._plurals: dict[tuple[str, str], tuple[str, bool]] = {}

    # Objects

    async def apply(self, manifests: str | Iterable[Resource], namespace: str = "default") -> list[Resource]:
        """Apply YAML documents or objects on the server's side; return what came of them.

        *namespace* is for those that name none.
        """
        objects = yaml.safe_load_all(manifests) if isinstance(manifests, str) else manifests
        applied = []
        for resource in objects:
            if resource:
                path = await self.path_of(resource, namespace)
                applied.append(await self.api.patch(path, resource, APPLY, fieldManager=FIELD_MANAGER, force="true"))
        return applied

    async def delete(self, resource: Resource, namespace: str = "default", *, grace: int | None = None) -> None:
        """Delete *resource*, which may be gone already."""
        await self.api.delete(await self.path_of(resource, namespace), grace=grace)

    async def path_of(self, resource: Resource, namespace: str = "default") -> str:
        """Return the path of *resource*; raises LookupError for a kind that the API server does not have."""
        version, kind = resource["apiVersion"], resource["kind"]
        root = f"/apis/{version}" if "/" in version else f"/api/{version}"
        if (version, kind) not in self._plurals:
            served = (await self.api.get(root)).get("resources", [])
            self._plurals |= {
                (version, one["kind"]): (one["name"], one["namespaced"]) for one in served if "/" not in one["name"]
            }
        if (version, kind) not in self._plurals:
            raise LookupError(f"the API server has no {kind} of {version}")
        plural, namespaced = self._plurals[version, kind]
        metadata = resource["metadata"]
        place = f"/namespaces/{metadata.get('namespace') or namespace}" if namespaced else ""
        return f"{root}{place}/{plural}/{metadata['name']}"

    async def find(self, path: str) -> Resource | None:
        """Return what is at *path*, if anything."""
        try:
            return await self.api.get(path)
        except ApiError as exc:
            if exc.status != 404:
                raise
            return None

    async def wait(self, path: str, claim: Callable[[Resource | None], object]) -> Resource:
        """Wait until *claim* holds of what is at *path*, None while nothing is; return that, or an empty mapping."""
        while True:
            if claim(found := await self.find(path)):
                return found or {}
            await trio.sleep(POLL_INTERVAL)

    async def pods(self, namespace: str, selector: str = "") -> list[Resource]:
        """Return the Pods that *selector* chooses by label, by name."""
        items, _ = await self.api.list(f"/api/v1/namespaces/{namespace}/pods", labelSelector=selector)
        return sorted(items, key=lambda pod: pod["metadata"]["name"])

    async def wait_pods(self, namespace: str, selector: str, count: int) -> list[Resource]:
        """Wait until exactly *count* Pods are chosen, all ready and none going."""
        while True:
            pods = await self.pods(namespace, selector)
            if len(pods) == count and all(is_ready(pod) and "deletionTimestamp" not in pod["metadata"] for pod in pods):
                return pods
            await trio.sleep(POLL_INTERVAL)

    @asynccontextmanager
    async def open_namespace(self) -> AsyncIterator[str]:
        """Create a namespace for a test, which is deleted afterwards; its Pods get no grace then."""
        name = f"test-{uuid.uuid4().hex[:8]}"
        await self.api.create(
            "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
        await self.wait(f"/api/v1/namespaces/{name}/serviceaccounts/default", bool)
        try:
            yield name
        finally:
            with trio.move_on_after(10, shield=True):
                await self.api.delete(f"/api/v1/namespaces/{name}")
                for pod in await self.pods(name):
                    await self.api.delete(f"/api/v1/namespaces/{name}/pods/{pod['metadata']['name']}", grace=1)

    async def token_of(
        self, namespace: str, account: str, *, seconds: int = 3600, bound_to: Resource | None = None
    ) -> str:
        """Return a token of a service account, which ends at the latest with the object *bound_to*."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        request: Resource = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        spec: Resource = {"expirationSeconds": seconds, "audiences": []}
        if bound_to is not None:
            metadata = {key: bound_to["metadata"][key] for key in ("name", "uid")}
            spec["boundObjectRef"] = {"apiVersion": bound_to["apiVersion"], "kind": bound_to["kind"], **metadata}
        answer = await self.api.create(path, {**request, "spec": spec})
        return str(answer["status"]["token"])

    async def logs(self, namespace: str, pod: str, container: str | None = None, **parameters: str | int) -> str:
        """Return what a container wrote, as the API server reports it; nothing while it waits to start."""
        chosen = {} if container is None else {"container": container}
        path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
        response = await self.client.get(path, params={**chosen, **parameters})
        if response.status_code == httpx.codes.BAD_REQUEST:
            # A kubelet answers so for a run that is counted already, and has not started.
            return ""
        if response.is_error:
            raise ApiError(response.status_code, "", response.text)
        return response.text

    # The network

    async def connect(self, host: str, port: int) -> trio.SocketStream:
        """Open a TCP connection from the node to an address of the cluster; raises OSError."""
        return await self.network.open_tcp_stream(host, port)

    def http(self, tls: ssl.SSLContext | None = None, **options: Any) -> httpx.AsyncClient:
        """Return a client whose connections begin at the node; *options* are those of httpx."""
        return httpx.AsyncClient(transport=NetworkTransport(self.network, tls), **options)

    async def run(self, argv: Sequence[str], content: bytes = b"", **environment: str) -> Executed:
        """Run a command of this machine in the cluster's network, with KUBECONFIG set."""
        variables = {"KUBECONFIG": str(self.state.inner_kubeconfig), **environment}
        return await self._order("/execute", Execute(argv=argv, content=content, environment=variables), Executed)

    # Containers

    async def exec_in(
        self, namespace: str, pod: str, argv: Sequence[str], *, container: str | None = None, content: bytes = b""
    ) -> Executed:
        """Run a command in a container: with its files, its network and its environment."""
        order = Execute(argv=argv, namespace=namespace, pod=pod, container=container, content=content)
        return await self._order("/execute", order, Executed)

    async def signal_container(
        self, namespace: str, pod: str, number: signal.Signals, *, container: str | None = None
    ) -> None:
        """Send a signal to the first process of a container: SIGKILL is a crash, SIGSTOP a hang."""
        await self._order("/signal", Signal(namespace=namespace, pod=pod, container=container, number=number), None)

    async def add_image(self, repository: str, *entrypoint: str, environment: Mapping[str, str] | None = None) -> None:
        """Let a program of this machine stand for images whose name ends in *repository*."""
        order = AddImage(repository=repository, entrypoint=entrypoint, environment=environment or {})
        await self._order("/images", order, None)

    # The control plane

    async def control(self, part: str, action: Action) -> None:
        """Start, stop, kill, freeze or thaw `etcd`, `kube-apiserver` or `kube-controller-manager`.

        Returns when a part that was started is ready, and when one that shall end has ended. With a new API server the
        controller manager restarts.
        """
        await self._order(f"/parts/{part}/{action}", None, None)
        if (part, action) == ("kube-apiserver", "start"):
            # It would try again after ever longer pauses, and what it knows would be old for minutes.
            await self._order("/parts/kube-controller-manager/kill", None, None)
            await self._order("/parts/kube-controller-manager/start", None, None)

    async def restart_apiserver(self) -> None:
        """Kill the API server and start it again: every watch ends, and every token is checked again."""
        await self.control("kube-apiserver", "kill")
        await self.control("kube-apiserver", "start")

    async def parts(self) -> dict[str, PartState]:
        """Return the parts, and the memory that each takes."""
        response = await self._control.get("/parts")
        return msgspec.json.decode(response.content, type=dict[str, PartState])

    async def compact(self) -> int:
        """Let etcd forget all versions but the newest, which is returned."""
        return await self._order("/compact", None, int)

    async def _order(self, path: str, order: object, answer: type[_T] | None) -> _T:
        response = await self._control.post(path, content=b"" if order is None else msgspec.json.encode(order))
        if response.is_error:
            raise OrderError(response.text)
        return msgspec.json.decode(response.content, type=answer)


def is_ready(pod: Resource) -> bool:
    """Return whether the Pod's condition says that it is ready."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def connect_cluster(state: State) -> AsyncIterator[Cluster]:
    """Connect to a cluster that runs."""
    control = httpx.AsyncClient(
        transport=httpx.AsyncHTTPTransport(uds=str(state.control)), base_url="http://cluster", timeout=120
    )
    context = state.certificates.client_context()
    client = httpx.AsyncClient(base_url=state.api_url, verify=context, timeout=20, trust_env=False)
    with NetworkNamespace.of_process(state.init_pid) as network:
        async with control, client:
            yield Cluster(state, client, control, network)
