"""One new host after another, each with all that belongs to it, under traffic that must not notice."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import trio
import trustme

from haptic_trio.dataplane.local.master import MasterClient
from haptic_trio.dataplane.local.process import read_record
from tests.features.harness import Site, ingress, service
from tests.support.components.agents import until
from tests.support.kubernetes import tls_secret
from tests.support.scenarios.crash_rig import Instance
from tests.support.scenarios.witness import ask
from tests.support.traffic.servers import dns_names

STABLE: Final = "stable.localhost"
OBSERVE_INTERVAL: Final = 0.005
CLIENT_INTERVAL: Final = 0.005
CHANGE_LIMIT: Final = 15.0
"""Seconds until a change must have reached traffic."""


class Figures(msgspec.Struct):
    """What the changes took."""

    latencies: list[float] = msgspec.field(default_factory=list)
    """Seconds from the file to a right answer over TLS with the right certificate, one for each change."""
    seconds: float = 0.0
    memory: dict[str, tuple[int, int]] = msgspec.field(default_factory=dict)
    """Resident KiB before and after, by process."""

    def report(self) -> str:
        """Say it in a line."""
        ordered = sorted(self.latencies)
        count = len(ordered)
        memory = ", ".join(f"{name} {before} to {after} KiB" for name, (before, after) in self.memory.items())
        return (
            f"{count} changes in {self.seconds:.1f} s; to traffic in {1000 * ordered[count // 2]:.0f} ms (p50),"
            f" {1000 * ordered[min(count - 1, count * 99 // 100)]:.0f} ms (p99), {1000 * ordered[-1]:.0f} ms (longest);"
            f" resident: {memory}"
        )


class Newcomer(msgspec.Struct, frozen=True):
    """A host that is new, with a certificate of its own."""

    name: str
    chain: bytes
    key: bytes

    @property
    def host(self) -> str:
        """Its host name."""
        return f"{self.name}.localhost"

    def objects(self, port: int) -> list[dict[str, Any]]:
        """Return Service, endpoints, Secret and Ingress."""
        # The oldest certificate is what clients get that name no host that is known.
        age = 1 if self.host == STABLE else 2
        rule = ingress(self.name, self.host, self.name)
        rule["spec"]["tls"] = [{"hosts": [self.host], "secretName": f"{self.name}-tls"}]
        return [*service(self.name, port), tls_secret(f"{self.name}-tls", self.chain, self.key, age=age), rule]


def make_newcomers(count: int) -> list[Newcomer]:
    """Return the stable host, and *count* new ones."""
    authority = trustme.CA()
    found = []
    for name in (STABLE.partition(".")[0], *(f"new{number}" for number in range(count))):
        issued = authority.issue_cert(f"{name}.localhost")
        found.append(Newcomer(name, issued.cert_chain_pems[0].bytes(), issued.private_key_pem.bytes()))
    return found


class Clients:
    """Clients of the stable host: on new connections, and on one that is kept."""

    def __init__(self, ports: dict[bool, int]) -> None:
        self.answered = 0
        self.failures: list[str] = []
        self.kept_answered = 0
        self.kept_retried = 0
        """Requests on the kept connection that met its end, and were right on the next one."""
        self._open = {tls: partial(trio.open_tcp_stream, "127.0.0.1", port) for tls, port in ports.items()}

    async def run(self, *, tls: bool) -> None:
        """Send requests, each on a connection of its own, until cancelled."""
        while True:
            try:
                answer = await ask(self._open[tls], STABLE, tls=tls)
            except (OSError, trio.BrokenResourceError) as exc:
                self.failures.append(repr(exc))
            else:
                self.answered += answer.status == 200
                if answer.status != 200:
                    self.failures.append(f"{answer.status} {answer.body[:60]}")
            await trio.sleep(CLIENT_INTERVAL)

    async def run_kept(self) -> None:
        """Send requests over one connection for as long as it lasts, and then over the next, until cancelled."""
        while True:
            retried = False
            async with await self._open[False]() as stream:
                while await self._ask_kept(stream):
                    self.kept_answered += 1
                    retried = True
                    await trio.sleep(CLIENT_INTERVAL)
            if retried:
                self.kept_retried += 1
            else:
                self.failures.append("a connection that was to be kept has no answer at all")

    async def _ask_kept(self, stream: trio.SocketStream) -> bool:
        answer = b""
        try:
            await stream.send_all(f"GET / HTTP/1.1\r\nHost: {STABLE}\r\n\r\n".encode())
            while not answer.endswith(b"\r\n\r\nhere"):
                chunk = await stream.receive_some()
                if not chunk:
                    break
                answer += chunk
        except trio.BrokenResourceError:
            return False
        if answer and not answer.startswith(b"HTTP/1.1 200"):
            self.failures.append(answer[:80].decode(errors="replace"))
        # After `Connection: close` the next request would find no server.
        return answer.endswith(b"here")


async def add_one_after_another(
    site: Site, newcomers: Sequence[Newcomer], port: int, https: int, *, figures: Figures
) -> None:
    """Add each of *newcomers* when the one before is reached; *port* is that of their server."""
    began = trio.current_time()
    for one in newcomers:
        written = trio.current_time()
        site.write(one.name, *one.objects(port))
        with trio.fail_after(CHANGE_LIMIT):
            await wait_served(one, https)
        figures.latencies.append(trio.current_time() - written)
    figures.seconds = trio.current_time() - began


async def wait_served(newcomer: Newcomer, https: int) -> None:
    """Return when *newcomer* is answered over TLS, with its own certificate."""
    connect = partial(trio.open_tcp_stream, "127.0.0.1", https)
    while True:
        try:
            answer = await ask(connect, newcomer.host, tls=True, server_name=newcomer.host)
        except (OSError, trio.BrokenResourceError):
            # Not listening yet.
            pass
        else:
            if (answer.status, answer.body) == (200, "here") and dns_names(answer.certificate) == {newcomer.host}:
                return
        await trio.sleep(OBSERVE_INTERVAL)


async def count_reloads(instance: Instance) -> int:
    """Return how often the HAProxy of *instance* was reloaded, as it counts it itself."""
    record = read_record(instance.directory / "process.json")
    assert record is not None
    master = MasterClient(Path(record.sockets) / "master.sock", endpoint="local")
    counts: list[int] = []

    async def ask() -> bool:
        counts.append((await master.fetch_state()).reloads)
        return True

    # Just started, a worker serves already while its master is not to be spoken to yet.
    with trio.fail_after(5):
        await until(ask)
    return counts[0]


def resident(pid: int) -> int:
    """Return the KiB of memory that the process *pid* has in use."""
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
