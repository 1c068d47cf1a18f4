"""Real HAProxy for tests: which binary, small configurations, clients and backends, and that nothing is left."""

import contextlib
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.binary import HaproxyNotFoundError, find_haproxy
from haptic_trio.dataplane.endpoint import Endpoint, EndpointError
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.supervisor import OnExit
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, make_file, make_generation

BASE = """\
global
    maxconn 200

defaults
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
"""


@pytest.fixture(scope="session")
def haproxy_binary() -> Path:
    """The HAProxy of PATH or of the wheel; without one the test is skipped, or fails where one is required."""
    try:
        return find_haproxy()
    except HaproxyNotFoundError as exc:
        if os.environ.get("HAPTIC_REQUIRE_HAPROXY") == "1":
            pytest.fail(str(exc))
        pytest.skip(str(exc))


@pytest.fixture
def instance_root(tmp_path: Path) -> Iterator[Path]:
    """A state directory; after the test no HAProxy that was started in it may be alive."""
    yield tmp_path
    left = live_haproxies(tmp_path)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left, "an haproxy was left behind"


def live_haproxies(directory: Path, *, within: float = 10.0) -> list[int]:
    """Return the live processes that name *directory* in their command line, after giving them time to go."""
    deadline = time.monotonic() + within
    while (found := _live_now(directory)) and time.monotonic() < deadline:
        time.sleep(0.02)
    return found


def _live_now(directory: Path) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal() or int(entry.name) == os.getpid():
            continue
        try:
            own = f"{directory}/" in (entry / "cmdline").read_text() and "haproxy" in (entry / "comm").read_text()
            state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if own and state not in "ZX":
            found.append(int(entry.name))
    return found


def build_generation(text: str, files: Iterable[AuxFile] = ()) -> Generation:
    """Return the generation of *text* and *files*."""
    return make_generation(parse_config(text, source="haproxy.cfg"), files)


def answering(port: int, answer: str) -> Generation:
    """Return a generation that answers every request itself."""
    return build_generation(
        f"{BASE}\nfrontend web\n    bind 127.0.0.1:{port}\n"
        f'    http-request return status 200 content-type text/plain string "{answer}"\n'
    )


def mapping(port: int, entries: dict[str, str]) -> Generation:
    """Return a generation that answers with what the map `maps/host.map` holds for the host."""
    return build_generation(
        f"{BASE}\nfrontend web\n    bind 127.0.0.1:{port}\n"
        "    http-request return status 200 content-type text/plain"
        ' lf-string "%[req.hdr(host),map(maps/host.map,none)]"\n',
        [make_file(FileKind.MAP, "maps/host.map", "".join(f"{key} {value}\n" for key, value in entries.items()))],
    )


def forwarding(port: int, server_port: int, *, balance: str = "roundrobin") -> Generation:
    """Return a generation that forwards to a server on the loopback interface."""
    return build_generation(
        f"{BASE}\nfrontend web\n    bind 127.0.0.1:{port}\n    default_backend app\n"
        f"\nbackend app\n    balance {balance}\n    server one 127.0.0.1:{server_port}\n"
    )


async def fetch(port: int, *, host: str = "example.org") -> tuple[int, str]:
    """Send one request on a new connection; return status and body."""
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join([chunk async for chunk in stream])
    head, _, body = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


async def bodies_of(port: int) -> set[str]:
    """Return the bodies of many answers: HAProxy 3.3 and later choose the server of each at random."""
    return {(await fetch(port))[1] for _ in range(64)}


async def wait_for_body(port: int, body: str, *, host: str = "example.org") -> None:
    """Return once a request is answered with *body*."""
    with trio.fail_after(60):
        while True:
            try:
                if await fetch(port, host=host) == (200, body):
                    return
            except (OSError, trio.BrokenResourceError, IndexError):
                pass
            await trio.sleep(0.01)


@asynccontextmanager
async def backend(answer: str) -> AsyncIterator[int]:
    """Serve *answer* to every request on a port of the loopback interface."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            body = answer.encode()
            head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nConnection: close\r\n\r\n" % len(body)
            # HAProxy closes the connection when the client has gone away.
            with contextlib.suppress(trio.BrokenResourceError):
                await stream.send_all(head + body)

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1]
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def instances(
    root: Path, binary: Path, *, count: int = 1, on_exit: OnExit = "stop"
) -> AsyncIterator[tuple[LocalAgent, ...]]:
    """Run `local-1` and so on in the state directory *root*; yields their endpoints, once each is settled."""
    directory = root / "instances"
    agents = tuple(LocalAgent(name, directory / name, binary) for name in (f"local-{n + 1}" for n in range(count)))
    with trio.fail_after(180):
        async with trio.open_nursery() as nursery:
            for agent in agents:
                await nursery.start(partial(agent.run, on_exit=on_exit, grace=0.2))
            yield agents
            nursery.cancel_scope.cancel()


def paths_named(root: Path, name: str) -> list[Path]:
    """Return the paths below *root* that match *name*."""
    return list(root.rglob(name))


async def kill_and_wait_for_next(agent: Endpoint) -> None:
    """Kill the agent's HAProxy and return when another runs."""
    former = (await agent.describe()).pid
    os.kill(former, signal.SIGKILL)
    pid = 0
    while pid in {0, former}:
        await trio.sleep(0.01)
        # A process that is just dying does not answer.
        with contextlib.suppress(EndpointError):
            pid = (await agent.describe()).pid
