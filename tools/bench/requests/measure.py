"""Measurement of requests: CPU time of HAProxy, and latency, case by case and round by round."""

import itertools
import socket
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from haptic_trio.errors import HapticError
from tools.bench.figures.report import percentile
from tools.bench.requests.cases import CASES, FLOOR, FLOOR_CASE, GATEWAY, INGRESS, PLAIN, RequestCase
from tools.bench.requests.sites import FILTERED, SITES, Ports, Site, run_site, write_by_hand, write_rendered
from tools.bench.rig.backends import reserve_ports, run_backends
from tools.bench.rig.objects import host_of
from tools.bench.rig.traffic import LOOPBACK, make_context

CONNECTIONS = 8
"""Of a client that measures CPU time: a request on each before the first response is read."""
ANSWER_LIMIT = 10.0
SIZE_OF_READ = 16_384
SINGLE_SHARE = 4
"""One of so many requests is sent alone, for its latency."""
Say = Callable[[str], None]


class WrongAnswerError(HapticError):
    """A request got another response than its case expects."""


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    haproxy: Path
    hosts: tuple[int, ...] = (1000,)
    rounds: int = 40
    requests: int = 240
    """Requests of each case in each round."""
    memory: bool = True


class RequestFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One case."""

    hosts: int
    name: str
    requests: int
    cpu_us: float
    """CPU time of HAProxy for one request: the median of the rounds."""
    ratio: float
    """To the floor, which is measured right before: the median of the rounds."""
    p99_us: float
    """Latency of a request on an idle connection."""


class MemoryFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What one kind of routes takes."""

    hosts: int
    name: str
    mib_of_1000: float
    """MiB for 1,000 routes, each with a backend and a server."""


def run_requests(options: RequestOptions, say: Say) -> tuple[list[RequestFigures], list[MemoryFigures]]:
    """Measure all cases for each number of hosts; blocks for minutes."""
    figures: list[RequestFigures] = []
    memory: list[MemoryFigures] = []
    for hosts in options.hosts:
        with tempfile.TemporaryDirectory(prefix="haptic-trio-bench-") as name, ExitStack() as stack:
            scratch = Path(name)
            upstream = stack.enter_context(run_backends(options.haproxy, LOOPBACK, scratch))[0]
            sites: dict[str, Site] = {}
            for site in SITES:
                say(f"{hosts:,} hosts: {site} starts")
                sites[site] = stack.enter_context(open_site(options.haproxy, site, scratch / site, hosts, upstream))
            figures += measure_cases(options, hosts, sites, say)
            if options.memory:
                memory += measure_memory(options, hosts, scratch, upstream, say)
    return figures, memory


@contextmanager
def open_site(
    haproxy: Path, site: str, folder: Path, hosts: int, upstream: int, *, is_filtered: bool = False
) -> Iterator[Site]:
    """Run a site for the duration of the block."""
    folder.mkdir()
    with reserve_ports(LOOPBACK, 4) as numbers:
        ports = Ports(*numbers)
        if site in (PLAIN, FLOOR):
            write_by_hand(site, folder, hosts, upstream, ports)
        else:
            write_rendered(site, folder, ports, hosts, upstream, extra=FILTERED if is_filtered else None)
        with run_site(haproxy, folder, ports) as running:
            yield running


class Client:
    """Keep-alive connections to the HAProxy of a case."""

    def __init__(self, case: RequestCase, site: Site) -> None:
        self._case = case
        self._site = site
        self._message = case.message
        self._connections = [self._connect() for _number in range(CONNECTIONS)]
        self._start = f"HTTP/1.1 {case.status} ".encode()

    def _connect(self) -> socket.socket:
        connection = socket.create_connection(
            (LOOPBACK, self._site.https if self._case.is_tls else self._site.http), ANSWER_LIMIT
        )
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._case.is_tls:
            return make_context().wrap_socket(connection, server_hostname=host_of(self._case.slug))
        return connection

    def close(self) -> None:
        """Close all connections."""
        for connection in self._connections:
            connection.close()

    def batch(self, count: int) -> float:
        """Send *count* requests on all connections; return the CPU seconds of HAProxy for one."""
        rounds = max(1, count // CONNECTIONS)
        before = self._site.cpu_ns()
        for _round in range(rounds):
            for connection in self._connections:
                connection.sendall(self._message)
            for connection in self._connections:
                self._read(connection)
        return (self._site.cpu_ns() - before) / (rounds * CONNECTIONS) / 1e9

    def single(self, count: int) -> list[float]:
        """Send *count* requests one after the other; return the seconds of each."""
        connection, found = self._connections[0], []
        for _number in range(max(1, count)):
            since = time.perf_counter()
            connection.sendall(self._message)
            self._read(connection)
            found.append(time.perf_counter() - since)
        return found

    def _read(self, connection: socket.socket) -> None:
        # No response has a body.
        answer = b""
        while not answer.endswith(b"\r\n\r\n"):
            piece = connection.recv(SIZE_OF_READ)
            if not piece:
                break
            answer += piece
        if not answer.startswith(self._start):
            raise WrongAnswerError(f"{self._case.name}: {answer.decode(errors='replace') or 'no response'}")


def measure_cases(options: RequestOptions, hosts: int, sites: dict[str, Site], say: Say) -> list[RequestFigures]:
    """Measure all cases round by round, and the floor right before each: other load of the machine affects both."""
    clients: dict[str, Client] = {}
    cpu: dict[str, list[float]] = {case.name: [] for case in CASES}
    floors: dict[str, list[float]] = {case.name: [] for case in CASES}
    latency: dict[str, list[float]] = {case.name: [] for case in CASES}
    with ExitStack() as stack:
        for case in CASES:
            clients[case.name] = Client(case, sites[case.site])
            stack.callback(clients[case.name].close)
            clients[case.name].batch(CONNECTIONS)
        for number in range(options.rounds):
            say(f"{hosts:,} hosts: round {number + 1} of {options.rounds}")
            # Each round begins with another case.
            for case in itertools.islice(itertools.cycle(CASES), number, number + len(CASES)):
                floors[case.name].append(clients[FLOOR_CASE].batch(options.requests))
                cpu[case.name].append(clients[case.name].batch(options.requests))
                latency[case.name] += clients[case.name].single(options.requests // SINGLE_SHARE)
    return [
        RequestFigures(
            hosts=hosts,
            name=case.name,
            requests=options.requests * options.rounds,
            cpu_us=statistics.median(cpu[case.name]) * 1e6,
            ratio=median_ratio(cpu[case.name], floors[case.name]),
            p99_us=percentile(latency[case.name], 0.99) * 1e6,
        )
        for case in CASES
    ]


def median_ratio(values: Sequence[float], floors: Sequence[float]) -> float:
    """Return the median of the ratios of *values* to the floors that were measured with them."""
    return statistics.median(value / floor for value, floor in zip(values, floors, strict=True))


def measure_memory(options: RequestOptions, hosts: int, scratch: Path, upstream: int, say: Say) -> list[MemoryFigures]:
    """Measure by how much a HAProxy with *hosts* routes is larger than one with few."""
    kinds = (
        ("map routing by hand", FLOOR, False),
        ("Ingress", INGRESS, False),
        ("HTTPRoute: path", GATEWAY, False),
        ("HTTPRoute: header, two header filters", GATEWAY, True),
    )
    few = 2
    figures = []
    for name, site, is_filtered in kinds:
        say(f"{hosts:,} hosts: memory of {name}")
        sizes = []
        for count in (few, hosts):
            folder = scratch / f"memory-{site}-{is_filtered}-{count}"
            with open_site(options.haproxy, site, folder, count, upstream, is_filtered=is_filtered) as running:
                sizes.append(running.memory())
        figures.append(
            MemoryFigures(
                hosts=hosts, name=name, mib_of_1000=(sizes[1] - sizes[0]) / 2**20 / max(1, hosts - few) * 1000
            )
        )
    return figures
