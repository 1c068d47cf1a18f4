"""Agent server: HTTPS with client certificates, on Trio."""

import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import trio

from haptic_trio.asgi.server import serve_asgi
from haptic_trio.asgi.wire import Limits
from haptic_trio.dataplane.agent.api import Agent
from haptic_trio.dataplane.agent.blobs import BlobStore
from haptic_trio.dataplane.agent.events import Observer
from haptic_trio.dataplane.agent.limits import Guard
from haptic_trio.dataplane.agent.messages import AgentLimits, Worker
from haptic_trio.dataplane.agent.routes import HEARTBEAT, make_agent_app
from haptic_trio.dataplane.agent.tls import RenewedContext, TlsFiles
from haptic_trio.dataplane.cli_socket import exchange
from haptic_trio.dataplane.endpoint import Endpoint, EndpointError
from haptic_trio.haproxy.runtime.replies import parse_proc

HANDSHAKE_LIMIT: Final = 10.0
"""Seconds that a TLS handshake may take."""
IDLE_LIMIT: Final = 60.0
"""Seconds that an idle connection is kept; clients close theirs earlier."""
BLOBS: Final = "blobs"
WORKERS_LIMIT: Final = 5.0


class AgentOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of the agent server."""

    listen: str
    tls: TlsFiles
    allowed: frozenset[str] = frozenset()
    """Names of clients; empty: every client with a trusted certificate."""
    limits: AgentLimits = AgentLimits()
    heartbeat: float = HEARTBEAT
    """Seconds."""


class ServedAgent(msgspec.Struct, frozen=True):
    """A running agent server."""

    addresses: tuple[str, ...]
    """Such as `https://127.0.0.1:5555`."""
    observer: Observer


async def serve_agent(
    endpoint: Endpoint,
    directory: Path,
    options: AgentOptions,
    *,
    master_socket: Callable[[], Path | None],
    local: bool = True,
    task_status: trio.TaskStatus[ServedAgent] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Serve *endpoint*, which must be running, until cancelled; blobs are kept below *directory*.

    started() once the address is bound and HAProxy was observed.
    *master_socket* returns the path of HAProxy's master socket, or None;
    *local*: HAProxy runs on this machine. Raises TlsFilesError, and OSError
    if the address is in use.
    """
    context = RenewedContext(options.tls, server=True)
    store = BlobStore(directory / BLOBS, limit=options.limits.store_bytes)
    await trio.to_thread.run_sync(store.open)
    observer = Observer(endpoint, boot=secrets.token_hex(8), local=local)
    agent = Agent(
        endpoint,
        store,
        observer,
        limits=options.limits,
        list_workers=partial(list_workers, master_socket, endpoint.name),
    )
    app = Guard(
        make_agent_app(agent, heartbeat=options.heartbeat),
        limits=options.limits,
        allowed=options.allowed,
        trust=context.newest_trust,
    )
    connections = Limits(handshake=HANDSHAKE_LIMIT, idle=IDLE_LIMIT)
    async with trio.open_nursery() as nursery:
        await nursery.start(observer.run)
        addresses: Sequence[str] = await nursery.start(
            partial(serve_asgi, app, options.listen, limits=connections, context=context)
        )
        task_status.started(ServedAgent(tuple(addresses), observer))


async def list_workers(master_socket: Callable[[], Path | None], name: str) -> tuple[Worker, ...]:
    """Return the workers of HAProxy, draining ones included; none if HAProxy does not answer."""
    path = await trio.to_thread.run_sync(master_socket)
    if path is None:
        return ()
    try:
        answer = await exchange(path, "show proc\n", endpoint=name, limit=WORKERS_LIMIT)
    except EndpointError:
        return ()
    return tuple(
        Worker(pid=process.pid, uptime=process.uptime, draining=process.is_old)
        for process in parse_proc(answer)
        if process.kind == "worker"
    )
