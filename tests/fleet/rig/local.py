"""A fleet of real HAProxy processes, and clients that notice when it fails them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import msgspec
import trio

from haptic_trio.channels import Latest
from haptic_trio.dataplane.endpoint import Endpoint, PortsUnavailableError
from haptic_trio.dataplane.local.supervisor import OnExit
from haptic_trio.fleet.model import EventType, GroupKey, GroupSpec, InstanceRecord, InstanceState, ReconcileEvent
from haptic_trio.fleet.providers.local import LocalProvider
from haptic_trio.fleet.reconciler import FleetReconciler
from haptic_trio.fleet.store import FileStore
from haptic_trio.haproxy.model import Generation
from tests.support.processes.haproxy import BASE, build_generation

GROUP = GroupKey("local")


@dataclass
class LocalFleet:
    """A running reconciler on a running provider."""

    reconciler: FleetReconciler
    provider: LocalProvider
    endpoints: Latest[tuple[Endpoint, ...]]
    specs: dict[GroupKey, GroupSpec]
    generations: list[Generation]
    drains: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    unbound: list[PortsUnavailableError] = field(default_factory=list)

    @property
    def records(self) -> tuple[InstanceRecord, ...]:
        return tuple(record for group in self.reconciler.snapshot().groups for record in group.records)

    @property
    def ready(self) -> list[str]:
        return [record.id for record in self.records if record.state is InstanceState.READY]

    def change(self, **changes: object) -> None:
        """Have another specification from now on."""
        self.specs[GROUP] = msgspec.structs.replace(self.specs[GROUP], **changes)
        self.reconciler.enqueue(ReconcileEvent(type=EventType.GROUP_CHANGED, group=GROUP.group))

    async def wait(self, is_so: Callable[[], bool], *, within: float = 20.0) -> None:
        """Return once *is_so*."""
        with trio.move_on_after(within):
            # It waits for other processes.
            while not is_so():  # noqa: ASYNC110
                await trio.sleep(0.02)
            return
        raise AssertionError(f"it did not come to pass: {self.records} {self.errors}")

    async def wait_settled(self) -> list[str]:
        """Return the instances once exactly as many as wanted are ready and no other is there."""
        await self.wait(lambda: len(self.ready) == len(self.records) == self.specs[GROUP].size)
        return self.ready


@asynccontextmanager
async def running_fleet(
    root: Path, binary: Path, generation: Generation, *, on_exit: OnExit = "stop", **settings: object
) -> AsyncIterator[LocalFleet]:
    """Run a fleet in the state directory *root* until the block ends."""
    generations = [generation]
    unbound: list[PortsUnavailableError] = []
    endpoints: Latest[tuple[Endpoint, ...]] = Latest()
    specs = {
        GROUP: msgspec.structs.replace(
            GroupSpec(key=GROUP, size=1, health_interval=0.5, missed=2, drain_timeout=5.0, config_hash="1"), **settings
        )
    }
    provider = LocalProvider(
        root,
        binary,
        find_newest=lambda: generations[-1],
        report_ports=unbound.append,
        endpoints=endpoints,
        unmarked=GROUP,
        on_exit=on_exit,
        grace=0.2,
    )
    drains: list[str] = []
    errors: list[str] = []
    reconciler = FleetReconciler(
        provider=provider,
        store=FileStore(root / "fleet"),
        groups=lambda: specs,
        is_leader=lambda: True,
        notify_drain=lambda name, _group, _reason, _began, _ends: drains.append(name),
        notify_error=lambda _group, _name, message: errors.append(message),
    )
    async with trio.open_nursery() as nursery:
        await nursery.start(provider.run)
        await nursery.start(reconciler.run)
        yield LocalFleet(reconciler, provider, endpoints, specs, generations, drains, errors, unbound=unbound)
        nursery.cancel_scope.cancel()


@dataclass
class Clients:
    """What clients that open one connection after the other have met."""

    answered: int = 0
    failed: list[str] = field(default_factory=list)

    async def ask_on(self, port: int, pause: float) -> None:
        while True:
            try:
                async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
                    await stream.send_all(b"GET / HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
                    answer = b"".join([chunk async for chunk in stream])
                if answer.startswith(b"HTTP/1.1 200 "):
                    self.answered += 1
                else:
                    self.failed.append(repr(answer[:80]))
            except (OSError, trio.BrokenResourceError) as exc:
                self.failed.append(repr(exc.__cause__ or exc))
            await trio.sleep(pause)


@asynccontextmanager
async def clients_of(port: int, *, count: int = 6, pause: float = 0.01) -> AsyncIterator[Clients]:
    """Have *count* clients open new connections to *port* for as long as the block lasts."""
    clients = Clients()
    async with trio.open_nursery() as nursery:
        for _ in range(count):
            nursery.start_soon(partial(clients.ask_on, port, pause))
        yield clients
        nursery.cancel_scope.cancel()


class SlowBackend:
    """A server of slow answers, and how many it has begun."""

    def __init__(self, port: int) -> None:
        self.port = port
        self._begun = 0
        self._changed = trio.Event()

    def note(self) -> None:
        """Count one more answer that has begun."""
        self._begun += 1
        self._changed.set()
        self._changed = trio.Event()

    async def asked(self, number: int) -> None:
        """Return once *number* answers have begun."""
        with trio.fail_after(20):
            while self._begun < number:
                await self._changed.wait()


@asynccontextmanager
async def slow_backend(chunks: int, interval: float) -> AsyncIterator[SlowBackend]:
    """Serve a body of *chunks* bytes, one each *interval* seconds, on a port of the loopback interface."""

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            await stream.receive_some()
            try:
                await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % chunks)
                backend.note()
                for _ in range(chunks):
                    await stream.send_all(b"x")
                    await trio.sleep(interval)
            except trio.BrokenResourceError:
                # HAProxy was ended meanwhile.
                return

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        backend = SlowBackend(listeners[0].socket.getsockname()[1])
        yield backend
        nursery.cancel_scope.cancel()


def quick_and_slow(port: int, slow_port: int) -> Generation:
    """Return a generation that answers itself, and leaves `/slow` to a server."""
    return build_generation(
        f"{BASE}\nfrontend web\n    bind 127.0.0.1:{port}\n    use_backend slow if {{ path /slow }}\n"
        '    http-request return status 200 content-type text/plain string "quick" unless { path /slow }\n'
        f"\nbackend slow\n    server one 127.0.0.1:{slow_port}\n"
    )


async def download(port: int) -> bytes:
    """Return the answer for `/slow`, as much of it as came."""
    answer = bytearray()
    async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
        await stream.send_all(b"GET /slow HTTP/1.1\r\nHost: example.org\r\nConnection: close\r\n\r\n")
        try:
            while chunk := await stream.receive_some():
                answer += chunk
        except trio.BrokenResourceError:
            pass
    return bytes(answer)


def listening_sockets(port: int) -> set[str]:
    """Return the inodes of the sockets that listen on *port*."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[3] == "0A" and row[1].endswith(f":{port:04X}")}
