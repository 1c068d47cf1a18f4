"""A Kubernetes API server in process, over TLS on the loopback interface, with faults on demand.

`python -m tests.support.api_server.server KUBECONFIG` runs it until its standard input ends; it writes KUBECONFIG, then
its address to standard output. Objects may then be written by the API, or many at once by POST of a list of them to
/_control/objects.
"""

import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import msgspec
import trio
import trustme

from haptic_trio.k8s.resource import Resource, ResourceType
from tests.support.api_server.faults import Faults
from tests.support.api_server.http import Answer, Request, Streamed, serve_connection
from tests.support.api_server.kinds import KindInfo
from tests.support.api_server.kubeconfig import write_kubeconfig
from tests.support.api_server.routes import Routes
from tests.support.api_server.state import State, StatusError
from tests.support.api_server.watch import WatchSet
from tests.support.processes.ports import free_port

TOKEN = "first-token"


class ApiServer:
    """An API server; `run` serves it, and it may be stopped and started again with what it holds."""

    def __init__(self) -> None:
        self.authority = trustme.CA()
        self.state = State()
        self.faults = Faults()
        self.tokens = {TOKEN}
        """Bearer tokens that are accepted; so is any client certificate of `authority`."""
        self.requests: list[str] = []
        """Method and target of every request, in order."""
        self.port = free_port()
        """Kept for it, so that nothing else listens there between `stop` and `start`."""
        self._noted = trio.Event()
        self._watches = WatchSet(self._note)
        self._routes = Routes(self.state, self.faults, self._watches)
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.authority.issue_cert("127.0.0.1", "localhost").configure_cert(self._context)
        self.authority.configure_trust(self._context)
        self._context.verify_mode = ssl.CERT_OPTIONAL
        self._serving = trio.CancelScope()
        self._listening = trio.Event()
        self._resumed = trio.Event()
        self._stopped = False

    @property
    def url(self) -> str:
        """Where it is."""
        return f"https://127.0.0.1:{self.port}"

    @property
    def open_watches(self) -> int:
        """How many watches are open."""
        return len(self._watches)

    @property
    def bookmarks(self) -> int:
        """How many bookmarks were sent."""
        return self._watches.bookmarks

    @property
    def bookmark_interval(self) -> float:
        """Seconds between two bookmarks of a watch."""
        return self._routes.bookmark_interval

    @bookmark_interval.setter
    def bookmark_interval(self, seconds: float) -> None:
        self._routes.bookmark_interval = seconds

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Serve until cancelled; started() when it can be reached."""
        while True:
            listeners = await trio.open_tcp_listeners(self.port, host="127.0.0.1")
            self.port = listeners[0].socket.getsockname()[1]
            secure = [trio.SSLListener(each, self._context, https_compatible=True) for each in listeners]
            with trio.CancelScope() as self._serving:
                self._listening.set()
                task_status.started()
                task_status = trio.TASK_STATUS_IGNORED
                await trio.serve_listeners(partial(serve_connection, handler=self._handle), secure)
            await self._resumed.wait()

    def stop(self) -> None:
        """Close the port and all connections."""
        self._resumed = trio.Event()
        self._listening = trio.Event()
        self._serving.cancel(reason="the server is stopped")

    async def start(self) -> None:
        """Serve again after `stop`, on the same port; returns when it can be reached."""
        self._resumed.set()
        await self._listening.wait()

    def put(self, *resources: Resource) -> None:
        """Create or replace objects as they are, status included."""
        for resource in resources:
            collection = self.state.collection_of(resource)
            namespace = resource["metadata"].get("namespace") or ("default" if collection.info.is_namespaced else "")
            metadata = {**resource["metadata"], **({"namespace": namespace} if namespace else {})}
            self.state.write(collection, {**resource, "metadata": metadata})

    def remove(self, resource: Resource) -> None:
        """Delete an object."""
        collection = self.state.collection_of(resource)
        namespace = resource["metadata"].get("namespace") or ("default" if collection.info.is_namespaced else "")
        self.state.remove(collection, (namespace, resource["metadata"]["name"]))

    def stored(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """Return an object as it is stored; raises `KeyError`."""
        return self.state.collections[resource_type].objects[namespace, name].resource

    def cut_watches(self) -> None:
        """CutError the connections of all watches."""
        for watch in self._watches:
            watch.cut()

    def expire_watches(self) -> None:
        """End all watches by an ERROR event that says 410, and forget what was before."""
        self.state.compact()
        for watch in self._watches:
            watch.cut(StatusError(410, "Expired", "too old resource version"))

    def compact(self) -> None:
        """Forget all changes, and cut all watches: where they were is no longer known."""
        self.state.compact()
        self.cut_watches()

    def drop_kind(self, resource_type: ResourceType) -> KindInfo:
        """Serve a kind no longer; return what brings it back with `serve_kind`."""
        info = self.state.collections[resource_type].info
        self.state.drop(resource_type)
        return info

    def serve_kind(self, info: KindInfo) -> None:
        """Serve a kind."""
        self.state.serve(info)

    def rotate_token(self, token: str) -> None:
        """Accept *token* and no other."""
        self.tokens.clear()
        self.tokens.add(token)

    def rotate_authority(self) -> None:
        """Show a certificate of another authority from now on, and cut all connections."""
        self.authority = trustme.CA()
        self.authority.issue_cert("127.0.0.1", "localhost").configure_cert(self._context)
        self.cut_watches()

    def write_kubeconfig(self, path: Path, **how: str) -> Path:
        """Write a kubeconfig for this server, see `api_server_config`; return *path*."""
        write_kubeconfig(path, self.url, self.authority, **how)
        return path

    async def until(self, claim: Callable[[], bool]) -> None:
        """Return once *claim* holds; looked at after each request, bookmark, and beginning or end of a watch."""
        with trio.fail_after(60):
            while not claim():
                await self._noted.wait()

    def _note(self) -> None:
        self._noted.set()
        self._noted = trio.Event()

    def _check_user(self, request: Request) -> None:
        shown = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not request.user and shown not in self.tokens:
            raise StatusError(401, "Unauthorized", "Unauthorized")

    async def _handle(self, request: Request) -> Answer | Streamed:
        query = "&".join(f"{key}={value}" for key, value in request.query.items())
        self.requests.append(f"{request.method} {request.path}{'?' if query else ''}{query}")
        self._note()
        try:
            self._check_user(request)
            if request.path == "/_control/objects":
                self.put(*msgspec.json.decode(request.body))
                return Answer(body=b"{}")
            return await self._routes.answer(request)
        except StatusError as failure:
            headers = {"retry-after": str(failure.retry_after)} if failure.retry_after is not None else {}
            return Answer(status=failure.code, body=msgspec.json.encode(failure.status()), headers=headers)


@asynccontextmanager
async def serving(*resources: Resource) -> AsyncIterator[ApiServer]:
    """Run a server that holds *resources*."""
    server = ApiServer()
    server.put(*resources)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.run)
        yield server
        nursery.cancel_scope.cancel(reason="the test is over")


@asynccontextmanager
async def serving_beside(kubeconfig: Path) -> AsyncIterator[None]:
    """Run a server in a process of its own, which has written *kubeconfig* when the block begins."""
    command = [sys.executable, "-m", "tests.support.api_server.server", str(kubeconfig)]
    root = Path(__file__).parents[3]
    async with trio.open_nursery() as nursery:
        process: trio.Process = await nursery.start(
            partial(trio.run_process, command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root, check=False)
        )
        assert process.stdout is not None
        with trio.fail_after(60):
            if not await process.stdout.receive_some():
                raise RuntimeError("the API server did not start")
        yield
        nursery.cancel_scope.cancel(reason="the server is no longer needed")


async def _main(kubeconfig: Path) -> None:
    async with trio.open_nursery() as nursery:
        server = ApiServer()
        await nursery.start(server.run)
        server.write_kubeconfig(kubeconfig)
        print(server.url, flush=True)  # noqa: T201  the sign that it is ready
        async with trio.lowlevel.FdStream(sys.stdin.fileno()) as stdin:
            async for _data in stdin:
                pass
        nursery.cancel_scope.cancel(reason="the one who has started it is gone")


def objects_body(resources: Iterable[Resource]) -> bytes:
    """Return the body of a POST to /_control/objects."""
    return msgspec.json.encode(list(resources))


if __name__ == "__main__":
    trio.run(_main, Path(sys.argv[1]))
