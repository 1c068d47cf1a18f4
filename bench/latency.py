"""Measure how long it takes from saving a file to traffic, with a real HAProxy and a client on new connections.

python bench/latency.py [--sizes 10,1000,5000] [--repeats N] [--json FILE] [--quick]

For each size: a directory with as many Ingresses, each with a Service and an EndpointSlice of its own; the
controller over it, in a process of its own; and, one after another, changes of an endpoint, of Ingresses, and of
the ConfigMap. Everything lies in a temporary directory and listens on the loopback interface. Ctrl-C ends all of it.
"""

import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import click
import msgspec
import trio
from rig.cases import COLD_START, Backends, Rig, Trial, measure_start, summarize
from rig.controller import Usage, run_controller
from rig.manifests import Intervals, Site, app_name, host_of
from rig.report import Case, Measured, Settings, count_processors, describe_system, median_phases, print_tables
from rig.traffic import Background, serve_backend

from haptic_trio.cli.demo_ports import reserve_port
from haptic_trio.dataplane.binary import find_haproxy, probe_version
from haptic_trio.errors import HapticError

LARGE = 5000
BACKGROUND_HOSTS = 10


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """What to measure."""

    sizes: tuple[int, ...]
    repeats: int
    repeats_large: int
    cold_starts: int
    intervals: Intervals
    rate: float

    def repeats_at(self, size: int) -> int:
        """Return how often each change is made at *size*."""
        return self.repeats_large if size >= LARGE else self.repeats


def _read_sizes(_context: click.Context, _option: click.Parameter, text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(word) for word in text.split(","))
    except ValueError:
        sizes = (0,)
    if min(sizes) < 1:
        raise click.BadParameter("write numbers from 1 up with commas between, such as 10,1000,5000")
    return sizes


@click.command(help=__doc__)
@click.option("--sizes", default="10,1000,5000", show_default=True, callback=_read_sizes, help="Numbers of Ingresses.")
@click.option("--repeats", type=click.IntRange(1), default=15, show_default=True, help="How often each change is made.")
@click.option(
    "--repeats-large",
    type=click.IntRange(1),
    default=7,
    show_default=True,
    help=f"The same, for sizes from {LARGE:,} up.",
)
@click.option(
    "--cold-starts", type=click.IntRange(1), default=3, show_default=True, help="How often the start is made."
)
@click.option("--debounce", default="0ms", show_default=True, help="reconciler.debounceInterval")
@click.option("--min-interval", default="0ms", show_default=True, help="dataplane.minDeploymentInterval")
@click.option(
    "--rate",
    type=click.FloatRange(0, min_open=True),
    default=50.0,
    show_default=True,
    help="Requests a second of the client in the background, each on a new connection.",
)
@click.option(
    "--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), help="Write the figures there, too."
)
@click.option("--quick", is_flag=True, help="Only see that it works: 10 Ingresses, three changes of each kind.")
def main(
    *,
    sizes: tuple[int, ...],
    repeats: int,
    repeats_large: int,
    cold_starts: int,
    debounce: str,
    min_interval: str,
    rate: float,
    json_file: Path | None,
    quick: bool,
) -> None:
    options = Options(
        sizes=(10,) if quick else sizes,
        repeats=3 if quick else repeats,
        repeats_large=3 if quick else repeats_large,
        cold_starts=1 if quick else cold_starts,
        intervals=Intervals(debounce, min_interval),
        rate=rate,
    )
    try:
        measured = trio.run(_measure_until_signalled, options)
    except* HapticError as group:
        for error in _leaves(group):
            _say(f"error: {error}")
        sys.exit(1)
    if measured is None:
        sys.exit(130)
    print_tables(measured)
    if json_file is not None:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(measured)) + b"\n")


async def _measure_until_signalled(options: Options) -> Measured | None:
    measured: Measured | None = None
    async with trio.open_nursery() as nursery:

        async def cancel_on_signal(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                task_status.started()
                async for _number in signals:
                    nursery.cancel_scope.cancel(reason="signal")

        await nursery.start(cancel_on_signal)
        measured = await _measure_all(options)
        nursery.cancel_scope.cancel(reason="everything is measured")
    return measured


async def _measure_all(options: Options) -> Measured:
    python, system = describe_system()
    binary = find_haproxy()
    settings = Settings(
        sizes=options.sizes,
        repeats=options.repeats,
        repeats_large=options.repeats_large,
        debounce=options.intervals.debounce,
        min_deployment_interval=options.intervals.min_deployment,
        rate=options.rate,
        processors=count_processors(),
        python=python,
        system=system,
        haproxy=(await trio.to_thread.run_sync(probe_version, binary)).text,
        load=os.getloadavg()[0],
    )
    cases: list[Case] = []
    async with trio.open_nursery() as nursery:
        backends = Backends(
            one=await nursery.start(serve_backend, "one"),
            two=await nursery.start(serve_backend, "two"),
        )
        for size in options.sizes:
            with tempfile.TemporaryDirectory(prefix="haptic-trio-bench-") as directory, reserve_port(0) as port:
                site = Site(Path(directory), port=port, intervals=options.intervals)
                _say(f"{size:,} Ingresses: writing manifests")
                await trio.to_thread.run_sync(site.fill, size, backends.one)
                cases += await _measure_size(options, site, Path(directory), backends, size)
        nursery.cancel_scope.cancel(reason="everything is measured")
    return Measured(settings, cases)


async def _measure_size(options: Options, site: Site, directory: Path, backends: Backends, size: int) -> list[Case]:
    starts: list[Trial] = []
    usages: list[Usage] = []
    cases: list[Case] = []
    for number in range(options.cold_starts):
        since = trio.current_time()
        # A state directory of its own, so that there is nothing to adopt.
        async with run_controller(site.manifests, directory / f"state-{number}") as controller:
            starts.append(await measure_start(site, controller, since))
            usages.append(controller.usage())
            _say(f"{size:,} Ingresses: {COLD_START} {starts[-1].seconds[COLD_START]:.2f} s")
            if number < options.cold_starts - 1:
                continue
            cases.append(_start_case(size, starts, usages))
            background = Background()
            rig = Rig(site, backends, controller, background, size)
            hosts = [host_of(app_name(each)) for each in range(min(size, BACKGROUND_HOSTS))]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(background.run, site.port, hosts, options.rate)
                for change in rig.changes():
                    cases += await rig.measure(change, options.repeats_at(size), _say)
                    await rig.clear()
                nursery.cancel_scope.cancel(reason="this size is measured")
    return cases


def _start_case(size: int, starts: list[Trial], usages: list[Usage]) -> Case:
    return Case(
        size=size,
        name=COLD_START,
        n=len(starts),
        **summarize([start.seconds[COLD_START] for start in starts]),
        reloads=0,
        errors=0,
        requests=0,
        rss_mib=usages[-1].rss_mib,
        cpu_s=sum(usage.cpu_s for usage in usages) / len(usages),
        phases=median_phases([start.phases for start in starts]),
    )


def _leaves(group: BaseExceptionGroup) -> Iterator[BaseException]:
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            yield from _leaves(error)
        else:
            yield error


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
