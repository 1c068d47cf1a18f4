"""`make bench-requests`: what one request costs HAProxy, for each kind of route, as ratios to a configuration by hand.

    python -m tools.bench.requests.command [--version 3.4] [--hosts 1000,20000] [--json FILE]

Each case has a HAProxy with one thread. CPU time is that of its process, for one request of a client with eight
keep-alive connections; the client's own time does not count. The cases take turns, and the medians of all rounds are
printed as a table in Markdown. p99 is the latency of a request on an idle connection. Memory is by how much a HAProxy
with all routes is larger than one with two.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import click
import msgspec

from haptic_trio.cli.exits import EXIT_INTERRUPTED
from haptic_trio.dataplane.binary import find_haproxy, probe_version
from haptic_trio.errors import HapticError
from tests.support.processes.haproxy_versions import VersionUnavailableError, provide
from tools.bench.figures.curves import charts_of_requests, write_charts
from tools.bench.figures.goals import goal_lines, goals_of_requests
from tools.bench.figures.report import count_processors, describe_system
from tools.bench.requests.measure import RequestOptions, run_requests
from tools.bench.requests.table import RequestMeasured, table_lines
from tools.bench.steps import announcing


def _read_hosts(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    numbers = [int(word.replace("_", "")) if word.replace("_", "").isdecimal() else 0 for word in text.split(",")]
    if min(numbers) < 2:
        raise click.BadParameter("write numbers from 2 up with commas between, such as 1000,20000")
    return tuple(numbers)


@click.command(help=__doc__)
@click.option(
    "--hosts",
    default="1000",
    show_default=True,
    callback=_read_hosts,
    help="Numbers of hosts, each with a route and a Service.",
)
@click.option(
    "--rounds", type=click.IntRange(1), default=40, show_default=True, help="How often each case is measured."
)
@click.option(
    "--requests", type=click.IntRange(8), default=240, show_default=True, help="Requests of a case in each round."
)
@click.option(
    "--memory/--no-memory", default=True, show_default=True, help="Also measure the memory of HAProxy for routes."
)
@click.option("--haproxy", metavar="PATH", help="HAProxy binary; by default the one on PATH, else that of the wheel.")
@click.option("--version", metavar="VERSION", help="Fetch this HAProxy, such as 3.4, and take it.")
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there, too."
)
def main(
    *, hosts: Sequence[int], rounds: int, requests: int, memory: bool, haproxy: str | None, version: str | None,
    json_file: Path | None,
) -> None:  # fmt: skip
    # As Ctrl-C does, so that every process that was started is ended.
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        binary = find_haproxy(haproxy) if version is None else provide(version) / "haproxy"
        load = os.getloadavg()[0]
        options = RequestOptions(haproxy=binary, hosts=tuple(hosts), rounds=rounds, requests=requests, memory=memory)
        with announcing() as say:
            figures, routes = run_requests(options, say)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (HapticError, VersionUnavailableError) as error:
        click.secho(f"error: {error}", fg="red", err=True)
        sys.exit(2)
    measured = RequestMeasured(
        haproxy=probe_version(binary).text, processors=count_processors(), load=load, system=describe_system()[1],
        rounds=rounds, requests=figures, memory=routes,
    )  # fmt: skip
    click.echo("\n".join(table_lines(measured)))
    click.echo("")
    click.echo("\n".join(goal_lines(goals_of_requests(measured))))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
        write_charts(dict(charts_of_requests(measured)), json_file.parent)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    main()
