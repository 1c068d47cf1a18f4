"""`agent`: runs beside an HAProxy and applies configurations for a controller elsewhere."""

import signal
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path

import click
import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from haptic_trio.cli.inputs.choices import default_state_dir
from haptic_trio.cli.inputs.options import check_listen, log_format_option
from haptic_trio.cli.serving.stopping import STOP_LIMIT, stop_limit
from haptic_trio.dataplane.agent.events import Observer
from haptic_trio.dataplane.agent.messages import AgentLimits
from haptic_trio.dataplane.agent.server import AgentOptions, ServedAgent, serve_agent
from haptic_trio.dataplane.agent.tls import TlsFiles
from haptic_trio.dataplane.binary import find_haproxy, need_supported
from haptic_trio.dataplane.local.attached import AttachedAgent
from haptic_trio.dataplane.local.instance import LocalAgent
from haptic_trio.dataplane.local.lost_files import LastingSupervisor, keep_directory
from haptic_trio.dataplane.local.process import find_record
from haptic_trio.dataplane.local.supervisor import OnExit
from haptic_trio.errors import HapticError, text_of
from haptic_trio.health import serve_app
from haptic_trio.logs import configure_logs, get_logger
from haptic_trio.slow_steps import log_slow_steps

DEFAULT_GRACE = 5.0
"""Seconds that HAProxy has to finish open connections when it is stopped."""
DRAIN_LIMIT = 10.0
"""Seconds that a running deployment has to finish after SIGINT or SIGTERM."""
_MIB = 1 << 20
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class AgentListenError(HapticError):
    """A port of the agent cannot be bound; retry once the address is free."""


class AgentCommand(msgspec.Struct, frozen=True, kw_only=True):
    """Options of `agent`."""

    name: str
    state_dir: Path
    haproxy: Path
    served: AgentOptions
    health_listen: str | None = None
    on_exit: OnExit = "leave"
    grace: float = DEFAULT_GRACE
    """Seconds that HAProxy has to finish open connections before `on_exit: stop` kills it."""
    attach: Path | None = None
    """Master socket of an HAProxy that is started by another program."""


class RunningAgent(msgspec.Struct, frozen=True):
    """Addresses of a started agent, for tests and embedding programs."""

    served: ServedAgent
    health: tuple[str, ...] = ()


def _check_health_listen(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    return None if value is None else check_listen(context, parameter, value)


@click.command()
@click.option(
    "--state-dir",
    type=click.Path(file_okay=False, path_type=Path),
    default=lambda: default_state_dir() / "agent",
    show_default="`agent` in the user's state directory",
    envvar="HAPTIC_AGENT_STATE_DIR",
    help="Directory for generations, journal and uploads. Each agent needs its own.",
)
@click.option(
    "--name",
    default=socket.gethostname,
    show_default="host name",
    envvar="HAPTIC_AGENT_NAME",
    help="Name of the agent in its log.",
)
@click.option(
    "--listen",
    default="0.0.0.0:5555",
    show_default=True,
    metavar="ADDRESS:PORT",
    callback=check_listen,
    envvar="HAPTIC_AGENT_LISTEN",
    help="Address for connections of controllers, TLS only. Port 0 selects a free port.",
)
@click.option(
    "--tls-cert",
    type=_FILE,
    required=True,
    envvar="HAPTIC_AGENT_TLS_CERT",
    help="Certificate chain of the agent (PEM).",
)
@click.option(
    "--tls-key", type=_FILE, required=True, envvar="HAPTIC_AGENT_TLS_KEY", help="Private key of --tls-cert (PEM)."
)
@click.option(
    "--client-ca",
    type=_FILE,
    required=True,
    envvar="HAPTIC_AGENT_CLIENT_CA",
    help="CA certificates that sign controllers' certificates (PEM).",
)
@click.option(
    "--allow-client",
    multiple=True,
    metavar="NAME",
    envvar="HAPTIC_AGENT_ALLOW_CLIENT",
    help="Common name or subject alternative name that a controller's certificate must have; may be repeated. Default:"
    " any certificate that --client-ca signed.",
)
@click.option(
    "--haproxy",
    metavar="PATH",
    envvar="HAPTIC_HAPROXY",
    help="HAProxy binary. Default: the one on PATH, else that of the `haproxy` extra.",
)
@click.option(
    "--attach",
    type=click.Path(path_type=Path),
    metavar="SOCKET",
    envvar="HAPTIC_AGENT_ATTACH",
    help="Do not start HAProxy; use the running one that has this master socket (-S). See docs/agent.md.",
)
@click.option(
    "--health-listen",
    metavar="ADDRESS:PORT",
    callback=_check_health_listen,
    envvar="HAPTIC_AGENT_HEALTH_LISTEN",
    help="Address for /healthz and /readyz, plain HTTP without authentication. Default: not served.",
)
@click.option(
    "--on-exit",
    type=click.Choice(["leave", "stop"]),
    default="leave",
    show_default=True,
    envvar="HAPTIC_AGENT_ON_EXIT",
    help="Leave HAProxy running when the agent exits (the next start adopts it), or stop it.",
)
@click.option(
    "--grace",
    type=click.FloatRange(0),
    default=DEFAULT_GRACE,
    show_default=True,
    envvar="HAPTIC_AGENT_GRACE",
    help="Seconds that HAProxy has to finish open connections before `--on-exit stop` kills it.",
)
@click.option(
    "--max-generation",
    type=click.IntRange(1),
    default=512,
    show_default=True,
    help="Maximum size of one generation, in MiB.",
)
@click.option(
    "--max-store",
    type=click.IntRange(1),
    default=256,
    show_default=True,
    help="Maximum size of all stored uploads, in MiB.",
)
@click.option(
    "--max-upload", type=click.IntRange(1), default=8, show_default=True, help="Maximum size of one upload, in MiB."
)
@click.option(
    "--max-requests",
    type=click.IntRange(1),
    default=16,
    show_default=True,
    help="Maximum number of concurrent requests.",
)
@click.option(
    "--max-rate",
    type=click.FloatRange(1),
    default=200.0,
    show_default=True,
    help="Maximum number of requests per second.",
)
@click.option(
    "--deadline",
    type=click.FloatRange(1),
    default=150.0,
    show_default=True,
    help="Maximum duration of one request, in seconds.",
)
@log_format_option
@click.option(
    "--log-level",
    type=click.Choice(["debug", "info", "warning", "error"]),
    default="info",
    show_default=True,
    envvar="HAPTIC_LOG_LEVEL",
    help="Minimum level of log lines.",
)
def agent(
    *,
    state_dir: Path,
    name: str,
    listen: str,
    tls_cert: Path,
    tls_key: Path,
    client_ca: Path,
    allow_client: tuple[str, ...],
    haproxy: str | None,
    attach: Path | None,
    health_listen: str | None,
    on_exit: OnExit,
    grace: float,
    max_generation: int,
    max_store: int,
    max_upload: int,
    max_requests: int,
    max_rate: float,
    deadline: float,
    log_format: str,
    log_level: str,
) -> None:
    """Run an HAProxy on this machine for a controller on another machine.

    The controller (`haptic-trio serve --agent NAME=https://HOST:PORT`)
    connects with a client certificate and deploys as it would to a local
    HAProxy: changes that the running HAProxy can take are applied without a
    reload, all others are checked with this machine's HAProxy binary first.
    Certificate files are reloaded when they change.

    \b
      haptic-trio agent --tls-cert agent.pem --tls-key agent.key --client-ca ca.pem
      haptic-trio agent ... --allow-client controller     only clients with this name
      haptic-trio agent ... --health-listen 0.0.0.0:8080  probes for Kubernetes

    Ctrl-C stops the agent and leaves HAProxy running. Exit codes: 0 stopped
    by a signal, 2 the command failed.
    """
    configure_logs("json" if log_format == "json" else "console", log_level)
    command = AgentCommand(
        name=name,
        state_dir=state_dir.absolute(),
        haproxy=find_haproxy(haproxy),
        served=AgentOptions(
            listen=listen,
            tls=TlsFiles(certificate=tls_cert, key=tls_key, authorities=client_ca),
            allowed=frozenset(allow_client),
            limits=AgentLimits(
                generation_bytes=max_generation * _MIB,
                store_bytes=max_store * _MIB,
                upload_bytes=max_upload * _MIB,
                concurrent=max_requests,
                rate=max_rate,
                deadline=deadline,
            ),
        ),
        health_listen=health_listen,
        on_exit=on_exit,
        grace=grace,
        attach=attach.absolute() if attach is not None else None,
    )
    trio.run(run_agent_until_signalled, command, instruments=[log_slow_steps()])


async def run_agent_until_signalled(command: AgentCommand) -> None:
    """Run the agent until SIGINT or SIGTERM; a running deployment gets `DRAIN_LIMIT` seconds to finish."""
    log = get_logger("agent")
    with stop_limit() as limit:
        async with trio.open_nursery() as nursery:
            with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                cells: list[RunningAgent] = []

                async def run() -> None:
                    async with trio.open_nursery() as running:
                        cells.append(await running.start(run_agent, command))

                # Not awaited, so that a signal also ends a start that hangs.
                nursery.start_soon(run)
                async for number in signals:
                    log.info("signal received, stopping", signal=signal.Signals(number).name)
                    break
                limit.begin(STOP_LIMIT + command.grace)
                if cells:
                    with trio.move_on_after(DRAIN_LIMIT):
                        # Never released: no other deployment begins.
                        await cells[0].served.observer.turn.acquire()
                nursery.cancel_scope.cancel(reason="signal")


async def run_agent(
    command: AgentCommand, *, task_status: trio.TaskStatus[RunningAgent] = trio.TASK_STATUS_IGNORED
) -> None:
    """Run the agent until cancelled; started() when its ports are bound and a start of HAProxy was attempted.

    Raises InstanceLockedError if another agent uses the state directory,
    TlsFilesError, and AgentListenError.
    """
    # Otherwise a binary that is not HAProxy would be noticed at the first deployment only.
    await trio.to_thread.run_sync(need_supported, command.haproxy)
    attach = command.attach
    endpoint = (
        LocalAgent(command.name, command.state_dir, command.haproxy, supervisor=LastingSupervisor)
        if attach is None
        else AttachedAgent(command.name, command.state_dir, command.haproxy, attach)
    )
    master_socket: Callable[[], Path | None] = (
        partial(_find_master_socket, command.state_dir) if attach is None else lambda: attach
    )
    log = get_logger("agent")
    async with trio.open_nursery() as nursery:
        await nursery.start(partial(endpoint.run, on_exit=command.on_exit, grace=command.grace))
        nursery.start_soon(keep_directory, endpoint, command.state_dir)
        try:
            served: ServedAgent = await nursery.start(
                partial(
                    serve_agent,
                    endpoint,
                    command.state_dir,
                    command.served,
                    master_socket=master_socket,
                    local=attach is None,
                )
            )
        except* OSError as group:
            raise _listen_error(command.served.listen, group) from group
        log.info("agent is served", addresses=served.addresses)
        health: tuple[str, ...] = ()
        if command.health_listen is not None:
            try:
                health = tuple(await nursery.start(serve_app, _make_health_app(served.observer), command.health_listen))
            except* OSError as group:
                raise _listen_error(command.health_listen, group) from group
            log.info("health is served", addresses=health)
        task_status.started(RunningAgent(served, health))


def _listen_error(address: str, group: BaseExceptionGroup[OSError]) -> AgentListenError:
    return AgentListenError(f"cannot listen on {address}: {text_of(group)}")


def _find_master_socket(state_dir: Path) -> Path | None:
    record = find_record(state_dir)
    return Path(record.sockets) / "master.sock" if record is not None else None


def _make_health_app(observer: Observer) -> Starlette:
    def answer(*, ok: bool) -> Response:
        content = msgspec.json.encode(observer.health())
        return Response(content, status_code=200 if ok else 503, media_type="application/json")

    async def healthz(_request: Request) -> Response:
        return answer(ok=observer.health().live)

    async def readyz(_request: Request) -> Response:
        return answer(ok=observer.health().ready)

    return Starlette(routes=[Route("/healthz", healthz), Route("/readyz", readyz)])
