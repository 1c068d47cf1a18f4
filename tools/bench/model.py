"""Benchmark of one change from rendered text to plan: `python tools/bench/model.py [backends …]`.

One fragment among many differs: a server's address, a new route, a
certificate. Times are CPU milliseconds, the minimum of several rounds.
"""

import gc
import resource
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import msgspec

from haptic_trio.chunked import Piece, Shelf
from haptic_trio.haproxy.config.parser import SectionCache, parse_config
from haptic_trio.haproxy.model import AuxFile, FileKind, Files, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.capabilities import capabilities_of
from haptic_trio.haproxy.plan.delta import encode_delta, make_delta
from haptic_trio.haproxy.plan.diff import diff_configs, diff_files
from haptic_trio.haproxy.plan.plan import make_plan

HEAD = """\
global
    maxconn 1000
defaults http
    mode http
    timeout client 5s
    timeout server 5s
    timeout connect 5s
frontend web from http
    bind :8080
    bind :8443 ssl crt-list ssl/list.txt strict-sni
    use_backend %[base,map_beg(maps/path.map)]
"""
ROUNDS = 20
CAPABLE = capabilities_of((3, 4))
T = TypeVar("T")


class Site:
    """The pages that templates would give."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.config = Shelf([(0, Piece(HEAD)), *((n, self.backend(n)) for n in range(1, count + 1))])
        self.map = Shelf((n, Piece(f"host-{n}.example.com|/ ns_app-{n}_80\n")) for n in range(1, count + 1))
        self.list = Shelf((n, Piece(f"ssl/{n:05}.pem host-{n}.example.com\n")) for n in range(1, count + 1))
        self.certificates = Shelf((f"ssl/{n:05}.pem", self.certificate(n)) for n in range(1, count + 1))
        self.cache = SectionCache()
        self.former: Generation | None = None

    @staticmethod
    def backend(number: int, host: int = 1) -> Piece:
        """Return a backend of three servers."""
        servers = "".join(f"    server srv-{n} 10.{number // 250}.{number % 250}.{host + n}:8080\n" for n in range(3))
        return Piece(f"backend ns_app-{number}_80 from http\n{servers}\n")

    @staticmethod
    def certificate(number: int, version: int = 1) -> AuxFile:
        """Return a file in the place of a certificate."""
        return make_file(FileKind.CERT, f"ssl/{number:05}.pem", f"{number} {version}\n" * 200, secret=True)

    def files(self) -> Files:
        """Return all files, in pages."""
        known = self.former.files if self.former is not None else {}
        for kind, path, pieces in (
            (FileKind.MAP, "maps/path.map", self.map),
            (FileKind.CRT_LIST, "ssl/list.txt", self.list),
        ):
            made = make_file(kind, path, pieces.paged(), former=known.get(path))
            if made is not known.get(path):
                self.certificates.put(path, made)
        return Files(self.certificates.paged())


class Figures(msgspec.Struct, kw_only=True):
    """CPU milliseconds of each step."""

    parse: float
    generation: float
    diff: float
    plan: float
    delta: float
    delta_bytes: int
    operations: int

    @property
    def total(self) -> float:
        """From text to plan, which contains the diff."""
        return self.parse + self.generation + self.plan


def timed(action: Callable[[], T]) -> tuple[float, T]:
    """Return CPU milliseconds, and what *action* returns."""
    began = time.process_time()
    result = action()
    return (time.process_time() - began) * 1000, result


def measure(site: Site, change: Callable[[int], None]) -> Figures:
    """Return the least that *change*, made again and again, costs."""
    running = build(site)[0]
    rounds = []
    for number in range(ROUNDS):
        change(number)
        desired, parse, generation = build(site)
        diff, _ = timed(partial(_diff, running, desired))
        plan_time, plan = timed(partial(make_plan, running, desired, capabilities=CAPABLE))
        delta_time, delta = timed(partial(_delta, running, desired))
        figures = Figures(
            parse=parse,
            generation=generation,
            diff=diff,
            plan=plan_time,
            delta=delta_time,
            delta_bytes=len(delta),
            operations=-1 if plan.reloads else len(plan.operations),
        )
        rounds.append(figures)
        running = desired
    return min(rounds, key=lambda one: one.total)


def _diff(running: Generation, desired: Generation) -> None:
    diff_configs(running.config, desired.config)
    diff_files(running.files, desired.files)


def _delta(running: Generation, desired: Generation) -> bytes:
    return encode_delta(make_delta(running, desired))


def build(site: Site) -> tuple[Generation, float, float]:
    """Return the generation of *site*, and what parsing and putting it together took."""
    text = site.config.paged()
    parse, config = timed(lambda: parse_config(text, cache=site.cache))
    generation, made = timed(lambda: make_generation(config, site.files(), former=site.former))
    site.former = made
    return made, parse, generation


def report(count: int) -> None:
    """Print the table for *count* backends."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    site = Site(count)
    cold, config = timed(lambda: parse_config(site.config.paged(), cache=site.cache))
    whole, again = timed(lambda: parse_config(config.text))
    assert again.seal == config.seal
    first, running = timed(lambda: make_generation(config, site.files()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lines = config.text.count("\n")
    print(f"\n{count} backends x 3 servers, {lines} lines, {count} map entries, {count} certificates")
    print(
        f"cold parse {cold:.0f} ms, from one text {whole:.0f} ms, first generation {first:.0f} ms, "
        f"RSS +{peak - before:.0f} MiB"
    )
    del again, running
    middle = count // 2
    gc.collect()
    gc.freeze()

    def new_route(number: int) -> None:
        fresh = count + 1 + number
        site.config.put(fresh, site.backend(fresh))
        site.map.put(fresh, Piece(f"host-{fresh}.example.com|/ ns_app-{fresh}_80\n"))

    def new_certificate(number: int) -> None:
        fresh = count + 1 + number
        path = f"ssl/{fresh:05}.pem"
        site.certificates.put(path, site.certificate(fresh))
        site.list.put(fresh, Piece(f"{path} host-{fresh}.example.com\n"))

    changes: dict[str, Callable[[int], None]] = {
        "server address": lambda number: site.config.put(middle, site.backend(middle, number + 2)),
        "map entry": lambda number: site.map.put(middle, Piece(f"host-{middle}.example.com|/ other-{number}\n")),
        "new route": new_route,
        "certificate": lambda number: site.certificates.put(
            f"ssl/{middle:05}.pem", site.certificate(middle, number + 2)
        ),
        "new certificate": new_certificate,
    }
    print(f"{'ms':16}{'parse':>8}{'gener.':>8}{'diff':>8}{'plan':>8}{'total':>8}{'delta':>8}{'bytes':>8}{'steps':>7}")
    for name, change in changes.items():
        one = measure(site, change)
        times = (one.parse, one.generation, one.diff, one.plan, one.total, one.delta)
        print(f"{name:16}" + "".join(f"{value:8.3f}" for value in times) + f"{one.delta_bytes:8}{one.operations:7}")


if __name__ == "__main__":
    for argument in sys.argv[1:] or ("1000", "10000"):
        report(int(argument))
