"""A victim under constant requests, whose neighbours are hostile: a real controller with a real HAProxy."""

import json
import os
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import trio
import trustme

from haptic_trio.k8s.resource import Resource
from tests.attacks.inputs.annotation_samples import VENDORS
from tests.bad_inputs.world import LIBRARIES
from tests.features.harness import Running, Site, controller
from tests.gateway.objects import gateway_class, made
from tests.support.components.agents import until
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import Answer, ask, serving

HOST: Final = "shop.victim.test"
WILDCARD: Final = "*.wild.victim.test"
BELOW: Final = "any.wild.victim.test"
"""A host that nobody names."""
VICTIM_AGE: Final = 10
"""Attackers may have objects that are older, and others that are younger."""
LIMIT: Final = 30.0
"""Seconds that a change of the victim may take on a busy machine; on an idle one it takes about a tenth of a second."""
_TARGETS: Final = (("https", "/"), ("http", "/login"), ("gateway", "/"))
"""What the victim's client asks, by port and path."""
NGINX, ORG, JCM = (VENDORS[name]["prefix"] for name in ("nginx", "haproxyOrg", "haproxyIngress"))


class Rig:
    """The running controller, and what attacker and victim have."""

    def __init__(self, site: Site, ports: dict[str, int], servers: dict[str, int]) -> None:
        self.site = site
        self.ports = ports
        self.servers = servers
        self.authority = trustme.CA()
        self.foreign = trustme.CA()
        """The attacker's authority."""
        self.free = ports["free"]
        """A port that a Gateway of the attacker may have."""
        self.taken = 0
        """A port of another process, which counts connections to it."""
        self.seen: list[int] = []
        self.requests: Mapping[str, Any] = {}
        """How those of the victim's client went, once it has ended: see `client.py`."""
        self.changes: list[float] = []
        """Seconds that each change of the victim took."""
        self.running: Running

    @property
    def connections(self) -> int:
        """How many connections the taken port has had."""
        return len(self.seen)

    def certificate(self, *names: str, authority: trustme.CA | None = None) -> tuple[bytes, bytes]:
        """Return a chain and its key; of the victim's authority unless another is given."""
        issued = (authority or self.authority).issue_cert(*names, key_type=trustme.KeyType.ECDSA)
        return issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()

    def victim(self) -> list[Resource]:
        """Return what the victim has."""
        restricted = {f"{NGINX}whitelist-source-range": "10.9.9.9/32"}
        own: dict[str, Any] = {"namespace": "victim", "age": VICTIM_AGE}
        listener = {"name": "http", "port": self.ports["gateway"], "protocol": "HTTP"}
        gateway = {"gatewayClassName": "haptic", "listeners": [listener]}
        route = {
            "parentRefs": [{"name": "gw"}],
            "hostnames": [HOST],
            "rules": [{"backendRefs": [{"name": "web", "port": 80}]}],
        }
        return [
            service("web", namespace="victim"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=self.servers["victim"], namespace="victim"),
            tls_secret("shop", *self.certificate(HOST), namespace="victim", age=VICTIM_AGE),
            ingress(
                "shop",
                rule(HOST, path("/", "web"), path("/login", "web")),
                tls=[{"hosts": [HOST], "secretName": "shop"}],
                **own,
            ),
            ingress("admin", rule(HOST, path("/admin", "web")), annotations=restricted, **own),
            tls_secret("wild", *self.certificate(WILDCARD), namespace="victim", age=VICTIM_AGE),
            ingress("wild", rule(WILDCARD, path("/", "web")), tls=[{"hosts": [WILDCARD], "secretName": "wild"}], **own),
            _aged(made("Gateway", "gw", namespace="victim", spec=gateway)),
            _aged(made("HTTPRoute", "shop", namespace="victim", spec=route)),
        ]

    def attacker(self) -> list[Resource]:
        """Return what the attacker has beside the attacks."""
        return [
            service("web", namespace="attacker"),
            endpoint_slice("web", endpoint("127.0.0.1"), ports=self.servers["attacker"], namespace="attacker"),
        ]

    def apply(self, name: str, objects: Sequence[Resource]) -> None:
        """Write objects, of which none may be there under another name."""
        self.site.write(name, *objects)

    async def change(self) -> None:
        """Have the victim make a change, and note how long it takes to reach its clients."""
        number = len(self.changes)
        host = f"change-{number}.victim.test"
        one = ingress(f"change-{number}", rule(host, path("/", "web")), namespace="victim", age=VICTIM_AGE)
        began = time.monotonic()
        self.apply(f"change-{number}", [one])
        await self.answers("http", host, b"victim\n")
        self.changes.append(time.monotonic() - began)

    async def ask(self, host: str, where: str = "/", *, port: str = "http", **more: Any) -> Answer:
        """Send one GET, over TLS where the port is that of HTTPS."""
        tls = self.trust() if port == "https" else None
        return await trio.to_thread.run_sync(partial(ask, self.ports[port], host, where, tls=tls, **more))

    async def answers(self, port: str, host: str, body: bytes = b"") -> None:
        """Return once *port* answers requests for *host*, with what begins with *body*."""
        with trio.fail_after(LIMIT):
            while True:
                if b"\r\n\r\n" + body in await self.send(f"GET / HTTP/1.0\r\nHost: {host}\r\n\r\n".encode(), port=port):
                    return
                await trio.sleep(0.01)

    async def send(self, request: bytes, *, port: str = "http", within: float = LIMIT) -> bytes:
        """Send *request* as it is, and return all that comes back before the connection ends or *within* seconds."""
        answer = b""
        # HAProxy need not listen, nor hear an attacker out.
        with trio.move_on_after(within), suppress(OSError, trio.BrokenResourceError):
            async with await trio.open_tcp_stream("127.0.0.1", self.ports[port]) as stream:
                await stream.send_all(request)
                async for chunk in stream:
                    answer += chunk
        return answer

    async def count_locations(self) -> int:
        """Return how many hosts redirect; no answer may have a header of data, an address or the environment."""
        found = 0
        for port, count in (("http", 96), ("free", 32)):
            for number in range(count):
                request = f"GET / HTTP/1.0\r\nHost: to-{number}.attacker.test\r\n\r\n"
                head = (await self.send(request.encode(), port=port)).partition(b"\r\n\r\n")[0]
                lines = [line for line in head.split(b"\r\n") if line.lower().startswith(b"location:")]
                assert len(lines) <= 1, head
                assert b"\nx-injected" not in head.lower(), head
                assert b"127.0.0.1" not in head, head
                assert os.environ["HOME"].encode() not in b"".join(lines), head
                found += len(lines)
        return found

    def trust(self) -> ssl.SSLContext:
        """Return a context that takes certificates of the victim's authority alone."""
        context = ssl.create_default_context()
        self.authority.configure_trust(context)
        return context

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[None]:
        """Have the victim's client send requests while the block runs, and note how they went."""
        authority = self.site.state.parent / "authority.pem"
        authority.write_bytes(self.authority.cert_pem.bytes())
        targets = [f"{'https' if port == 'https' else 'http'}:{self.ports[port]}:{where}" for port, where in _TARGETS]
        command = [sys.executable, "-m", "tests.attacks.client", HOST, str(authority), *targets]
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
        )
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            yield
            with trio.fail_after(LIMIT):
                await process.stdin.aclose()
                self.requests = json.loads(b"".join([chunk async for chunk in process.stdout]))
                await process.wait()
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.stdout.aclose()
                await process.wait()

    async def check_controller(self) -> None:
        """See that the controller is ready, at the latest once it has left out a listener that cannot be bound."""
        address, _, port = self.running.serving.addresses[0].rpartition(":")

        async def is_ready() -> bool:
            return (await trio.to_thread.run_sync(partial(ask, int(port), address, "/readyz"))).status == 200

        with trio.fail_after(LIMIT):
            await until(is_ready)

    async def pids(self) -> list[int]:
        """Return the pids of the HAProxy master processes."""
        return [info.pid for info in await self.running.describe()]


def _aged(one: Resource, age: int = VICTIM_AGE) -> Resource:
    one["metadata"]["creationTimestamp"] = f"2026-01-{age:02}T00:00:00Z"
    return one


@contextmanager
def counting() -> Iterator[tuple[int, list[int]]]:
    """Listen on a loopback port; yields it, and a list that grows with each connection."""
    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def count() -> None:
            while True:
                try:
                    server.accept()[0].close()
                except OSError:
                    return
                seen.append(1)

        thread = threading.Thread(target=count)
        thread.start()
        try:
            yield server.getsockname()[1], seen
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


@asynccontextmanager
async def rig(site: Site, binary: Path, pacing: str = "0s", **settings: Any) -> AsyncIterator[Rig]:
    """Run the controller with the victim served and in use; in the end none of its requests may have failed.

    *pacing* is `namespaceReloadInterval`; *settings* are more settings of the libraries.
    """
    ports = {"http": site.port, "https": free_port(), "gateway": free_port(), "free": free_port()}
    context = {"httpPort": site.port, "httpsPort": ports["https"], "bindAddress": "127.0.0.1", "sslRedirect": False}
    context |= settings
    site.write_config(
        templating={"libraries": list(LIBRARIES), "extraContext": context},
        dataplane={"namespaceReloadInterval": pacing},
    )
    with serving("victim", "attacker") as servers, counting() as (taken, seen):
        found = Rig(site, ports, servers)
        found.taken, found.seen = taken, seen
        site.write("gateway-class", gateway_class())
        site.write("victim", *found.victim())
        site.write("attacker", *found.attacker())
        async with controller(site, binary) as found.running:
            await found.running.answers(site, HOST, 200)
            await found.change()
            async with found.in_use():
                yield found
    assert found.requests["failures"] == []
    assert found.requests["requests"] > 0
