"""`serve`: the long-running controller; owns the lifetime of the process."""

import gc
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import click
import msgspec
import trio

from haptic_trio import __version__
from haptic_trio.cancellation import cancelled_first
from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.cli.inputs.choices import state_dir_option
from haptic_trio.cli.inputs.cluster import begin_reading, make_cluster, places_of
from haptic_trio.cli.inputs.options import InputOptions, check_listen, input_options, log_format_option
from haptic_trio.cli.inputs.source_map import with_places
from haptic_trio.cli.inputs.unused import reporting_unused
from haptic_trio.cli.output.progress import SILENT, Steps, showing_steps
from haptic_trio.cli.serving.announcement import Announcement
from haptic_trio.cli.serving.console import console_options, make_console, summaries_of
from haptic_trio.cli.serving.endpoints import (
    AgentList,
    ApiList,
    PodMode,
    agent_options,
    count_wanted,
    make_agent_list,
    make_api_list,
    make_instances,
    make_pod_mode,
)
from haptic_trio.cli.serving.fleet import serving_control, with_fleet
from haptic_trio.cli.serving.loading import choose_load, reserving
from haptic_trio.cli.serving.option_groups import GROUPS, GroupedCommand
from haptic_trio.cli.serving.probes import Scrapes, health_of, observing
from haptic_trio.cli.serving.publishing import Publishing, make_publishing, make_status_access, publish_options
from haptic_trio.cli.serving.start_steps import StartSteps
from haptic_trio.cli.serving.state_directory import keep_directories, make_scratch, retained_in
from haptic_trio.cli.serving.stopping import STOP_LIMIT, stop_limit
from haptic_trio.cli.serving.tracing import otlp_option, tracing
from haptic_trio.cli.serving.webhook import serve_reviews, webhook_options
from haptic_trio.commentator import run_commentator
from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.binary import find_haproxy, need_supported
from haptic_trio.dataplane.dataplaneapi.endpoints import ApiAddress
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.local.directory_lock import lock_directory
from haptic_trio.dataplane.local.supervisor import OnExit
from haptic_trio.deployment.pods import PodEndpoints
from haptic_trio.errors import HapticError, Problem, text_of
from haptic_trio.health import make_app, serve_app
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.manifests.schemas import check_manifest
from haptic_trio.logs import MAIN, configure_logs, get_logger
from haptic_trio.messages import LeadershipChanged, ProblemsReported
from haptic_trio.metrics import Metrics, add_process
from haptic_trio.slow_steps import log_slow_steps
from haptic_trio.stages.controller import run_controller
from haptic_trio.stages.election import lead_alone, make_identity, run_leadership
from haptic_trio.stages.fleets.local import LocalFleet, make_local_fleet
from haptic_trio.stages.fleets.pods import PodFleet, make_pod_fleet
from haptic_trio.stages.gc_tuning import Collections
from haptic_trio.stages.process import Process
from haptic_trio.telemetry.accounts import Accounts
from haptic_trio.validation_tests.gate import GuardedLoad
from haptic_trio.webhook.server import WebhookOptions
from haptic_trio.workqueue.metrics import WorkQueueMetrics


class ListenError(HapticError):
    """The port for health and metrics cannot be bound; retry once the address is free."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `serve`."""

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
    """Debug console: `on`, `off`, or `auto`, which is on if *listen* is a loopback address."""
    console_hosts: tuple[str, ...] = ()
    """Additional host names in requests to the console."""
    console_token_file: Path | None = None
    webhook: WebhookOptions | None = None
    """None: no webhook."""
    otlp_endpoint: str = ""
    """Receiver of traces; empty: from OpenTelemetry's environment variables, if set."""
    on_exit: str = "leave"
    """`leave` HAProxy running, to be adopted by the next start, or `stop` it."""
    follow_log_level: bool = False
    logs_to_terminal: bool = False
    """Log lines may have the token of the console, and progress is shown below them."""
    steps: Steps = SILENT
    """Shows how much of a directory of manifests was read."""


class Serving(msgspec.Struct, frozen=True):
    """The started controller, for tests and embedding programs."""

    process: Process
    addresses: tuple[str, ...]
    """Addresses of health and metrics."""


@click.command(cls=GroupedCommand, groups=GROUPS)
@input_options
@state_dir_option("Directory for the files of local HAProxy instances.")
@click.option(
    "--instances",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    envvar="HAPTIC_INSTANCES",
    help="Number of local HAProxy instances, which share their ports, unless `instances.size` of the configuration is"
    " set.",
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
    help="Address for /healthz, /readyz, /metrics and the debug console. Port 0 selects a free port.",
)
@console_options
@otlp_option
@webhook_options
@click.option(
    "--on-exit",
    type=click.Choice(["leave", "stop"]),
    default="leave",
    show_default=True,
    help="Leave HAProxy running when the controller exits (the next start adopts it), or stop it within 5 seconds.",
)
@log_format_option
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    envvar="HAPTIC_LOG_LEVEL",
    show_default="`logging.level` of the configuration",
    help="Minimum level of log lines; overrides the configuration.",
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
    publish_nodes: str | None,
    listen: str,
    console: str,
    console_hosts: tuple[str, ...],
    console_token_file: Path | None,
    otlp_endpoint: str,
    webhook: WebhookOptions | None,
    on_exit: str,
    log_format: str,
    log_level: str | None,
) -> None:
    """Run the controller: keep HAProxy in sync with an API server, or with a directory of manifests.

    \b
      haptic-trio serve --manifests DIR                     HAProxy on this machine
      haptic-trio serve --manifests DIR --instances 2       two instances that share their ports
      haptic-trio serve --kubeconfig FILE                   an API server instead of a directory
      haptic-trio serve --manifests DIR --agent NAME=URL    HAProxy on other machines, with `haptic-trio agent`

    Changed objects are applied without a reload if the running HAProxy can
    take the change. A changed ConfigMap starts a new iteration; an invalid
    ConfigMap is reported and ignored. Ctrl-C stops the controller and leaves
    HAProxy running.

    Exit codes: 0 stopped by a signal, 2 the command failed.
    """
    configure_logs("json" if log_format == "json" else "console", log_level or "info")
    options = ServeOptions(
        input=source,
        state_dir=state_dir.absolute(),
        instances=instances,
        agents=make_agent_list(agents, agent_ca, agent_cert, agent_key),
        apis=make_api_list(apis, dataplane_ca, os.environ, agents=agents, pods=pods),
        pods=make_pod_mode(pods, agents, agent_ca, agent_cert, agent_key, agent_server_name),
        publishing=make_publishing(publish_service, publish_addresses, publish_nodes, pods=pods),
        listen=listen,
        console=console,
        console_hosts=console_hosts,
        console_token_file=console_token_file,
        otlp_endpoint=otlp_endpoint,
        webhook=webhook,
        on_exit=on_exit,
        follow_log_level=log_level is None,
        logs_to_terminal=log_format == "console" and sys.stderr.isatty(),
    )
    trio.run(serve_until_signalled, options, instruments=[log_slow_steps()])


async def serve_until_signalled(options: ServeOptions) -> None:
    """Run the controller until SIGINT or SIGTERM."""
    with stop_limit() as limit, ExitStack() as shown:
        if options.logs_to_terminal:
            options = msgspec.structs.replace(options, steps=shown.enter_context(showing_steps(sys.stderr)))
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                # Not awaited, so that a signal also ends a start that hangs.
                nursery.start_soon(partial(run_serve, options, observe=StartSteps(options.steps, shown.close).take))
                async for number in signals:
                    shown.close()
                    get_logger("serve").info("signal received, stopping", signal=signal.Signals(number).name)
                    break
                limit.begin(STOP_LIMIT)
                nursery.cancel_scope.cancel(reason="signal")


async def run_serve(
    options: ServeOptions,
    *,
    observe: Callable[[msgspec.Struct], None] | None = None,
    task_status: trio.TaskStatus[Serving] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the controller until cancelled; started() when listeners are bound and the cluster has been read.

    *observe* is called with every event and must not block. Raises
    InstanceLockedError if another controller uses the state directory, and
    ListenError if the address to listen on cannot be bound.

    Owns, from the outside in: commentator, listeners, cluster, HAProxy
    instances, iterations. The iteration ends first, so that everything it
    uses outlives it.
    """
    # Before any access: another controller may use the directory.
    async with lock_directory(options.state_dir):
        await _run_locked(options, observe, task_status)


async def _run_locked(
    options: ServeOptions, observe: Callable[[msgspec.Struct], None] | None, task_status: trio.TaskStatus[Serving]
) -> None:
    tune_interpreter()
    log = get_logger(MAIN)
    events, metrics = EventBuffer(), Metrics()
    binary = find_haproxy(options.input.haproxy)
    # Otherwise a binary that is not HAProxy would be noticed at the first deployment only.
    add_process(metrics, __version__, (await trio.to_thread.run_sync(need_supported, binary)).text)
    scratch, remnants = await trio.to_thread.run_sync(make_scratch, options.state_dir)
    endpoints, leadership = Latest[tuple[Endpoint, ...]](), Latest[LeadershipChanged]()

    def report(source: str, problems: tuple[Problem, ...]) -> None:
        events.record(ProblemsReported(source=source, problems=problems))

    cluster = make_cluster(options.input, report, check_manifest)
    begin_reading(options.steps, cluster)
    load = reserving(
        choose_load(options.agents, options.apis, options.pods),
        options.agents,
        (options.listen, options.webhook.listen if options.webhook is not None else None),
    )
    namespace, identity = options.input.source.namespace, make_identity()
    server = cluster if isinstance(cluster, ApiCluster) else None
    process = Process(
        client=cluster,
        source=options.input.source,
        load=with_places(
            reporting_unused(GuardedLoad(load, binary, scratch=scratch), options.input, report), options.input
        ),
        status_access=make_status_access(options.publishing, server, identity),
        haproxy=binary,
        scratch=scratch,
        endpoints=endpoints,
        leadership=leadership,
        events=events,
        places=places_of(options.input, cluster, stays=True),
        retained=retained_in(options.state_dir),
        queue_metrics=WorkQueueMetrics(metrics.registry),
        collections=Collections(wanted=True),
        follow_log_level=options.follow_log_level,
    )
    fleet = _make_fleet(options, process, server)
    pods = PodEndpoints(cluster, namespace, options.pods.access, report=report) if options.pods is not None else None
    process = with_fleet(process, fleet, pods)
    console = await make_console(
        *(options.console, options.listen, options.state_dir, process),
        names=options.console_hosts,
        token_file=options.console_token_file,
    )
    scrapes = Scrapes(metrics.families, process, cluster)
    async with (
        tracing(options.otlp_endpoint, identity) as trace,
        # If all tasks were cancelled at once, supervisors would release their HAProxy processes while a deployment
        # still drains; the deployment would start a new process.
        cancelled_first() as controlled,
        trio.open_nursery() as narrating,
    ):
        announcement = Announcement(
            partial(count_wanted, process, options.agents or options.apis, options.pods, options.instances),
            console,
            shows_token=options.logs_to_terminal,
        )
        observe = observing(Accounts(metrics).take, announcement.take, trace, console.observing(observe))
        await narrating.start(partial(run_commentator, events, log=log, metrics=metrics, observe=observe))
        async with trio.open_nursery() as serving:
            # Outermost: the Lease is released after the last deployment and before the connection closes.
            async with trio.open_nursery() as electing:
                with controlled:
                    app = make_app(
                        partial(health_of, process),
                        metrics.registry,
                        console.routes,
                        prepare=scrapes.prepare,
                        problems=summaries_of(process).latest,
                    )
                    try:
                        addresses = await serving.start(serve_app, app, options.listen)
                    except* OSError as group:
                        raise ListenError(
                            f"cannot listen on {options.listen}: {text_of(group)}; select another port with --listen"
                        ) from group
                    log.info("health and metrics are served", addresses=addresses)
                    serving.start_soon(console.run, addresses)
                    await process.collections.pausing(partial(serving.start, cluster.run))
                    serving.start_soon(keep_directories, options.state_dir, remnants)
                    endpoints.put(
                        tuple(await serving.start(make_instances(process, options.agents or options.apis, fleet)) or ())
                    )
                    if server is None:
                        lead_alone(leadership, events)
                    else:
                        await electing.start(
                            partial(
                                run_leadership,
                                server,
                                namespace,
                                process.election,
                                leadership,
                                identity=identity,
                                events=events,
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
                electing.cancel_scope.cancel(reason="the controller ended")
            serving.cancel_scope.cancel(reason="the controller ended")
        narrating.cancel_scope.cancel(reason="the controller ended")


def tune_interpreter() -> None:
    """Set up the interpreter of this process for an event loop beside threads that render."""
    # Threads that render and compare share the interpreter with the event loop, which asks for it again after each of
    # the 40 system calls of a deployment. Beside two busy threads, these took up to 57 ms with 0.5 ms, and take 17 ms.
    sys.setswitchinterval(0.0002)
    # A render makes many small objects, hardly any of them in cycles. With the default threshold of 700, garbage
    # collection takes a fifth of the time.
    gc.set_threshold(10_000, 10, 3)


def _make_fleet(options: ServeOptions, process: Process, server: ApiCluster | None) -> LocalFleet | PodFleet | None:
    """Return the fleet that starts or observes the instances; None if the instances are a fixed list."""
    if options.pods is not None:
        return make_pod_fleet(process, server) if server is not None else None
    if options.agents is not None or options.apis is not None:
        return None
    on_exit: OnExit = "stop" if options.on_exit == "stop" else "leave"
    return make_local_fleet(process, options.state_dir, size=options.instances, on_exit=on_exit)
