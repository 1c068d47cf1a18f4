"""Very many requests to servers that never answer: other namespaces and the control socket keep file descriptors."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import h2.connection
import h2.events
import pytest
import trio
from h2.config import H2Configuration

from haptic_trio.k8s.resource import Resource
from tests.attacks.rig import HOST, NGINX, Rig, rig
from tests.features.harness import Site
from tests.gateway.objects import made
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service
from tests.support.processes.haproxy import haproxy_binary, instance_root
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import PATIENCE

__all__ = ["haproxy_binary", "instance_root"]

pytestmark = pytest.mark.haproxy

DESCRIPTORS: Final = 1_000
CLIENTS: Final = 12
"""For each of the attacker's hosts; with 100 requests each they need more descriptors than there are."""
STREAMS: Final = 100
HOSTS: Final = ("shared.attacker.test", "own.attacker.test", "other.attacker.test", "route.attacker.test")
"""What leads to the silent server: two backends of a namespace, one of another namespace, and a route."""


class Crowd:
    """A connection with as many requests as it can carry."""

    def __init__(self, port: int, host: str) -> None:
        self.rejected = 0
        """Requests that have been answered."""
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._http = h2.connection.H2Connection(H2Configuration(client_side=True))
        self._http.initiate_connection()
        fields = [(":method", "GET"), (":scheme", "http"), (":authority", host), (":path", "/")]
        for number in range(STREAMS):
            self._http.send_headers(2 * number + 1, fields, end_stream=True)
        self._socket.sendall(self._http.data_to_send())

    def read(self) -> None:
        """Count the answers that HAProxy sends before it acknowledges a ping; others may follow."""
        self._http.ping(b"the last")
        acknowledged = False
        while not acknowledged:
            self._socket.sendall(self._http.data_to_send())
            received = self._socket.recv(65_536)
            assert received
            for event in self._http.receive_data(received):
                if isinstance(event, h2.events.ResponseReceived):
                    assert dict(event.headers or [])[b":status"] == b"503"
                    self.rejected += 1
                elif isinstance(event, h2.events.PingAckReceived):
                    acknowledged = True

    async def readable(self) -> None:
        """Wait until HAProxy has sent more than what has been read."""
        await trio.lowlevel.wait_readable(self._socket)

    def close(self) -> None:
        """End the connection, and its requests."""
        self._socket.close()


@contextmanager
def silence() -> Iterator[int]:
    """Listen on a port whose connections the kernel accepts, and nothing ever reads; yields it."""
    with socket.create_server(("127.0.0.1", 0), backlog=4_096) as listener:
        yield listener.getsockname()[1]


def silent(port: int, gateway: int) -> Iterator[Resource]:
    """Yield what the attacker has in two namespaces."""
    for namespace in ("attacker-1", "attacker-2"):
        yield service("mute", namespace=namespace)
        yield endpoint_slice("mute", endpoint("127.0.0.1"), ports=port, namespace=namespace)
    annotated: dict[str, Any] = {"annotations": {f"{NGINX}proxy-connect-timeout": "5"}}
    yield ingress("shared", rule(HOSTS[0], path("/", "mute")), namespace="attacker-1")
    yield ingress("own", rule(HOSTS[1], path("/", "mute")), namespace="attacker-1", **annotated)
    yield ingress("other", rule(HOSTS[2], path("/", "mute")), namespace="attacker-2")
    listeners = [{"name": "http", "port": gateway, "protocol": "HTTP"}]
    spec = {"gatewayClassName": "haptic", "listeners": listeners}
    yield made("Gateway", "own", namespace="attacker-1", spec=spec)
    to = {"backendRefs": [{"name": "mute", "port": 80}]}
    spec = {"parentRefs": [{"name": "own"}], "hostnames": [HOSTS[3]], "rules": [to]}
    yield made("HTTPRoute", "route", namespace="attacker-1", spec=spec)


@pytest.mark.parametrize("limit", ["setting", "system"])
async def test_silent_servers_leave_descriptors_for_other_namespaces(
    instance_root: Path, haproxy_binary: Path, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(instance_root, free_port())
    site.write_class()
    if limit == "system":
        monkeypatch.setattr("haptic_trio.dataplane.binary.most_descriptors", lambda: DESCRIPTORS)
    settings: dict[str, Any] = {"fdHardLimit": DESCRIPTORS} if limit == "setting" else {}
    async with rig(site, haproxy_binary, **settings) as found:
        with silence() as port, ExitStack() as stack:
            found.apply("silent", list(silent(port, found.free)))
            await found.change()
            await _see_routes(found)
            before = await _process(found)
            crowds = [
                Crowd(found.ports["free" if host == HOSTS[3] else "http"], host)
                for host in HOSTS
                for _ in range(CLIENTS)
            ]
            for crowd in crowds:
                stack.callback(crowd.close)

            def waiting() -> int:
                for crowd in crowds:
                    crowd.read()
                return len(HOSTS) * CLIENTS * STREAMS - sum(crowd.rejected for crowd in crowds)

            with trio.fail_after(PATIENCE):
                while waiting() >= DESCRIPTORS / 2:
                    await _first_of(crowd.readable for crowd in crowds)
            # They wait for an answer, more than half of what the servers of all namespaces may take.
            assert waiting() > DESCRIPTORS / 4
            # The control socket, and requests of others on all ports.
            for _ in range(3):
                await found.change()
            for name in ("http", "https", "gateway"):
                assert (await found.ask(HOST, "/login", port=name)).status == 200
            # A new process would have had descriptors for all that.
            assert await _process(found) == before


@pytest.mark.parametrize("kind", ["TCPRoute", "passthrough"])
async def test_a_connection_whose_server_is_haproxy_itself_leaves_connections_for_others(
    instance_root: Path, haproxy_binary: Path, kind: str
) -> None:
    site = Site(instance_root, free_port())
    site.write_class()
    async with rig(site, haproxy_binary, fdHardLimit=DESCRIPTORS, passthroughPort=free_port()) as found:
        name = "free" if kind == "TCPRoute" else "https"
        found.apply("loop", list(looping(kind, found.ports[name])))
        await found.change()
        await found.running.quiet()

        with socket.create_connection(("127.0.0.1", found.ports[name]), PATIENCE) as client:
            client.sendall(_client_hello(HOSTS[0]))
            # The end of the last connection becomes that of all.
            assert await trio.to_thread.run_sync(client.recv, 1) == b""
            await found.change()
            for port in ("http", "https", "gateway"):
                assert (await found.ask(HOST, "/login", port=port)).status == 200


def looping(kind: str, port: int) -> Iterator[Resource]:
    """Yield what leads connections to *port* to the same port."""
    yield service("loop", namespace="attacker-1")
    yield endpoint_slice("loop", endpoint("127.0.0.1"), ports=port, namespace="attacker-1")
    if kind == "passthrough":
        annotations = {"haproxy.org/ssl-passthrough": "true"}
        yield ingress("loop", rule(HOSTS[0], path("/", "loop")), namespace="attacker-1", annotations=annotations)
        return
    spec: dict[str, Any] = {"gatewayClassName": "haptic", "listeners": [{"name": "t", "port": port, "protocol": "TCP"}]}
    yield made("Gateway", "own", namespace="attacker-1", spec=spec)
    spec = {"parentRefs": [{"name": "own"}], "rules": [{"backendRefs": [{"name": "loop", "port": 80}]}]}
    yield made("TCPRoute", "loop", namespace="attacker-1", spec=spec)


def _client_hello(host: str) -> bytes:
    """Return the first message of a TLS client."""
    sent = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname=host).do_handshake()
    return sent.read()


async def _first_of(waits: Iterable[Callable[[], Awaitable[None]]]) -> None:
    """Return when the first of *waits* returns, and cancel the others."""
    async with trio.open_nursery() as nursery:

        async def end_with(wait: Callable[[], Awaitable[None]]) -> None:
            await wait()
            nursery.cancel_scope.cancel()

        for wait in waits:
            nursery.start_soon(end_with, wait)


async def _process(found: Rig) -> list[tuple[int, int]]:
    """Return the pid of each HAProxy, and how often it has been reloaded."""
    return [(info.pid, info.reloads) for info in await found.running.describe()]


async def _see_routes(found: Rig) -> None:
    """Return once every host of the attacker has a backend: its server takes the request, and says nothing."""
    for host in HOSTS:
        port = "free" if host == HOSTS[3] else "http"
        request = f"OPTIONS / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode()
        while await found.send(request, port=port, within=1):
            pass
