"""Figures in the documentation: the goals, the curves and the full tables, from docs/performance.json.

    python -m tools.bench.page [--figures FILE …] [--requests FILE] [--sync FILE] [--profile FILE]

FILE is what `--json` has written: of `make bench` (the curves show the first one), of `make bench-requests`, of `make
bench-sync`, and of a run of `make bench` with `--profile`. Its figures replace those of docs/performance.json. Then
docs/performance.md, docs/benchmarks.md and docs/images/performance-*.svg are written from that file. `make bench-page`
measures everything and calls this.
"""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from tools.bench.figures.curves import charts_of_changes, charts_of_requests, write_charts
from tools.bench.figures.goals import Goal, goal_lines, goals_of_changes, goals_of_requests, headline_lines
from tools.bench.figures.report import Measured
from tools.bench.requests.table import RequestMeasured, table_lines

DOCS = Path(__file__).parents[2] / "docs"
PROFILED = ("cold start", "endpoint change", "new Ingress", "ConfigMap change, to traffic")
BUSY = 0.5
"""Load for each processor before the first measurement from which on the figures are marked."""


class Published(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures that the documentation shows."""

    figures: Sequence[Measured] = ()
    requests: RequestMeasured | None = None
    sync: Sequence[dict[str, Any]] = ()
    profile: Measured | None = None


@click.command(help=__doc__)
@click.option("--figures", multiple=True, type=click.Path(exists=True, path_type=Path))
@click.option("--requests", type=click.Path(exists=True, path_type=Path))
@click.option("--sync", type=click.Path(exists=True, path_type=Path))
@click.option("--profile", type=click.Path(exists=True, path_type=Path))
@click.option("--docs", default=DOCS, type=click.Path(file_okay=False, path_type=Path), help="Where the pages are.")
def main(figures: Sequence[Path], requests: Path | None, sync: Path | None, profile: Path | None, docs: Path) -> None:
    store = docs / "performance.json"
    published = msgspec.json.decode(store.read_bytes(), type=Published) if store.exists() else Published()
    fresh: dict[str, Any] = {}
    if figures:
        fresh["figures"] = [_read(path, Measured) for path in figures]
    for name, file, form in (
        ("requests", requests, RequestMeasured),
        ("sync", sync, list[dict[str, Any]]),
        ("profile", profile, Measured),
    ):
        if file is not None:
            fresh[name] = _read(file, form)
    if fresh:
        published = msgspec.structs.replace(published, **fresh)
        store.write_text(_one_figure_a_line(published), "utf-8")
    for name, text in pages_of(published, docs).items():
        (docs / name).write_text(text, "utf-8")
    write_charts(charts_of(published), docs / "images")


def _read(path: Path, form: Any) -> Any:
    return msgspec.json.decode(path.read_bytes(), type=form)


def _one_figure_a_line(published: Published) -> str:
    """Return JSON with a line for each case, so that a new measurement is a readable difference."""
    return re.sub(rb"(?<=[\[,])(?=\{)", b"\n", msgspec.json.encode(published)).decode() + "\n"


def pages_of(published: Published, docs: Path) -> dict[str, str]:
    """Return the text of the pages in *docs* with the figures of *published*."""
    first, second = (docs / "performance.md").read_text("utf-8"), (docs / "benchmarks.md").read_text("utf-8")
    first = put(first, "goals", "\n".join(summary_lines(published)))
    second = put(second, "goals", "\n".join(goal_lines(goals_of(published))))
    second = put(second, "figures", "\n".join(line for one in published.figures for line in figure_lines(one)))
    if published.sync:
        second = put(second, "sync", "\n".join(sync_lines(published.sync)))
    if published.profile is not None:
        second = put(second, "profile", "\n".join(profile_lines(published.profile)))
    if published.requests is not None:
        second = put(second, "requests", "\n".join(request_lines(published.requests)))
    return {"performance.md": first, "benchmarks.md": second}


def charts_of(published: Published) -> dict[str, Any]:
    """Return the charts of the page by their names."""
    charts = dict(charts_of_changes(published.figures[0])) if published.figures else {}
    if published.requests is not None:
        charts |= dict(charts_of_requests(published.requests))
    return charts


def goals_of(published: Published) -> list[Goal]:
    """Return all goals that the figures have."""
    goals = goals_of_changes(published.figures[0]) if published.figures else []
    return goals + (goals_of_requests(published.requests) if published.requests is not None else [])


def summary_lines(published: Published) -> Iterator[str]:
    """Yield the table of the most important goals, and the circumstances of the measurement."""
    yield from headline_lines(goals_of(published))
    for settings in (one.settings for one in published.figures[:1]):
        yield ""
        yield (
            f"HAProxy {settings.haproxy}, Python {settings.python}, {settings.processors} processors, "
            f"{settings.system}, on {settings.day}."
        )
        if settings.load > BUSY * settings.processors:
            yield (
                f"**The machine was busy with other work** (load {settings.load:.1f} before the first measurement), "
                "so the times are too long."
            )


def put(text: str, name: str, content: str) -> str:
    """Return *text* with *content* between the lines of *name*; raises ValueError if there are none."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    text, count = pattern.subn(lambda _match: f"{begin}\n{content}\n{end}", text, count=1)
    if not count:
        raise ValueError(f"the page has no line {begin}, or no line {end} after it")
    return text


def request_lines(measured: RequestMeasured) -> Iterator[str]:
    """Yield the tables of requests of one HAProxy."""
    yield f"\n### Requests, HAProxy {measured.haproxy}\n"
    yield from table_lines(measured)


def figure_lines(measured: Measured) -> Iterator[str]:
    """Yield what was measured with one HAProxy, a table for each cluster, and one of whole clusters."""
    settings = measured.settings
    yield f"\n### HAProxy {settings.haproxy}\n"
    yield (
        f"{settings.processors} processors, load {settings.load:.1f} at the beginning; {settings.system}; "
        f"Python {settings.python}; {settings.rate:g} requests a second beside it; {settings.day}."
    )
    for cluster in settings.clusters:
        yield (
            f"\n| {cluster}: n | Case | samples | p50 ms | p99 ms | reloads | errors / requests | RSS MiB | CPU ms "
            "| fragments |"
        )
        yield "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        last = 0
        for case in measured.cases:
            if case.cluster != cluster:
                continue
            size = f"{case.n:,}" if case.n != last else ""
            last = case.n
            notes = ", ".join(f"{name} {value:,.3g}" for name, value in case.notes.items())
            name = f"{case.name} ({notes})" if notes else case.name
            yield (
                f"| {size} | {name} | {case.samples} | {case.p50_ms:,.1f} | {case.p99_ms:,.1f} | {case.reloads} "
                f"| {case.errors} / {case.requests:,} | {case.rss_mib:,.0f} | {case.cpu_ms:,.1f} "
                f"| {case.fragments:,.1f} |"
            )
    if measured.whole:
        yield "\n| Command | Objects | n | s | CPU s | peak MiB | `haproxy -c` s |"
        yield "|---|---|---:|---:|---:|---:|---:|"
        for each in measured.whole:
            yield (
                f"| {each.name} | {each.kind} | {each.n:,} | {each.seconds:.2f} | {each.cpu_s:.2f} "
                f"| {each.peak_mib:,.0f} | {each.check_s:.2f} |"
            )


def sync_lines(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the table of single deployments."""
    yield "| HAProxy | Endpoint | Backends | Change | Plan ms | Effect ms | Done ms | Reloads | Bytes sent |"
    yield "|---|---|---:|---|---:|---:|---:|---:|---:|"
    for row in rows:
        plan = f"{row['plan_ms']:.2f}" if row["plan_ms"] else ""
        sent = f"{row['bytes_sent']:,}" if row["bytes_sent"] else ""
        yield (
            f"| {row['haproxy']} | {row['endpoint']} | {row['backends']:,} | {row['change']} | {plan} "
            f"| {row['effect_ms']:,.1f} | {row['done_ms']:,.1f} | {row['reloads']:g} "
            f"| {sent} |"
        )


def profile_lines(measured: Measured) -> Iterator[str]:
    """Yield the steps of some changes at the largest size."""
    largest = max(case.n for case in measured.cases)
    for case in measured.cases:
        if case.n == largest and case.name in PROFILED:
            haproxy = measured.settings.haproxy
            yield f"\n{case.name}, {case.cluster}, {largest:,} Ingresses, HAProxy {haproxy}:\n"
            yield "| Step | ms after the write | of all | took ms |"
            yield "|---|---:|---:|---|"
            last = max((step.at_ms for step in case.timeline), default=0.0)
            for step in case.timeline:
                took = ", ".join(f"{name} {value:,.1f}" for name, value in step.took_ms.items())
                yield f"| {step.name} | {step.at_ms:,.1f} | {step.at_ms / last:.0%} | {took} |"


if __name__ == "__main__":
    main()
