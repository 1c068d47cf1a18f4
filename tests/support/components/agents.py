"""Agents for tests: certificates, an agent in process, an agent as a process of its own."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import httpx
import msgspec
import trio
import trustme

from haptic_trio.dataplane.agent.client import AgentAddress, AgentClient, open_http
from haptic_trio.dataplane.agent.endpoint import AgentLink, Cuts, RemoteAgent
from haptic_trio.dataplane.agent.messages import AgentLimits, ErrorAnswer
from haptic_trio.dataplane.agent.server import AgentOptions, ServedAgent, serve_agent
from haptic_trio.dataplane.agent.tls import RenewedContext, TlsFiles
from haptic_trio.dataplane.endpoint import Endpoint, EndpointError
from haptic_trio.dataplane.local.instance import LocalAgent


class Authority:
    """Signs certificates and writes them below *root*."""

    def __init__(self, root: Path, name: str = "ca") -> None:
        self.root = root
        self.root.mkdir(parents=True, exist_ok=True)
        self.path = root / f"{name}.pem"
        self._ca = trustme.CA()
        self._ca.cert_pem.write_to_path(self.path)

    def issue(self, name: str, *, expired: bool = False, trusts: Path | None = None) -> TlsFiles:
        """Write a certificate for *name* (or write it again); it trusts this authority by default."""
        files = TlsFiles(
            certificate=self.root / f"{name}.pem", key=self.root / f"{name}.key", authorities=trusts or self.path
        )
        not_after = datetime.now(UTC) - timedelta(hours=1) if expired else None
        issued = self._ca.issue_cert(name, common_name=name, not_after=not_after)
        issued.private_key_pem.write_to_path(files.key)
        issued.cert_chain_pems[0].write_to_path(files.certificate)
        return files

    def replace(self, path: Path) -> None:
        """Make *path*, a file of authorities, this one's."""
        fresh = path.with_suffix(".new")
        self._ca.cert_pem.write_to_path(fresh)
        fresh.replace(path)


class Serving:
    """An agent that is served, and ways to it."""

    def __init__(self, served: ServedAgent, authority: Authority) -> None:
        self.served = served
        self.authority = authority
        self.url = served.addresses[0]

    @asynccontextmanager
    async def remote(self, files: TlsFiles | None = None) -> AsyncIterator[RemoteAgent]:
        """An endpoint for it, as a controller that has just started has it."""
        async with remote_agent(self.url, files or self.authority.issue("controller")) as remote:
            yield remote

    @asynccontextmanager
    async def http(self, files: TlsFiles | None = None) -> AsyncIterator[httpx.AsyncClient]:
        """Plain requests to it."""
        context = RenewedContext(files or self.authority.issue("controller"), server=False)
        async with httpx.AsyncClient(verify=context, base_url=self.url, trust_env=False, timeout=10) as http:
            yield http


@asynccontextmanager
async def remote_agent(url: str, files: TlsFiles, *, name: str = "edge-1") -> AsyncIterator[RemoteAgent]:
    """An endpoint for the agent at *url*."""
    async with open_http(RenewedContext(files, server=False)) as http:
        yield RemoteAgent(AgentLink(AgentClient(http, AgentAddress(name=name, url=url)), Cuts()))


@asynccontextmanager
async def serving(
    endpoint: Endpoint,
    root: Path,
    *,
    limits: AgentLimits | None = None,
    allowed: Sequence[str] = (),
    heartbeat: float = 15.0,
    listen: str = "127.0.0.1:0",
    authority: Authority | None = None,
    files: TlsFiles | None = None,
) -> AsyncIterator[Serving]:
    """Serve *endpoint*, which runs, with its blobs below *root*."""
    authority = authority or Authority(root / "tls")
    options = AgentOptions(
        listen=listen,
        tls=files or authority.issue("127.0.0.1"),
        allowed=frozenset(allowed),
        limits=limits or AgentLimits(),
        heartbeat=heartbeat,
    )
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            served = await nursery.start(
                partial(serve_agent, endpoint, root, options, master_socket=lambda: None, local=False)
            )
            yield Serving(served, authority)
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def serving_haproxy(
    root: Path, binary: Path, *, limits: AgentLimits | None = None, heartbeat: float = 15.0
) -> AsyncIterator[Serving]:
    """Serve a local instance below *root*; its HAProxy is stopped at the end."""
    agent = LocalAgent("local", root / "agent", binary)
    with trio.fail_after(60):
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(agent.run, on_exit="stop", grace=0.2))
            async with serving(agent, root, limits=limits, heartbeat=heartbeat) as served:
                yield served
            nursery.cancel_scope.cancel()


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Return once *holds* returns True; an endpoint that does not answer is asked again."""
    while True:
        with contextlib.suppress(EndpointError):
            if await holds():
                return
        await trio.sleep(0.02)


def rejected(response: httpx.Response) -> ErrorAnswer:
    """Return the error that *response* is."""
    assert response.status_code >= 400, response.text
    return msgspec.json.decode(response.content, type=ErrorAnswer)


class AgentProcess:
    """`haptic-trio agent` as a process, at a port that stays the same over its lives.

    It runs this checkout, or the package below *source*.
    """

    def __init__(
        self, root: Path, binary: Path, authority: Authority, port: int, *extra: str, source: Path | None = None
    ) -> None:
        root.mkdir(exist_ok=True)
        files = authority.issue("127.0.0.1")
        self.url = f"https://127.0.0.1:{port}"
        self.state = root / f"agent-{port}"
        self._output = root / f"agent-{port}.log"
        self._command = [
            *(sys.executable, "-P", "-m", "haptic_trio", "agent", "--state-dir", str(self.state)),
            *("--listen", f"127.0.0.1:{port}", "--haproxy", str(binary)),
            *("--tls-cert", str(files.certificate), "--tls-key", str(files.key)),
            *("--client-ca", str(files.authorities), *extra),
        ]
        self._environment = {**os.environ, **({"PYTHONPATH": str(source)} if source else {})}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self._output.read_text()

    def start(self) -> None:
        """Start it; it needs a moment until it answers."""
        with self._output.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdout=output, stderr=output, env=self._environment)

    def wait(self, limit: float) -> int:
        """Return how it ended of itself, within *limit* seconds; blocks."""
        assert self._process is not None
        return self._process.wait(limit)

    async def end(self, number: signal.Signals) -> int:
        """Send it a signal and return how it ended."""
        assert self._process is not None
        self._process.send_signal(number)
        return await trio.to_thread.run_sync(partial(self._process.wait, 20))

    async def kill(self) -> None:
        """Kill it; HAProxy goes on."""
        await self.end(signal.SIGKILL)


@asynccontextmanager
async def agent_process(
    root: Path, binary: Path, authority: Authority, port: int, *extra: str, source: Path | None = None
) -> AsyncIterator[AgentProcess]:
    """Run an agent as a process; at the end it and its HAProxy are stopped."""
    process = AgentProcess(root, binary, authority, port, "--on-exit", "stop", *extra, source=source)
    process.start()
    try:
        yield process
    finally:
        with trio.CancelScope(shield=True):
            await process.end(signal.SIGTERM)
