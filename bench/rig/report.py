"""What was measured, as a table for people and as JSON for programs."""

import math
import os
import platform
import statistics
import sys
from collections.abc import Sequence

import msgspec
from rich import box
from rich.console import Console
from rich.table import Table

from rig.phases import Phases

PIPE_WIDTH = 140


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of change at one size. `reloads`, `errors` and `requests` are sums over all *n* changes."""

    size: int
    """Ingresses that are there besides the one that changes."""
    name: str
    n: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    reloads: int
    errors: int
    requests: int
    """Sent by the client in the background; `errors` of them were not answered with 200."""
    rss_mib: float
    """Of the controller, afterwards."""
    cpu_s: float
    """Of the controller and its checks, for each change."""
    phases: Phases = Phases()
    """Median of each."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How and where it was measured."""

    sizes: tuple[int, ...]
    repeats: int
    repeats_large: int
    debounce: str
    min_deployment_interval: str
    rate: float
    processors: int
    python: str
    system: str
    haproxy: str
    load: float
    """Of the machine before the first measurement, over one minute."""


class Measured(msgspec.Struct, frozen=True):
    """Everything."""

    settings: Settings
    cases: Sequence[Case]


def count_processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0))


def describe_system() -> tuple[str, str]:
    """Return what Python and what system this is."""
    return platform.python_version(), f"{platform.system()} {platform.release()} {platform.machine()}"


def percentile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest of *values* that *fraction* of them do not exceed."""
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


def median_phases(phases: Sequence[Phases]) -> Phases:
    """Return the median of each field."""
    rows = [msgspec.structs.asdict(each) for each in phases]
    return Phases(**{name: statistics.median(row[name] for row in rows) for name in Phases.__struct_fields__})


def print_tables(measured: Measured) -> None:
    """Print how long each change took, and where the time went; plain where the output is not a terminal."""
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else PIPE_WIDTH, highlight=False)
    console.print(_describe(measured.settings))
    console.print(_times(measured.cases, terminal=terminal))
    console.print(_shares(measured.cases, terminal=terminal))


def _describe(settings: Settings) -> str:
    return (
        f"{settings.processors} processors, load {settings.load:.1f} before; {settings.system}; "
        f"Python {settings.python}, HAProxy {settings.haproxy}\n"
        f"debounceInterval {settings.debounce}, minDeploymentInterval {settings.min_deployment_interval}, "
        f"{settings.rate:g} requests/s in the background"
    )


def _times(cases: Sequence[Case], *, terminal: bool) -> Table:
    table = _make_table("From saving a file to traffic", terminal=terminal)
    for heading in ("Ingresses", "change"):
        table.add_column(heading, justify="right" if heading == "Ingresses" else "left")
    for heading in ("n", "p50 ms", "p99 ms", "max ms", "reloads", "errors", "requests", "RSS MiB", "CPU s each"):
        table.add_column(heading, justify="right")
    for case in cases:
        table.add_row(
            *(f"{case.size:,}", case.name, str(case.n)),
            *(f"{value:,.0f}" for value in (case.p50_ms, case.p99_ms, case.max_ms)),
            *(f"{value:,}" for value in (case.reloads, case.errors, case.requests)),
            *(f"{case.rss_mib:,.0f}", f"{case.cpu_s:.2f}"),
        )
    return table


def _shares(cases: Sequence[Case], *, terminal: bool) -> Table:
    table = _make_table("Where the controller spent it: medians in ms, summed over the cycles", terminal=terminal)
    table.add_column("Ingresses", justify="right")
    table.add_column("change")
    for name in Phases.__struct_fields__:
        table.add_column(name, justify="right")
    for case in cases:
        phases = msgspec.structs.asdict(case.phases)
        table.add_row(f"{case.size:,}", case.name, *(f"{value:,.0f}" for value in phases.values()))
    return table


def _make_table(title: str, *, terminal: bool) -> Table:
    return Table(title=title, title_justify="left", box=box.SIMPLE_HEAD if terminal else box.ASCII2)
