"""The cluster's two doors: orders over a socket of the machine, and logs over TLS as the API server asks for them."""

import os
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any, Final

import httpx
import msgspec
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from tests.cluster.control_plane.certificates import Certificates
from tests.cluster.control_plane.orders import AddImage, Execute, Executed, PartState, Signal
from tests.cluster.control_plane.processes import Part, compact_etcd, wait_apiserver, wait_etcd
from tests.cluster.node.images import Program
from tests.cluster.node.kubelet import KUBELET_PORT, Kubelet, NoContainerError
from tests.cluster.node.sandbox import GATEWAY

FOLLOW_INTERVAL: Final = 0.1
_CHUNK: Final = 1 << 16


class Orders:
    """Executes the orders of a test in the cluster."""

    def __init__(self, parts: Mapping[str, Part], kubelet: Kubelet, client: httpx.AsyncClient) -> None:
        self._parts = parts
        self._kubelet = kubelet
        self._client = client

    def application(self) -> Starlette:
        """Return the application that takes orders."""
        routes: list[tuple[str, Callable[[Request], Awaitable[object]]]] = [
            ("/parts/{name}/{action}", self._control),
            ("/compact", self._compact),
            ("/execute", self._execute),
            ("/signal", self._signal),
            ("/images", self._add_image),
        ]
        posts = [Route(path, _answering(handler), methods=["POST"]) for path, handler in routes]
        return Starlette(routes=[*posts, Route("/parts", _answering(self._describe))])

    async def _control(self, request: Request) -> None:
        name, action = request.path_params["name"], request.path_params["action"]
        part = self._parts[name]
        match action:
            case "start":
                await part.start()
                waits = {"etcd": wait_etcd, "kube-apiserver": wait_apiserver}
                if name in waits:
                    await waits[name](self._client)
            case "stop":
                await part.stop()
            case "kill":
                await part.kill()
            case "freeze" | "thaw":
                part.send_signal(signal.SIGSTOP if action == "freeze" else signal.SIGCONT)
            case _:
                raise LookupError(f"no action {action}")

    async def _describe(self, request: Request) -> dict[str, PartState]:
        pids = {"kubelet": os.getpid(), **{name: part.pid for name, part in self._parts.items()}}
        return {name: PartState(pid is not None, _resident(pid)) for name, pid in pids.items()}

    async def _compact(self, request: Request) -> int:
        return await compact_etcd(self._client)

    async def _execute(self, request: Request) -> Executed:
        order = msgspec.json.decode(await request.body(), type=Execute)
        if order.pod:
            container = self._kubelet.container(order.namespace, order.pod, order.container)
            done = await container.execute(order.argv, order.content)
        else:
            environment = {**os.environ, **order.environment}
            done = await trio.run_process(
                order.argv, stdin=order.content, capture_stdout=True, capture_stderr=True, check=False, env=environment
            )
        return Executed(done.returncode, done.stdout, done.stderr)

    async def _signal(self, request: Request) -> None:
        order = msgspec.json.decode(await request.body(), type=Signal)
        self._kubelet.container(order.namespace, order.pod, order.container).kill(signal.Signals(order.number))

    async def _add_image(self, request: Request) -> None:
        order = msgspec.json.decode(await request.body(), type=AddImage)
        self._kubelet.images.add(order.repository, Program(tuple(order.entrypoint), (), order.environment))


async def serve_orders(
    orders: Orders, socket: Path, *, task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED
) -> None:
    """Take orders at *socket* until cancelled."""
    config = Config()
    config.bind, config.errorlog = [f"unix:{socket}"], None
    await serve(orders.application(), config, mode="asgi", task_status=task_status)  # type: ignore[arg-type]


async def serve_logs(
    kubelet: Kubelet,
    certificates: Certificates,
    *,
    task_status: trio.TaskStatus[list[str]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Answer the API server's requests for the logs of containers until cancelled."""

    async def answer(request: Request) -> Response:
        names, query = request.path_params, request.query_params
        try:
            container = kubelet.container(names["namespace"], names["pod"], names["container"])
        except NoContainerError as exc:
            return PlainTextResponse(str(exc), 404)
        path = container.log_of(previous=query.get("previous") == "true")
        if path is None or not path.exists():
            return PlainTextResponse("there is no such log", 400)
        if query.get("follow") == "true":
            return StreamingResponse(_follow(path, container.done), media_type="text/plain")
        return Response(tail(path.read_bytes(), query.get("tailLines")), media_type="text/plain")

    config = Config()
    config.bind, config.errorlog = [f"{GATEWAY}:{KUBELET_PORT}"], None
    config.certfile = config.keyfile = str(certificates.kubelet)
    config.ca_certs, config.verify_mode = str(certificates.authority), ssl.CERT_REQUIRED
    application = Starlette(routes=[Route("/containerLogs/{namespace}/{pod}/{container}", answer)])
    await serve(application, config, mode="asgi", task_status=task_status)  # type: ignore[arg-type]


def tail(content: bytes, lines: str | None) -> bytes:
    """Return the last *lines* lines of *content*; all without a number."""
    every = content.splitlines(keepends=True)
    return b"".join(every if lines is None else every[max(0, len(every) - int(lines)) :])


async def _follow(path: Path, done: trio.Event) -> AsyncIterator[bytes]:
    offset = 0
    while True:
        ended = done.is_set()
        chunk = await trio.to_thread.run_sync(_read_from, path, offset)
        if chunk:
            offset += len(chunk)
            yield chunk
        elif ended:
            return
        else:
            await trio.sleep(FOLLOW_INTERVAL)


def _read_from(path: Path, offset: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(_CHUNK)


def _answering(handler: Callable[[Request], Awaitable[object]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            result: Any = await handler(request)
        except (LookupError, RuntimeError, NoContainerError, OSError, httpx.HTTPError, msgspec.DecodeError) as exc:
            return PlainTextResponse(f"{type(exc).__name__}: {exc}", 409)
        return Response(msgspec.json.encode(result), media_type="application/json")

    return answer


def _resident(pid: int | None) -> int:
    if pid is None:
        return 0
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS:"))
