"""`demo`: runs a complete example: backends, controller and HAProxy."""

import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from functools import partial
from pathlib import Path

import click
import msgspec
import trio

from haptic_trio.cli.inputs.options import make_input
from haptic_trio.cli.serve import ServeOptions, run_serve
from haptic_trio.demo.backends import run_backends
from haptic_trio.demo.check import print_results, run_story
from haptic_trio.demo.client import DemoClient
from haptic_trio.demo.event_log import EventLog
from haptic_trio.demo.guide import guide_to
from haptic_trio.demo.ports import reserve_port
from haptic_trio.demo.running import RunningDemo
from haptic_trio.demo.site import USUAL_PORTS, DemoPorts, write_site
from haptic_trio.logs import configure_logs
from haptic_trio.messages import DeploymentCompleted

FIRST_ANSWER_LIMIT = 30.0
PROGRAM = "haptic-trio"


class DemoOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `demo`."""

    directory: Path
    ports: DemoPorts
    haproxy: str | None
    instances: int


@click.command()
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(".demo"),
    show_default=True,
    help="Directory for the manifests and HAProxy's files. Files of the demo are overwritten, others stay.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Run all steps automatically, in a temporary directory and on free ports; exit with 0 or 1.",
)
@click.option("--haproxy", metavar="PATH", envvar="HAPTIC_HAPROXY", help="HAProxy binary.")
@click.option(
    "--instances",
    type=click.IntRange(1, 8),
    default=1,
    show_default=True,
    help="Number of HAProxy instances.",
)
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    help="Minimum level of log lines.",
)
def demo(directory: Path, check: bool, haproxy: str | None, instances: int, log_level: str) -> None:
    """Run HAProxy with a directory of example manifests that you can edit.

    Starts small HTTP backends, the controller and HAProxy, all on the
    loopback interface, and prints what to request and what to edit. Ctrl-C
    ends all of it; the directory stays. Needs neither root nor Kubernetes.
    """
    configure_logs("console", log_level)
    if not check:
        options = DemoOptions(directory=directory, ports=USUAL_PORTS, haproxy=haproxy, instances=instances)
        trio.run(_run_until_signalled, options)
        return
    with tempfile.TemporaryDirectory(prefix="haptic-trio-demo-") as temporary:
        options = DemoOptions(directory=Path(temporary), ports=DemoPorts(), haproxy=haproxy, instances=instances)
        results = trio.run(run_story, partial(open_demo, options))
    print_results(results)
    sys.exit(0 if all(result.ok for result in results) else 1)


@asynccontextmanager
async def open_demo(options: DemoOptions) -> AsyncIterator[RunningDemo]:
    """Run backends, controller and HAProxy for the duration of the block."""
    wanted = options.ports
    events = EventLog()
    async with trio.open_nursery() as nursery:
        backends: dict[str, int] = await nursery.start(
            run_backends, {"web-one": wanted.web_one, "web-two": wanted.web_two, "api": wanted.api}
        )
        with ExitStack() as reserved:
            ports = DemoPorts(
                http=reserved.enter_context(reserve_port(wanted.http)),
                https=reserved.enter_context(reserve_port(wanted.https)),
                web_one=backends["web-one"],
                web_two=backends["web-two"],
                api=backends["api"],
            )
            site = await trio.to_thread.run_sync(write_site, options.directory, ports)
            serve = ServeOptions(
                input=make_input(site.manifests, "default", "haptic-trio", "haptic-trio", options.haproxy),
                state_dir=site.state,
                instances=options.instances,
                listen="127.0.0.1:0",
                on_exit="stop",
                logs_to_terminal=sys.stderr.isatty(),
            )
            serving = await nursery.start(partial(run_serve, serve, observe=events.take))
            yield RunningDemo(site=site, serving=serving, events=events)
            nursery.cancel_scope.cancel(reason="the demo ended")


async def _run_until_signalled(options: DemoOptions) -> None:
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            nursery.start_soon(_show, options)
            async for _number in signals:
                break
            click.echo(f"\nStopping. The manifests stay in {options.directory}.")
            nursery.cancel_scope.cancel(reason="signal")


async def _show(options: DemoOptions) -> None:
    async with open_demo(options) as running, DemoClient.open(running.site) as client:
        with trio.move_on_after(FIRST_ANSWER_LIMIT) as waiting:
            await client.wait_for(lambda answer: answer.status == 200)
            await running.events.wait_for(DeploymentCompleted, lambda event: bool(event.results), since=0)
        if waiting.cancelled_caught:
            click.secho("HAProxy does not answer yet; see the log.", fg="yellow")
        click.echo(guide_to(running.site, running.serving.addresses[0], options.directory, _program()))
        await trio.sleep_forever()


def _program() -> str:
    """Return the command for this program in a shell: with its path if it is not on PATH."""
    called = Path(sys.argv[0])
    return str(called) if called.name == PROGRAM and shutil.which(PROGRAM) is None else PROGRAM
