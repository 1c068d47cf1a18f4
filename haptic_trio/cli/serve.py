"""`serve`: the long-running controller, and the owner of the process's lifetime."""

import gc
import os
import shutil
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import click
import msgspec
import trio

from haptic_trio import __version__
from haptic_trio.channels import Facts, Latest
from haptic_trio.cli.inputs.choices import state_dir_option
from haptic_trio.cli.inputs.cluster import make_cluster
from haptic_trio.cli.inputs.options import InputOptions, check_listen, input_options, log_format_option
from haptic_trio.cli.inputs.source_map import placing
from haptic_trio.cli.serving.console import console_host_option, console_option, make_console
from haptic_trio.cli.serving.endpoints import (
    AgentList,
    ApiList,
    PodMode,
    agent_options,
    make_agent_list,
    make_api_list,
    make_pod_mode,
    run_agent_list,
    run_api_list,
)
from haptic_trio.cli.serving.fleet import serving_control, with_fleet
from haptic_trio.cli.serving.loading import choose_load, reserving
from haptic_trio.cli.serving.probes import Scrapes, health_of, observing
from haptic_trio.cli.serving.publishing import Publishing, make_publishing, publish_options
from haptic_trio.cli.serving.tracing import otlp_option, tracing
from haptic_trio.cli.serving.webhook import serve_reviews, webhook_options
from haptic_trio.commentator import run_commentator
from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.binary import find_haproxy, probe_version
from haptic_trio.dataplane.dataplaneapi.endpoints import ApiAddress
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.local.instance import lock_directory
from haptic_trio.dataplane.local.supervisor import OnExit
from haptic_trio.deployment.pods import PodEndpoints
from haptic_trio.errors import HapticError, Problem, leaves_of
from haptic_trio.health import make_app, serve_app
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.logs import configure_logs, get_logger
from haptic_trio.messages import LeadershipChanged, ProblemsReported
from haptic_trio.metrics import Metrics, add_process
from haptic_trio.stages.controller import run_controller
from haptic_trio.stages.election import lead_alone, make_identity, run_leadership
from haptic_trio.stages.fleet import LocalFleet, make_local_fleet
from haptic_trio.stages.pod_fleet import PodFleet, make_pod_fleet
from haptic_trio.stages.process import Process, StatusAccess
from haptic_trio.telemetry.accounts import Accounts
from haptic_trio.validation_tests.gate import GuardedLoad
from haptic_trio.webhook.server import WebhookOptions
from haptic_trio.workqueue.metrics import WorkQueueMetrics


class ListenError(HapticError):
    """The port for health and metrics cannot be bound; trying again helps once the address is free."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How `serve` runs."""

    input: InputOptions
    state_dir: Path
    instances: int = 1
    agents: AgentList | None = None
    """Deploy to these instead of to local instances."""
    apis: ApiList | None = None
    """Deploy over these Data Plane APIs instead of to local instances."""
    pods: PodMode | None = None
    """Deploy to pods instead of to local instances."""
    publishing: Publishing = Publishing()
    listen: str = "127.0.0.1:9090"
    console: str = "auto"
    """Whether there is a debug console: `on`, `off`, or `auto`, which is on where *listen* is a loopback address."""
    console_hosts: tuple[str, ...] = ()
    """Further names by which the console may be asked for."""
    webhook: WebhookOptions | None = None
    """Where the API server may ask; None: nowhere."""
    otlp_endpoint: str = ""
    """Where traces are sent; empty: where OpenTelemetry's variables say, if they do."""
    on_exit: str = "leave"
    """`leave` HAProxy serving, to be adopted by the next start, or `stop` it."""
    follow_log_level: bool = False


class Serving(msgspec.Struct, frozen=True):
    """What is running, for those who start it from within."""

    process: Process
    addresses: tuple[str, ...]
    """Where health and metrics are served."""


@click.command()
@input_options
@state_dir_option("Where the files of local HAProxy instances are kept.")
@click.option(
    "--instances",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    envvar="HAPTIC_INSTANCES",
    help="How many local HAProxy instances to run side by side, where `instances.size` of the configuration says"
    " nothing; they share their ports.",
)
@agent_options
@publish_options
@click.option(
    "--listen",
    default="127.0.0.1:9090",
    show_default=True,
    metavar="ADDRESS:PORT",
    callback=check_listen,
    envvar="HAPTIC_LISTEN",
    help="Where /healthz, /readyz, /metrics and the debug console are served; port 0 takes any free one.",
)
@console_option
@console_host_option
@otlp_option
@webhook_options
@click.option(
    "--on-exit",
    type=click.Choice(["leave", "stop"]),
    default="leave",
    show_default=True,
    help="Leave HAProxy serving when the controller ends (the next start adopts it), or stop it: it has 5 seconds to"
    " finish what it serves.",
)
@log_format_option
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="HAPTIC_LOG_LEVEL",
    show_default="`logging.level` of the configuration",
    help="The least level of lines that are logged, whatever the configuration says.",
)
def serve(
    *,
    source: InputOptions,
    state_dir: Path,
    instances: int,
    agents: tuple[AgentAddress, ...],
    agent_ca: Path | None,
    agent_cert: Path | None,
    agent_key: Path | None,
    pods: bool,
    agent_server_name: str,
    apis: tuple[ApiAddress, ...],
    dataplane_ca: Path | None,
    publish_service: tuple[str, str] | None,
    publish_addresses: tuple[str, ...],
    listen: str,
    console: str,
    console_hosts: tuple[str, ...],
    otlp_endpoint: str,
    webhook: WebhookOptions | None,
    on_exit: str,
    log_format: str,
    log_level: str | None,
) -> None:
    """Keep HAProxy in step with a cluster: an API server, or a directory in which every YAML document is an object.

    \b
      haptic-trio serve --manifests DIR                     HAProxy on this machine
      haptic-trio serve --manifests DIR --instances 2       two of them, which share their ports
      haptic-trio serve --kubeconfig FILE                   an API server instead of a directory
      haptic-trio serve --manifests DIR --agent NAME=URL    HAProxy elsewhere, beside `haptic-trio agent`

    Change objects while it runs: what the running HAProxy can take is
    applied without a reload. A changed ConfigMap closes and reopens the
    whole iteration; an invalid one changes nothing. Ctrl-C ends the
    controller and leaves HAProxy serving.

    Exit codes: 0 it was told to end, 2 it could not do its work.
    """
    configure_logs("json" if log_format == "json" else "console", log_level or "info")
    options = ServeOptions(
        input=source,
        state_dir=state_dir.absolute(),
        instances=instances,
        agents=make_agent_list(agents, agent_ca, agent_cert, agent_key),
        apis=make_api_list(apis, dataplane_ca, os.environ, agents=agents, pods=pods),
        pods=make_pod_mode(pods, agents, agent_ca, agent_cert, agent_key, agent_server_name),
        publishing=make_publishing(publish_service, publish_addresses),
        listen=listen,
        console=console,
        console_hosts=console_hosts,
        otlp_endpoint=otlp_endpoint,
        webhook=webhook,
        on_exit=on_exit,
        follow_log_level=log_level is None,
    )
    trio.run(serve_until_signalled, options)


async def serve_until_signalled(options: ServeOptions) -> None:
    """Run the controller until SIGINT or SIGTERM."""
    async with trio.open_nursery() as nursery:
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            # Not awaited: a start that hangs can be ended, too.
            nursery.start_soon(run_serve, options)
            async for number in signals:
                get_logger("serve").info("signal received, ending", signal=signal.Signals(number).name)
                break
            nursery.cancel_scope.cancel(reason="signal")


async def run_serve(
    options: ServeOptions,
    *,
    observe: Callable[[msgspec.Struct], None] | None = None,
    task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the controller until cancelled; started() when listeners are bound and the cluster has been read.

    Every fact is shown to *observe*, which must not block. Raises
    InstanceLockedError when another controller has the state directory, and
    ListenError when the address to listen on cannot be bound.

    Owns, from the outside in: commentator, listeners, cluster, HAProxy
    instances, iterations. What ends first is the iteration, so that nothing
    it uses goes away before it.
    """
    # Before anything in it is touched: it may be another controller's.
    with lock_directory(options.state_dir):
        await _run_locked(options, observe, task_status)


async def _run_locked(
    options: ServeOptions, observe: Callable[[msgspec.Struct], None] | None, task_status: trio.TaskStatus[Serving]
) -> None:
    # Rendering shares the interpreter with this loop: hand over more often than every 5 ms.
    sys.setswitchinterval(0.0005)
    # A render makes many small objects, hardly any of them in cycles. With the usual 700 between two looks at them
    # the garbage collector takes a fifth of the time.
    gc.set_threshold(10_000, 10, 3)
    log = get_logger("haptic-trio")
    facts, metrics = Facts(), Metrics()
    binary = find_haproxy(options.input.haproxy)
    # Something else by that name would be found out at the first deployment only.
    add_process(metrics, __version__, (await trio.to_thread.run_sync(probe_version, binary)).text)
    scratch = await trio.to_thread.run_sync(_make_scratch, options.state_dir)
    endpoints: Latest[tuple[Endpoint, ...]] = Latest()
    leadership: Latest[LeadershipChanged] = Latest()

    def report(source: str, problems: tuple[Problem, ...]) -> None:
        facts.tell(ProblemsReported(source=source, problems=problems))

    cluster = make_cluster(options.input, report)
    listens = (options.listen, options.webhook.listen if options.webhook is not None else None)
    load = reserving(choose_load(options.agents, options.apis, options.pods), options.agents, listens)
    namespace, identity = options.input.source.namespace, make_identity()
    server = cluster if isinstance(cluster, ApiCluster) else None
    process = Process(
        client=cluster,
        source=options.input.source,
        load=placing(GuardedLoad(load, binary, scratch=scratch), options.input),
        status_access=_status_access(options, server, identity),
        haproxy=binary,
        scratch=scratch,
        endpoints=endpoints,
        leadership=leadership,
        facts=facts,
        queue_metrics=WorkQueueMetrics(metrics.registry),
        tunes_gc=True,
        follow_log_level=options.follow_log_level,
    )
    fleet = _make_fleet(options, process, server)
    pods = PodEndpoints(cluster, namespace, options.pods.access, report=report) if options.pods is not None else None
    process = with_fleet(process, fleet, pods)
    console = await make_console(
        options.console, options.listen, options.state_dir, process, names=options.console_hosts
    )
    scrapes = Scrapes(metrics.families, process, cluster)
    async with (
        tracing(options.otlp_endpoint, identity) as trace,
        _ending_first() as controlled,
        trio.open_nursery() as narrating,
    ):
        observe = observing(Accounts(metrics).take, trace, console.observing(observe))
        await narrating.start(partial(run_commentator, facts, log=log, metrics=metrics, observe=observe))
        async with trio.open_nursery() as serving:
            # Outside of what leads: the lease is given back after the last deployment, and before the connection goes.
            async with trio.open_nursery() as electing:
                with controlled:
                    app = make_app(
                        partial(health_of, process), metrics.registry, console.routes, prepare=scrapes.prepare
                    )
                    try:
                        addresses = await serving.start(serve_app, app, options.listen)
                    except* OSError as group:
                        raise ListenError(f"cannot listen on {options.listen}: {_reason_of(group)}") from group
                    log.info("health and metrics are served", addresses=addresses)
                    console.announce(addresses)
                    await serving.start(cluster.run)
                    endpoints.put(tuple(await serving.start(_make_instances(options, process, fleet)) or ()))
                    if server is None:
                        lead_alone(leadership, facts)
                    else:
                        await electing.start(
                            partial(
                                run_leadership,
                                server,
                                namespace,
                                process.election,
                                leadership,
                                identity=identity,
                                facts=facts,
                            )
                        )
                    async with serving_control(options.state_dir, process), trio.open_nursery() as controlling:
                        if fleet is not None:
                            controlling.start_soon(fleet.run)
                        controlling.start_soon(run_controller, process)
                        controlling.start_soon(
                            partial(serve_reviews, process, options.webhook, metrics.families, report, load=load)
                        )
                        task_status.started(Serving(process, tuple(addresses)))
                electing.cancel_scope.cancel(reason="the controller has ended")
            serving.cancel_scope.cancel(reason="the controller has ended")
        narrating.cancel_scope.cancel(reason="nothing is left to narrate")


@asynccontextmanager
async def _ending_first() -> AsyncIterator[trio.CancelScope]:
    """Shield the block, and yield the scope within it that a cancellation from outside is to end.

    Cancelled all at once, the supervisors would let go of their HAProxy
    processes while a deployment is still being drained: it would find none,
    and start another.
    """
    first = trio.CancelScope()

    async def forward() -> None:
        try:
            await trio.sleep_forever()
        finally:
            first.cancel(reason="the process ends")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(forward)
        # Bounded by those within: the drain timeout of a deployment, and the grace of an instance.
        with trio.CancelScope(shield=True):  # noqa: ASYNC100  what waits is in the caller's block
            yield first
        nursery.cancel_scope.cancel(reason="the block has ended")


def _reason_of(error: BaseException) -> str:
    first = next(leaves_of(error))
    return getattr(first, "strerror", None) or str(first)


def _status_access(options: ServeOptions, server: ApiCluster | None, identity: str) -> StatusAccess | None:
    if server is None:
        return None
    publishing = options.publishing
    return StatusAccess(server=server, instance=identity, service=publishing.service, addresses=publishing.addresses)


def _make_instances(
    options: ServeOptions, process: Process, fleet: LocalFleet | PodFleet | None
) -> Callable[..., Awaitable[None]]:
    """Return what keeps the instances; its started() may give some, later ones it puts into the process."""
    if process.fleet.pods is not None:
        return partial(process.fleet.pods.run, process.endpoints.put)
    if options.agents is not None:
        return partial(run_agent_list, options.agents, process.endpoints.put)
    if options.apis is not None:
        return partial(run_api_list, options.apis, process)
    assert isinstance(fleet, LocalFleet), "there are no other ways"
    return fleet.provider.run


def _make_fleet(options: ServeOptions, process: Process, server: ApiCluster | None) -> LocalFleet | PodFleet | None:
    """Return who makes the instances, or looks at them; None where they are a list of others'."""
    if options.pods is not None:
        return make_pod_fleet(process, server) if server is not None else None
    if options.agents is not None or options.apis is not None:
        return None
    on_exit: OnExit = "stop" if options.on_exit == "stop" else "leave"
    return make_local_fleet(process, options.state_dir, size=options.instances, on_exit=on_exit)


def _make_scratch(state_dir: Path) -> Path:
    """Return an empty private directory; what a killed process left in it, keys perhaps, is removed."""
    scratch = state_dir / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    return scratch
