"""Puts measured figures into docs/performance.md, between the lines that say where.

python -m tools.bench.page [--figures FILE …] [--sync FILE] [--profile FILE] [--requests FILE]

FILE is what `--json` has written: of `make bench`, of `make bench-sync`, of a run with `--profile`, and of `make
bench-requests`.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from tools.bench.requests.table import RequestMeasured, table_lines

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"
PROFILED = ("endpoint change", "new Ingress", "ConfigMap change, to traffic")
Data = Any


@click.command(help=__doc__)
@click.option("--figures", multiple=True, type=click.Path(exists=True, path_type=Path))
@click.option("--sync", type=click.Path(exists=True, path_type=Path))
@click.option("--profile", type=click.Path(exists=True, path_type=Path))
@click.option("--requests", multiple=True, type=click.Path(exists=True, path_type=Path))
def main(figures: Sequence[Path], sync: Path | None, profile: Path | None, requests: Sequence[Path]) -> None:
    text = PAGE.read_text()
    if figures:
        text = put(text, "figures", "\n".join(line for path in figures for line in figure_lines(read(path))))
    if sync is not None:
        text = put(text, "sync", "\n".join(sync_lines(read(sync))))
    if profile is not None:
        text = put(text, "profile", "\n".join(profile_lines(read(profile))))
    if requests:
        text = put(text, "requests", "\n".join(line for path in requests for line in request_lines(path)))
    PAGE.write_text(text)


def read(path: Path) -> Data:
    """Return what a bench has written."""
    return json.loads(path.read_text())


def put(text: str, name: str, content: str) -> str:
    """Return *text* with *content* between the lines of *name*."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    return pattern.sub(lambda _match: f"{begin}\n{content}\n{end}", text, count=1)


def request_lines(path: Path) -> Iterator[str]:
    """Yield the tables of requests of one HAProxy."""
    measured = msgspec.json.decode(path.read_bytes(), type=RequestMeasured)
    yield f"\n### Requests, HAProxy {measured.haproxy}\n"
    yield from table_lines(measured)


def figure_lines(measured: Data) -> Iterator[str]:
    """Yield what was measured with one HAProxy, a table for each cluster."""
    settings = measured["settings"]
    yield f"\n### HAProxy {settings['haproxy']}\n"
    yield (
        f"{settings['processors']} processors, load {settings['load']:.1f} at the beginning; {settings['system']}; "
        f"Python {settings['python']}; {settings['rate']:g} requests a second beside it."
    )
    for cluster in settings["clusters"]:
        yield (
            f"\n| {cluster}: n | Case | samples | p50 ms | p99 ms | reloads | errors / requests | RSS MiB | CPU ms "
            "| fragments |"
        )
        yield "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|"
        last = 0
        for case in measured["cases"]:
            if case["cluster"] != cluster:
                continue
            size = f"{case['n']:,}" if case["n"] != last else ""
            last = case["n"]
            notes = ", ".join(f"{name} {value:,.3g}" for name, value in case["notes"].items())
            name = f"{case['name']} ({notes})" if notes else case["name"]
            yield (
                f"| {size} | {name} | {case['samples']} | {case['p50_ms']:,.1f} "
                f"| {case['p99_ms']:,.1f} | {case['reloads']} | {case['errors']} / {case['requests']:,} "
                f"| {case['rss_mib']:,.0f} | {case['cpu_ms']:,.1f} | {case['fragments']:,.1f} |"
            )


def sync_lines(rows: Data) -> Iterator[str]:
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


def profile_lines(measured: Data) -> Iterator[str]:
    """Yield the steps of some changes at the largest size."""
    largest = max(case["n"] for case in measured["cases"])
    for case in measured["cases"]:
        if case["n"] == largest and case["name"] in PROFILED:
            haproxy = measured["settings"]["haproxy"]
            yield f"\n{case['name']}, {case['cluster']}, {largest:,} Ingresses, HAProxy {haproxy}:\n"
            yield "| Step | ms after the write | took ms |"
            yield "|---|---:|---|"
            for step in case["timeline"]:
                took = ", ".join(f"{name} {value:,.1f}" for name, value in step["took_ms"].items())
                yield f"| {step['name']} | {step['at_ms']:,.1f} | {took} |"


if __name__ == "__main__":
    main()
