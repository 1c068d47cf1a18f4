"""Command line of the benchmark, with a directory of manifests or the API server of a kubeconfig as the cluster.

    python -m tools.bench.command [OPTIONS]

`make bench` runs `tools.bench.run`, which adds an API server of its own.
"""

import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import click
import msgspec

from haptic_trio.cli.exits import EXIT_INTERRUPTED
from haptic_trio.dataplane.binary import find_haproxy
from tools.bench.figures.curves import charts_of_changes, write_charts
from tools.bench.figures.goals import goal_lines, goals_of_changes
from tools.bench.figures.report import make_console, print_tables
from tools.bench.rig.clusters import Column, DirectoryColumn, KubeconfigColumn
from tools.bench.session import Options
from tools.bench.steps import announcing
from tools.bench.suite import run_suite

F = TypeVar("F", bound=Callable[..., Any])

QUICK: dict[str, Any] = {
    "sizes": (10,), "samples": 5, "cold_starts": 1, "burst": 20, "configs": 2, "interval_seconds": 0.0,
}  # fmt: skip


def _read_sizes(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(word.replace("_", "")) for word in text.split(","))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1:
        raise click.BadParameter("write numbers from 1 up with commas between, such as 100,1000,5000")
    return sizes


def bench_options(command: F) -> F:
    """Add what `measure` takes besides the clusters."""
    seconds = click.FloatRange(0)
    for decorate in reversed(
        (
            click.option(
                "--sizes",
                default="100,1000,5000,10000,20000",
                show_default=True,
                callback=_read_sizes,
                help="Numbers of Ingresses, each with a Service and an EndpointSlice.",
            ),
            click.option(
                "--samples",
                type=click.IntRange(1),
                default=100,
                show_default=True,
                help="How often each change is made.",
            ),
            click.option(
                "--case-seconds",
                type=seconds,
                default=20.0,
                show_default=True,
                help="Make fewer changes when a case takes longer than this.",
            ),
            click.option(
                "--cold-starts",
                type=click.IntRange(1),
                default=3,
                show_default=True,
                help="How often the start is made; once from 5,000 Ingresses up.",
            ),
            click.option(
                "--burst", type=click.IntRange(1), default=500, show_default=True, help="Changes of the burst."
            ),
            click.option(
                "--configs",
                type=click.IntRange(1),
                default=5,
                show_default=True,
                help="How often the ConfigMap is changed.",
            ),
            click.option(
                "--interval-seconds",
                type=seconds,
                default=20.0,
                show_default=True,
                help="How long the default settings are looked at; 0 leaves out these and classic mode.",
            ),
            click.option(
                "--rate",
                type=click.FloatRange(0, min_open=True),
                default=200.0,
                show_default=True,
                help="Requests a second of the client in the background, each on a new connection.",
            ),
            click.option(
                "--json",
                "json_file",
                type=click.Path(dir_okay=False, path_type=Path),
                help="Write the figures there, too.",
            ),
            click.option(
                "--profile",
                type=click.Path(file_okay=False, path_type=Path),
                help="Report the steps of each change, and write flame graphs of the controller to this directory.",
            ),
            click.option(
                "--quick", is_flag=True, help="Only see that it works: 10 Ingresses, a few changes of each kind."
            ),
        )
    ):
        command = decorate(command)
    return command


@click.command()
@bench_options
@click.option(
    "--haproxy",
    metavar="PATH",
    envvar="HAPTIC_HAPROXY",
    help="HAProxy binary; by default the one on PATH, else that of the `haproxy` extra.",
)
@click.option(
    "--kubeconfig",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure with this API server, in a namespace that is created and deleted, instead of a directory.",
)
@click.option("--context", help="Context of the kubeconfig; by default its current one.")
@click.option(
    "--address",
    help="Where the backends listen, as EndpointSlices name it; by default the address towards the API server.",
)
def bench(
    *, kubeconfig: Path | None, context: str | None, address: str | None, haproxy: str | None, **how: Any
) -> None:
    """Measure how long changes take to reach traffic on this machine.

    Runs the controller over a cluster of generated Ingresses with a real
    HAProxy, makes changes, and asks until their effects are seen, while
    another client counts failed requests. Takes some minutes; a quiet
    machine gives better figures. Everything lies in a temporary directory
    and listens on the loopback interface.
    """
    if kubeconfig is None and (context or address):
        raise click.UsageError("--context and --address are of a --kubeconfig")
    column: Column = DirectoryColumn()
    if kubeconfig is not None:
        column = KubeconfigColumn(kubeconfig, context=context, address=address)
    measure([column], find_haproxy(haproxy), **how)


def measure(columns: Sequence[Column], haproxy: Path, *, json_file: Path | None, quick: bool, **how: Any) -> None:
    """Measure *columns*, print the tables, and write *json_file* if it is given; SIGTERM ends it in order."""
    # As Ctrl-C does, so that every process that was started is ended.
    signal.signal(signal.SIGTERM, _interrupt)
    options = Options(haproxy=haproxy, **(how | (QUICK if quick else {})))
    if options.profile is not None:
        options.profile.mkdir(parents=True, exist_ok=True)
    try:
        with announcing() as say:
            measured = run_suite(options, columns, say)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    print_tables(measured, make_console())
    click.echo("\n".join(goal_lines(goals_of_changes(measured))))
    if json_file is not None:
        json_file.parent.mkdir(parents=True, exist_ok=True)
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")
        write_charts(dict(charts_of_changes(measured)), json_file.parent)
        click.echo(f"figures are in {json_file}, and curves beside it", err=True)


def _interrupt(_number: int, _frame: object) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    bench()
