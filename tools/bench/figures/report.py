"""Figures of the benchmark as a table and as JSON."""

import math
import os
import platform
from collections.abc import Mapping, Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from tools.bench.figures.timeline import Step

PIPE_WIDTH = 160


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of change at one size. `reloads`, `errors`, `requests`, `cpu_s` are sums over all samples."""

    cluster: str
    """What the changes were written to: `directory` or `api`."""
    name: str
    n: int
    """Ingresses in the cluster."""
    samples: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    reloads: int
    errors: int
    """Requests of the client at a constant rate that were not answered with 200."""
    requests: int
    """All that it has sent."""
    rss_mib: float
    """Of the controller, afterwards."""
    peak_mib: float
    """The most that it ever had."""
    cpu_s: float
    """Of the controller, without its checks."""
    check_cpu_s: float = 0.0
    """Of `haproxy -c`."""
    cpu_ms: float = 0.0
    """Of the controller for each change."""
    fragments: float = 0.0
    """Rendered for each change."""
    load: float = 0.0
    """Of the machine at the end, over one minute: more than the bench's own means that others were at work."""
    notes: Mapping[str, float] = {}
    """What else there is to say about this case."""
    timeline: tuple[Step, ...] = ()


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How and where it was measured."""

    sizes: tuple[int, ...]
    clusters: tuple[str, ...]
    samples: int
    case_seconds: float
    rate: float
    is_profiled: bool
    processors: int
    python: str
    system: str
    haproxy: str
    load: float
    """Of the machine before the first measurement, over one minute."""
    day: str = ""
    """When it was measured, in ISO format."""


class WholeFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One command over all objects of a cluster."""

    name: str
    kind: str
    """Of the objects: Ingress or HTTPRoute, each with a Service and an EndpointSlice."""
    n: int
    seconds: float
    """From the start of the process to its end, or to the first 200."""
    cpu_s: float
    """User and system time of the process."""
    peak_mib: float
    check_s: float = 0.0
    """Of `haproxy -c` on the same configuration, in seconds."""
    load: float = 0.0
    """Of the machine at the end, over one minute."""


class Measured(msgspec.Struct, frozen=True):
    """Everything."""

    settings: Settings
    cases: Sequence[Case]
    whole: Sequence[WholeFigures] = ()


def count_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def describe_system() -> tuple[str, str]:
    """Return what Python and what system this is."""
    # The rest of a release names the build of one machine's kernel.
    release = ".".join(platform.release().split(".")[:2])
    return platform.python_version(), f"{platform.system()} {release} {platform.machine()}"


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest of *values* that *fraction* of them do not exceed."""
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


def plural_of(kind: str) -> str:
    """Return the name of several objects of *kind*."""
    return f"{kind}es" if kind.endswith("s") else f"{kind}s"


def print_tables(measured: Measured, console: Console) -> None:
    """Print how long each change took, and where the time went as far as that was asked for."""
    console.print(_describe(measured.settings))
    console.print(_times(measured.cases, console))
    for case in measured.cases:
        if case.notes:
            notes = ", ".join(f"{name} {value:,.4g}" for name, value in case.notes.items())
            console.print(f"{case.cluster}, {case.n:,}: {case.name}: {notes}")
    if measured.whole:
        console.print(_wholes(measured.whole, console))
    for case in measured.cases:
        if case.timeline:
            console.print(_steps(case, console))


def make_console() -> Console:
    """Return a console that is wide enough for the tables when the output is not a terminal."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=PIPE_WIDTH)


def _describe(settings: Settings) -> str:
    return (
        f"{settings.processors} processors, load {settings.load:.1f} before; {settings.system}; "
        f"Python {settings.python}, HAProxy {settings.haproxy}; {settings.rate:g} requests/s in the background"
        + ("; profiled, which itself costs time" if settings.is_profiled else "")
    )


def _times(cases: Sequence[Case], console: Console) -> Table:
    table = _make_table("From the write to traffic", console)
    table.add_column("cluster")
    table.add_column("n", justify="right")
    table.add_column("case")
    headings = (
        "samples",
        "p50 ms",
        "p99 ms",
        "reloads",
        "errors",
        "requests",
        "RSS MiB",
        "CPU s",
        "CPU ms",
        "fragments",
    )
    for heading in headings:
        table.add_column(heading, justify="right")
    for case in cases:
        table.add_row(
            *(case.cluster, f"{case.n:,}", case.name),
            *(f"{case.samples:,}", f"{case.p50_ms:,.1f}", f"{case.p99_ms:,.1f}"),
            *(f"{case.reloads:,}", f"{case.errors:,}", f"{case.requests:,}"),
            *(f"{case.rss_mib:,.0f}", f"{case.cpu_s:,.2f}", f"{case.cpu_ms:,.1f}", f"{case.fragments:,.1f}"),
        )
    return table


def _wholes(whole: Sequence[WholeFigures], console: Console) -> Table:
    table = _make_table("All objects at once", console)
    table.add_column("command")
    table.add_column("objects")
    for heading in ("n", "s", "CPU s", "most MiB", "haproxy -c s"):
        table.add_column(heading, justify="right")
    for each in whole:
        figures = (each.seconds, each.cpu_s, each.peak_mib, each.check_s)
        table.add_row(each.name, each.kind, f"{each.n:,}", *(f"{figure:,.2f}" for figure in figures))
    return table


def _steps(case: Case, console: Console) -> Table:
    table = _make_table(f"{case.name}, {case.cluster}, {case.n:,}: medians in ms", console)
    table.add_column("step")
    table.add_column("after the write", justify="right")
    table.add_column("took")
    for step in case.timeline:
        took = ", ".join(f"{name} {value:,.1f}" for name, value in step.took_ms.items())
        table.add_row(step.name, f"{step.at_ms:,.1f}", took)
    return table


def _make_table(title: str, console: Console) -> Table:
    style = box.SIMPLE_HEAD if console.is_terminal else box.ASCII2
    return Table(title=title, title_justify="left", box=style)
