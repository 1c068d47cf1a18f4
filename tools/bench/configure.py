"""Latency of endpoint changes while the ConfigMap changes: `python -m tools.bench.configure [--help]`.

One endpoint moves every 50 ms, whatever has become of the earlier ones, and a
client asks until each move has reached traffic. It asks again for some seconds,
and counts the moves that are reverted: the new worker of a reload would begin
without the moves of the time of the load. Meanwhile the ConfigMap changes, so
HAProxy's configuration is rendered, checked and loaded again. The table has one
row for each phase of a change, and below it the controller's log while the
slowest move waited. At the end there is one row for each kind of change.
"""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec
import yaml

from haptic_trio.config.libraries import load_library
from haptic_trio.dataplane.binary import find_haproxy
from haptic_trio.k8s.resource import Resource
from tests.support.processes.haproxy_versions import provide
from tools.bench.figures.report import percentile
from tools.bench.rig.backends import backend_name, reserve_ports, run_backends
from tools.bench.rig.clusters import Cluster
from tools.bench.rig.controller import Controller, Line, run_controller
from tools.bench.rig.objects import (
    AT_ONCE,
    Place,
    app_name,
    host_of,
    make_app,
    make_config,
    make_ingress,
    make_secret,
    make_slice,
    make_structure,
)
from tools.bench.rig.traffic import LOOPBACK, ask, wait_for
from tools.bench.run import COLUMNS

MOVED = 500
"""Apps whose endpoints move, one after another."""
ASK_INTERVAL = 0.001
EFFECT_LIMIT = 60.0
LATE = 0.1
STEPS = {
    "a task kept the event loop busy",
    "configuration validated",
    "instance failed",
    "instance reloaded",
    "instance updated without reload",
    "iteration ended",
    "stage reached",
}
"""Events of the log that say what a late move waited for."""
FIELDS = {"correlation", "ms", "check_ms", "reasons", "error", "stage", "place", "task", "seconds"}


CHANGES = ("setting", "global", "backends")
"""What a ConfigMap changes: a setting, a snippet of section `global`, a line of every backend."""
WATCHED = 3.0
"""Seconds for which a move that has had effect is asked for again."""


class Move(msgspec.Struct):
    """One endpoint that has moved."""

    host: str
    backend: str
    written: float
    """Seconds since the epoch."""
    since: float
    """The same moment, on the monotonic clock."""
    seconds: float = 0.0
    """From the write to the first answer of the new endpoint."""
    is_reverted: bool = False
    """An earlier endpoint has answered after the new one."""


class Mover:
    """Moves endpoints at a constant pace in one thread, and asks for their effects in another."""

    def __init__(self, cluster: Cluster, ports: Sequence[int], size: int, interval: float) -> None:
        self.moves: list[Move] = []
        self.cluster = cluster
        self._ports = ports
        self._apps = min(size, MOVED)
        self._interval = interval
        self._pending: deque[Move] = deque()
        self._targets: dict[str, str] = {}
        """Of each host: the backend of its newest move."""
        self._seen: deque[Move] = deque()
        """Moves that had effect, the last one that was asked for again at the end."""
        self._is_over = False
        self._number = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Move endpoints for the duration of the block, and wait for the effect of all of them."""
        self.moves, self._is_over = [], False
        threads = [threading.Thread(target=target) for target in (self._write, self._ask)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._is_over = True
            for thread in threads:
                thread.join()

    def _write(self) -> None:
        due = time.monotonic()
        while not self._is_over:
            number, self._number = self._number, self._number + 1
            name, target = app_name(number % self._apps), (number // self._apps + 1) % len(self._ports)
            write = self.cluster.prepare(make_slice(self.cluster.place, name, self._ports[target]), exists=True)
            time.sleep(max(0.0, due - time.monotonic()))
            move = Move(host_of(name), backend_name(target), time.time(), time.monotonic())
            self._targets[move.host] = move.backend
            write()
            self._pending.append(move)
            due += self._interval

    def _ask(self) -> None:
        ended = 0.0
        while self._pending or not self._is_over:
            if self._is_over:
                ended = ended or time.monotonic()
                if time.monotonic() > ended + EFFECT_LIMIT:
                    raise TimeoutError(f"{len(self._pending)} moves had no effect")
            # One question at a time: many at once would take the processor from those that are measured.
            if self._pending:
                move = self._pending.popleft()
                if self._has_effect(move):
                    move.seconds = time.monotonic() - move.since
                    self.moves.append(move)
                    self._seen.append(move)
                    continue
                self._pending.append(move)
            self._ask_again()
            time.sleep(ASK_INTERVAL)

    def _ask_again(self) -> None:
        if self._seen:
            move = self._seen.popleft()
            is_effective = self._has_effect(move)
            is_over = time.monotonic() > move.since + move.seconds + WATCHED
            if is_over or self._targets[move.host] != move.backend:
                return
            move.is_reverted |= not is_effective
            self._seen.append(move)

    def _has_effect(self, move: Move) -> bool:
        return ask(self.cluster.place.http_port, move.host).backend == move.backend


def configure(cluster: Cluster, change: str, number: int) -> float:
    """Make a *change* of the ConfigMap; return when, in seconds since the epoch."""
    config = make_config(cluster.place, AT_ONCE, "v0")
    content = yaml.safe_load(config["data"]["config"])
    if change == "setting":
        content["templating"]["extraContext"]["maxconn"] = 2_000 + number
    elif change == "global":
        content["templateSnippets"]["global-bench"] = {"template": f"    description change-{number}\n"}
    else:
        line = " from profile-http"
        text = load_library("ingress").template_snippets["backends-ingress"].template
        content["templateSnippets"]["backends-ingress"] = {
            "template": text.replace(line, f"{line}\n    retries {number % 100}")
        }
    config["data"]["config"] = yaml.safe_dump(content, sort_keys=False)
    write = cluster.prepare(config, exists=True)
    written = time.time()
    write()
    return written


def wait_deployed(controller: Controller, position: int) -> None:
    """Return once the configuration that changed after line *position* of the log is deployed by a reload."""
    opened = controller.wait_for(lambda line: line.event == "stage reached", since=position, what="next iteration")
    prefix = f"{opened.fields['iteration']}-"

    def is_reload(line: Line) -> bool:
        return line.event == "instance reloaded" and line.correlation.startswith(prefix)

    controller.wait_for(is_reload, since=position, what="reload")


def report(name: str, moves: Sequence[Move]) -> None:
    """Print one row."""
    seconds = [move.seconds for move in moves]
    if not seconds:
        print(f"{name:34} no moves")
        return
    late = sum(second > LATE for second in seconds)
    figures = "".join(f"{1000 * percentile(seconds, share):9.1f}" for share in (0.5, 0.9, 0.99))
    reverted = sum(move.is_reverted for move in moves)
    print(f"{name:34}{len(seconds):6}{figures}{1000 * max(seconds):9.1f}{late:8}{reverted:10}", flush=True)


def report_slowest(moves: Sequence[Move], lines: Sequence[Line], since: float) -> None:
    """Print what the log says about the time in which the slowest move waited."""
    slowest = max(moves, key=lambda move: move.seconds)
    print(f"slowest: written {slowest.written - since:+.3f} s after the ConfigMap, seen after {slowest.seconds:.3f} s")
    for line in lines:
        if line.event in STEPS and slowest.written <= line.at <= slowest.written + slowest.seconds:
            fields = {name: value for name, value in line.fields.items() if name in FIELDS}
            print(f"  {line.at - since:+8.3f} {line.event} {fields}"[:160])


def run(cluster: Cluster, scratch: Path, ports: Sequence[int], binary: Path, **options: object) -> None:
    """Fill *cluster*, run a controller, change its ConfigMap and print the figures."""
    size, configs, interval, seconds = (options[name] for name in ("size", "configs", "interval", "seconds"))
    changes, certificates = options["changes"], options["certificates"]
    assert isinstance(changes, Sequence)
    assert isinstance(certificates, int)
    assert isinstance(size, int)
    assert isinstance(configs, int)
    assert isinstance(interval, float)
    assert isinstance(seconds, float)
    profile = options["profile"]
    place = cluster.place
    objects: list[list[Resource]] = [[make_config(place, AT_ONCE, "v0"), make_structure(place, "v0")]]
    objects += [make_app(place, app_name(number), ports[0]) for number in range(size)]
    objects += [make_secure(place, app_name(number)) for number in range(min(certificates, size))]
    cluster.load(objects)
    since = time.monotonic()
    flame = profile / "configure.svg" if isinstance(profile, Path) else None
    with run_controller(cluster.arguments(), scratch / "state", binary, level="debug", flame=flame) as controller:
        started = wait_for(
            lambda: ask(place.http_port, host_of(app_name(0))),
            lambda answer: answer.status == 200,
            since=since,
            check=controller.check_alive,
        )
        controller.settle(2.0)
        print(
            f"{size} Ingresses, {certificates} certificates, started in {started:.1f} s, load {os.getloadavg()[0]:.1f}"
        )
        print_head()
        mover = Mover(cluster, ports, size, interval)
        found: dict[str, list[Move]] = {}
        for change in changes:
            for number in range(1, configs + 1):
                if flame is not None:
                    controller.cut_profile()
                found.setdefault(change, []).extend(measure(controller, mover, change, number, seconds))
        print_head()
        for change, moves in found.items():
            report(change, moves)


def make_secure(place: Place, name: str) -> list[Resource]:
    """Return a Secret, and the Ingress of the app *name* with TLS."""
    secret, _ = make_secret(place, f"{name}-tls", host_of(name))
    return [secret, make_ingress(place, name, name, secret=f"{name}-tls")]


def print_head() -> None:
    """Print the names of the columns."""
    print(f"{'':34}{'moves':>6}{'p50 ms':>9}{'p90':>9}{'p99':>9}{'max':>9}{'>100ms':>8}{'reverted':>10}")


def measure(controller: Controller, mover: Mover, change: str, number: int, seconds: float) -> list[Move]:
    """Change the ConfigMap while endpoints move, and print the figures; return the moves from the change on."""
    with mover.running():
        time.sleep(seconds)
        position = len(controller.log.read())
        written = configure(mover.cluster, change, number)
        wait_deployed(controller, position)
        deployed = time.time()
        time.sleep(seconds)
    lines = controller.log.read()[position:]
    ended = next(line.at for line in lines if line.event == "iteration ended")
    print(
        f"{change} {number}: next iteration after {ended - written:.2f} s, deployed after "
        f"{deployed - written:.2f} s, load {os.getloadavg()[0]:.1f}"
    )
    moves = sorted(mover.moves, key=lambda move: move.written)
    report("before", [move for move in moves if move.written < written])
    report("candidate", [move for move in moves if written <= move.written < ended - 0.2])
    report("next iteration, reload", [move for move in moves if ended - 0.2 <= move.written < deployed])
    report("after", [move for move in moves if move.written >= deployed])
    report_slowest(moves, lines, written)
    return [move for move in moves if move.written >= written]


@click.command(help=__doc__)
@click.option("--size", default=10_000, show_default=True, help="Number of Ingresses.")
@click.option("--configs", default=3, show_default=True, help="How often each change is made.")
@click.option(
    "--change",
    "changes",
    type=click.Choice(CHANGES),
    multiple=True,
    default=CHANGES,
    show_default=True,
    help="What changes; may be given several times.",
)
@click.option("--certificates", default=0, show_default=True, help="Number of Ingresses with a certificate.")
@click.option("--interval", default=0.05, show_default=True, help="Seconds between two moves.")
@click.option("--seconds", default=5.0, show_default=True, help="Time of moves before a change, and after its reload.")
@click.option("--cluster", "column", type=click.Choice([*COLUMNS]), default="api", show_default=True)
@click.option("--version", metavar="VERSION", help="Fetch this HAProxy, such as 3.4, and take it.")
@click.option("--profile", type=click.Path(file_okay=False, path_type=Path), help="Write flame graphs there.")
def main(column: str, version: str | None, **options: object) -> None:
    binary = find_haproxy(None) if version is None else provide(version) / "haproxy"
    with (
        tempfile.TemporaryDirectory(prefix="haptic-trio-bench-") as name,
        reserve_ports(LOOPBACK, 2) as (http_port, https_port),
    ):
        scratch = Path(name)
        with (
            COLUMNS[column].open(Place(http_port=http_port, https_port=https_port), scratch) as cluster,
            run_backends(binary, cluster.place.address, scratch) as ports,
        ):
            run(cluster, scratch, ports, binary, **options)


if __name__ == "__main__":
    try:
        main()
    except subprocess.SubprocessError as exc:
        sys.exit(str(exc))
