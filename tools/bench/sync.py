"""Benchmark of one deployment: `sync_endpoint` to a local instance, and over HTTPS to an agent in another process.

python -m tools.bench.sync [--versions 2.8,3.4] [--sizes 1000,10000] [--samples 20] [--json FILE]

The configuration has backends of three servers each, a map entry for each backend, and twenty certificates. For every
kind of change, the benchmark measures the time of the plan, the time from the call of `sync_endpoint` until a client
sees the effect and until the call returns, and the bytes that are sent to the agent.
"""

import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from pathlib import Path

import click
import msgspec
import trio
from rich.table import Table

from haptic_trio.chunked import Piece, Shelf
from haptic_trio.dataplane.agent.endpoint import RemoteAgent
from haptic_trio.dataplane.endpoint import Endpoint, EndpointError
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import SectionCache, parse_config
from haptic_trio.haproxy.model import AuxFile, FileKind, Files, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.plan import make_plan
from tests.support.components.agents import Authority, agent_process, remote_agent
from tests.support.processes.haproxy_versions import provide
from tests.support.processes.ports import free_port
from tools.bench.figures.report import make_console
from tools.bench.rig.backends import backend_name, reserve_ports, run_backends
from tools.bench.rig.objects import Place, make_secret
from tools.bench.rig.traffic import LOOPBACK, Accept, Ask, ask, ask_certificate, make_context, wait_for
from tools.bench.steps import announcing

CERTIFICATES = 20
HEAD = """\
global
    maxconn 2000
defaults http
    mode http
    balance roundrobin
    timeout client 5s
    timeout server 5s
    timeout connect 5s
frontend web from http
    bind 127.0.0.1:{http}
    bind 127.0.0.1:{https} ssl crt-list ssl/list.txt strict-sni
    http-response set-header X-Greeting v{version}
    use_backend %[req.hdr(host),map(maps/host.map)]
"""


class Site:
    """A configuration as templates give it: in pieces, of which a change replaces one."""

    def __init__(self, count: int, ports: Sequence[int], http: int, https: int) -> None:
        self.count = count
        self.http, self.https = http, https
        self._ports = ports
        self._cache = SectionCache()
        self._former: Generation | None = None
        self._config = Shelf([(0, self._head(0)), *((n, self._backend(n)) for n in range(1, count + 1))])
        self._map = Shelf((n, self._entry(n)) for n in range(1, count + 1))
        self._list = Shelf((n, Piece(f"{self._path(n)}\n")) for n in range(CERTIFICATES))
        self._files: Shelf[str, AuxFile] = Shelf((self._path(n), self.certificate(n)[0]) for n in range(CERTIFICATES))
        self._context = make_context()

    def generation(self) -> Generation:
        """Return what there is now."""
        known = self._former.files if self._former is not None else {}
        for kind, path, pieces in (
            (FileKind.MAP, "maps/host.map", self._map),
            (FileKind.CRT_LIST, "ssl/list.txt", self._list),
        ):
            made = make_file(kind, path, pieces.paged(), former=known.get(path))
            if made is not known.get(path):
                self._files.put(path, made)
        config = parse_config(self._config.paged(), cache=self._cache)
        self._former = make_generation(config, Files(self._files.paged()), former=self._former)
        return self._former

    def change_server(self, number: int) -> tuple[Ask, Accept]:
        """Move one of three servers; some of the answers come from there."""
        index = 1 + number % (len(self._ports) - 1)
        self._config.put(1, self._backend(1, first=index))
        return partial(ask, self.http, "host-1"), lambda answer: answer.backend == backend_name(index)

    def add_backend(self, number: int) -> tuple[Ask, Accept]:
        """Add a backend with three servers, and the map entry that leads to it."""
        fresh = self.count + 1 + number
        self._config.put(fresh, self._backend(fresh))
        self._map.put(fresh, self._entry(fresh))
        return partial(ask, self.http, f"host-{fresh}"), lambda answer: answer.status == 200

    def change_certificate(self, number: int) -> tuple[Ask, Accept]:
        """Replace a certificate."""
        file, der = self.certificate(number % CERTIFICATES)
        self._files.put(file.path, file)
        host = f"host-{number % CERTIFICATES}.example"
        question = partial(ask_certificate, self.https, host, self._context)
        return question, lambda answer: answer.certificate == der

    def change_frontend(self, number: int) -> tuple[Ask, Accept]:
        """Change what only a reload can."""
        self._config.put(0, self._head(number + 1))
        return partial(ask, self.http, "host-1"), lambda answer: answer.greeting == f"v{number + 1}"

    def certificate(self, number: int) -> tuple[AuxFile, bytes]:
        """Return a fresh certificate as a file, and as DER."""
        secret, der = make_secret(Place(), "any", f"host-{number}.example")
        text = "".join(decode_base64(secret["data"][key]) for key in ("tls.crt", "tls.key"))
        return make_file(FileKind.CERT, self._path(number), text, secret=True), der

    def _head(self, version: int) -> Piece:
        return Piece(HEAD.format(http=self.http, https=self.https, version=version))

    def _backend(self, number: int, *, first: int = 0) -> Piece:
        ports = (self._ports[first], self._ports[0], self._ports[0])
        servers = "".join(f"    server s{n} 127.0.0.1:{port}\n" for n, port in enumerate(ports))
        return Piece(f"backend app-{number} from http\n{servers}\n")

    @staticmethod
    def _entry(number: int) -> Piece:
        return Piece(f"host-{number} app-{number}\n")

    @staticmethod
    def _path(number: int) -> str:
        return f"ssl/{number:02}.pem"


def decode_base64(text: str) -> str:
    """Return what a Secret holds."""
    return msgspec.json.decode(f'"{text}"', type=bytes).decode()


class Row(msgspec.Struct, kw_only=True):
    """One kind of change. Milliseconds, medians."""

    haproxy: str
    endpoint: str
    backends: int
    change: str
    samples: int
    plan_ms: float
    effect_ms: float
    done_ms: float
    reloads: float
    """For each change."""
    bytes_sent: int


CHANGES: dict[str, Callable[[Site, int], tuple[Ask, Accept]]] = {
    "server": Site.change_server,
    "new backend": Site.add_backend,
    "certificate": Site.change_certificate,
    "full reload": Site.change_frontend,
}


@asynccontextmanager
async def open_local(root: Path, binary: Path) -> AsyncIterator[Endpoint]:
    """Run an instance in this process."""
    agent = LocalAgent("local", root / "local", binary)
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(agent.run, on_exit="stop", grace=0.2))
        yield agent
        nursery.cancel_scope.cancel(reason="everything is measured")


@asynccontextmanager
async def open_remote(root: Path, binary: Path) -> AsyncIterator[Endpoint]:
    """Run an agent in a process of its own, and connect to it."""
    authority = Authority(root / "tls")
    async with (
        agent_process(root, binary, authority, free_port()) as process,
        remote_agent(process.url, authority.issue("controller")) as remote,
    ):
        with trio.fail_after(30):
            while True:
                try:
                    await remote.describe()
                except EndpointError:
                    await trio.sleep(0.05)
                else:
                    break
        yield remote


ENDPOINTS: dict[str, Callable[[Path, Path], AbstractAsyncContextManager[Endpoint]]] = {
    "local": open_local,
    "HTTPS agent": open_remote,
}


async def measure(version: str, name: str, size: int, samples: int) -> list[Row]:
    """Measure all changes of *size* backends at an endpoint of a kind."""
    binary = await trio.to_thread.run_sync(provide, version) / "haproxy"
    rows: list[Row] = []
    with (
        tempfile.TemporaryDirectory(prefix="haptic-trio-bench-") as folder,
        reserve_ports(LOOPBACK, 2) as (http, https),
    ):
        root = Path(folder)
        with run_backends(binary, LOOPBACK, root) as ports:
            site = Site(size, ports, http, https)
            async with ENDPOINTS[name](root, binary) as endpoint:
                first = site.generation()
                before = bytes_sent(endpoint)
                began = time.monotonic()
                await sync_endpoint(endpoint, first)
                took = 1000 * (time.monotonic() - began)
                rows.append(
                    Row(
                        haproxy=version, endpoint=name, backends=size, change="first", samples=1, plan_ms=0.0,
                        effect_ms=took, done_ms=took, reloads=0, bytes_sent=bytes_sent(endpoint) - before,
                    )
                )  # fmt: skip
                for change, make in CHANGES.items():
                    rows.append(await measure_change(endpoint, site, change, partial(make, site), samples))
                    rows[-1].haproxy, rows[-1].endpoint = version, name
    return rows


async def measure_change(
    endpoint: Endpoint, site: Site, name: str, make: Callable[[int], tuple[Ask, Accept]], samples: int
) -> Row:
    """Make one kind of change, *samples* times to time the plan and as often to time the deployment."""
    info = await endpoint.describe()
    before = bytes_sent(endpoint)
    plans, effects, dones = [], [], []
    for number in range(2 * samples):
        running = site.generation()
        question, accept = make(number)
        desired = site.generation()
        if number % 2:
            # What a plan computes is remembered: where it is timed the deployment is not.
            began = time.process_time()
            make_plan(running, desired, capabilities=info.capabilities)
            plans.append(time.process_time() - began)
            await sync_endpoint(endpoint, desired)
            continue
        async with trio.open_nursery() as nursery:
            since = time.monotonic()

            async def see(ask: Ask = question, takes: Accept = accept, since: float = since) -> None:
                wait = partial(wait_for, ask, takes, since=since, check=lambda: None)
                effects.append(await trio.to_thread.run_sync(wait))

            nursery.start_soon(see)
            await sync_endpoint(endpoint, desired)
            dones.append(time.monotonic() - since)
        await trio.sleep(0.02)
    sent = (bytes_sent(endpoint) - before) / (2 * samples)
    reloads = (await endpoint.describe()).reloads - info.reloads
    medians = [1000 * statistics.median(values) for values in (plans, effects, dones)]
    return Row(
        haproxy="", endpoint="", backends=site.count, change=name, samples=samples, plan_ms=medians[0],
        effect_ms=medians[1], done_ms=medians[2], reloads=reloads / (2 * samples), bytes_sent=round(sent),
    )  # fmt: skip


def bytes_sent(endpoint: Endpoint) -> int:
    """Return what was sent to *endpoint* so far; nothing is, to a local one."""
    return endpoint.bytes_sent if isinstance(endpoint, RemoteAgent) else 0


@click.command(help=__doc__)
@click.option("--versions", default="2.8,3.4", show_default=True)
@click.option("--sizes", default="1000,10000", show_default=True)
@click.option("--samples", type=click.IntRange(1), default=20, show_default=True)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path))
def main(versions: str, sizes: str, samples: int, json_file: Path | None) -> None:
    rows: list[Row] = []
    with announcing() as say:
        for version in versions.split(","):
            for size in map(int, sizes.split(",")):
                for name in ENDPOINTS:
                    say(f"HAProxy {version}, {name}, {size:,} backends")
                    rows += trio.run(measure, version, name, size, samples)
    table = Table(title="sync_endpoint: medians in ms", title_justify="left")
    for heading in Row.__struct_fields__:
        table.add_column(heading.replace("_", " "), justify="left" if heading in {"endpoint", "change"} else "right")
    for row in rows:
        values = msgspec.structs.astuple(row)
        table.add_row(*(f"{value:,.2f}" if isinstance(value, float) else str(value) for value in values))
    make_console().print(table)
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(rows)) + b"\n")


if __name__ == "__main__":
    main()
