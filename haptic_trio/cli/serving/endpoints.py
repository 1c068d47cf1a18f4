"""Endpoint options of `serve`: local processes, agents, Data Plane APIs, or pods."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import trio

from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.agent.endpoints import RemoteAgents
from haptic_trio.dataplane.agent.tls import TlsFiles
from haptic_trio.dataplane.dataplaneapi.client import Credentials
from haptic_trio.dataplane.dataplaneapi.endpoints import ApiAddress, RemoteApis
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.presence import Report
from haptic_trio.deployment.pods import AGENT_NAME, AgentAccess
from haptic_trio.errors import Problem
from haptic_trio.messages import ProblemsReported
from haptic_trio.stages.fleets.local import LocalFleet
from haptic_trio.stages.fleets.pods import PodFleet
from haptic_trio.stages.process import Process

F = TypeVar("F", bound=Callable[..., Any])

_AGENT = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)=(?P<url>https://(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?)/?"
)
_API = re.compile(
    r"(?:(?P<name>[A-Za-z0-9][\w.-]*)=)?"
    r"(?P<url>https?://(?P<host>\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?)/?"
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
USERNAME = "HAPTIC_DATAPLANE_USERNAME"
PASSWORD = "HAPTIC_DATAPLANE_PASSWORD"  # noqa: S105  the name of a variable
"""Environment variables that override the Secret; options would be visible in the process list."""


class AgentList(msgspec.Struct, frozen=True, kw_only=True):
    """A fixed list of agents."""

    addresses: tuple[AgentAddress, ...]
    tls: TlsFiles


class ApiList(msgspec.Struct, frozen=True, kw_only=True):
    """A fixed list of Data Plane APIs."""

    addresses: tuple[ApiAddress, ...]
    authorities: Path | None = None
    """CA certificates; None: those of the system."""
    credentials: Credentials | None = None
    """Override those in the Secret."""


class PodMode(msgspec.Struct, frozen=True, kw_only=True):
    """Instances are the pods that `podSelector` selects."""

    access: AgentAccess | None = None
    """Access to agents in the pods; None: only Data Plane APIs are used."""


def agent_options(command: F) -> F:
    """Add `--agent`, `--pods`, `--dataplane` and their related options."""
    for decorate in reversed(
        (
            click.option(
                "--agent",
                "agents",
                multiple=True,
                metavar="NAME=URL",
                envvar="HAPTIC_AGENTS",
                callback=_read_agents,
                help="Deploy to the agent at https://HOST:PORT, not to local instances; may be repeated"
                " (in the environment: separated by spaces).",
            ),
            click.option(
                "--pods",
                is_flag=True,
                envvar="HAPTIC_PODS",
                help="Deploy to the pods in the controller's namespace that `podSelector` selects.",
            ),
            click.option(
                "--agent-ca",
                type=_FILE,
                envvar="HAPTIC_AGENT_CA",
                help="CA certificates of agents (PEM).",
            ),
            click.option(
                "--agent-cert",
                type=_FILE,
                envvar="HAPTIC_AGENT_CERT",
                help="Client certificate for connections to agents (PEM).",
            ),
            click.option(
                "--agent-key", type=_FILE, envvar="HAPTIC_AGENT_KEY", help="Private key of --agent-cert (PEM)."
            ),
            click.option(
                "--agent-server-name",
                default=AGENT_NAME,
                show_default=True,
                metavar="NAME",
                envvar="HAPTIC_AGENT_SERVER_NAME",
                help="DNS name in the certificates of agents in pods.",
            ),
            click.option(
                "--dataplane",
                "apis",
                multiple=True,
                metavar="[NAME=]URL",
                envvar="HAPTIC_DATAPLANES",
                callback=_take_apis,
                help="Deploy through the HAProxy Data Plane API at https://HOST:PORT, not to local instances; may be"
                f" repeated. User and password come from {USERNAME} and {PASSWORD}, else from the Secret.",
            ),
            click.option(
                "--dataplane-ca",
                type=_FILE,
                envvar="HAPTIC_DATAPLANE_CA",
                help="CA certificates of Data Plane APIs (PEM). Default: those of the system.",
            ),
        )
    ):
        command = decorate(command)
    return command


def _read_agents(
    _context: click.Context, _parameter: click.Parameter, values: Sequence[str]
) -> tuple[AgentAddress, ...]:
    addresses = []
    for value in values:
        match = _AGENT.fullmatch(value)
        if match is None or int(match["port"] or 443) > 65535:
            raise click.BadParameter(f"{value!r} is not NAME=URL (expected such as edge-1=https://10.0.0.7:5555)")
        addresses.append(AgentAddress(name=match["name"], url=match["url"]))
    if len({address.name for address in addresses}) < len(addresses):
        raise click.BadParameter("two endpoints have the same name")
    return tuple(addresses)


def _take_apis(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[ApiAddress, ...]:
    return read_apis(values)


def read_apis(values: Sequence[str]) -> tuple[ApiAddress, ...]:
    """Return the addresses in *values*; without a name, host and port are the name. Raises BadParameter."""
    addresses = []
    for value in values:
        match = _API.fullmatch(value)
        if match is None or int(match["port"] or 443) > 65535:
            # The value is not quoted: it may hold a password.
            hint = "expected such as edge-1=https://10.0.0.7:5555, without user and password"
            raise click.BadParameter(f"not [NAME=]URL ({hint})")
        name = match["name"] or f"{match['host'].strip('[]')}:{match['port'] or match['url'].partition(':')[0]}"
        addresses.append(ApiAddress(name=name, url=match["url"]))
    if len({address.name for address in addresses}) < len(addresses):
        raise click.BadParameter("two endpoints have the same name")
    return tuple(addresses)


def make_api_list(
    apis: tuple[ApiAddress, ...],
    authorities: Path | None,
    environment: Mapping[str, str],
    *,
    agents: tuple[AgentAddress, ...],
    pods: bool,
) -> ApiList | None:
    """Return the options as one value; None without `--dataplane`. Raises UsageError if they contradict."""
    if not apis:
        if authorities is not None:
            raise click.UsageError("--dataplane-ca needs --dataplane")
        return None
    if agents or pods:
        raise click.UsageError("--dataplane excludes --agent and --pods")
    username, password = environment.get(USERNAME), environment.get(PASSWORD)
    if bool(username) != bool(password):
        raise click.UsageError(f"{USERNAME} and {PASSWORD} must be set together")
    credentials = Credentials(username=username, password=password) if username and password else None
    return ApiList(addresses=apis, authorities=authorities, credentials=credentials)


def make_agent_list(
    agents: tuple[AgentAddress, ...], ca: Path | None, certificate: Path | None, key: Path | None
) -> AgentList | None:
    """Return the options as one value; None without agents. Raises UsageError if a file is missing."""
    if not agents:
        return None
    if ca is None or certificate is None or key is None:
        raise click.UsageError("--agent needs --agent-ca, --agent-cert and --agent-key")
    return AgentList(addresses=agents, tls=TlsFiles(certificate=certificate, key=key, authorities=ca))


def make_pod_mode(
    chosen: bool,
    agents: tuple[AgentAddress, ...],
    ca: Path | None,
    certificate: Path | None,
    key: Path | None,
    server_name: str,
) -> PodMode | None:
    """Return the options as one value; None without `--pods`. Raises UsageError if they contradict."""
    if not chosen:
        return None
    if agents:
        raise click.UsageError("--pods and --agent exclude each other")
    if ca is not None and certificate is not None and key is not None:
        tls = TlsFiles(certificate=certificate, key=key, authorities=ca)
        return PodMode(access=AgentAccess(tls=tls, server_name=server_name))
    if ca is not None or certificate is not None or key is not None:
        raise click.UsageError("access to agents needs --agent-ca, --agent-cert and --agent-key")
    return PodMode()


async def run_agent_list(
    agents: AgentList,
    process: Process,
    *,
    task_status: trio.TaskStatus[Sequence[Endpoint]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Follow *agents* until cancelled and publish them to *process*; see `RemoteAgents.run`. Raises TlsFilesError."""
    remote = RemoteAgents(agents.addresses, agents.tls, report=_report_to(process))
    await remote.run(process.endpoints.put, task_status=task_status)


async def run_api_list(
    apis: ApiList,
    process: Process,
    *,
    task_status: trio.TaskStatus[Sequence[Endpoint]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Follow *apis* until cancelled and put them into `process.endpoints`; see `RemoteApis.run`.

    Each request has the credentials of the running configuration; between two
    iterations, those of the previous one. Raises AuthoritiesError.
    """
    last: Credentials | None = None

    def find_credentials() -> Credentials | None:
        nonlocal last
        state = process.running.value
        known = state.loaded.credentials if state is not None and state.loaded is not None else None
        if known is not None:
            last = Credentials(username=known.dataplane_username, password=known.dataplane_password)
        return last

    make = partial(RemoteApis, apis.addresses, find_credentials, apis.authorities, report=_report_to(process))
    remote = await trio.to_thread.run_sync(make)
    await remote.run(process.endpoints.put, task_status=task_status)


def _report_to(process: Process) -> Report:
    def report(source: str, problems: tuple[Problem, ...]) -> None:
        process.events.record(ProblemsReported(source=source, problems=problems))

    return report


def count_wanted(process: Process, fixed: AgentList | ApiList | None, pods: PodMode | None, instances: int) -> int:
    """Return the number of instances that should have a configuration when the start ends.

    *instances* is the number of local ones, unless the configuration of *process* has another.
    """
    if fixed is not None:
        return len(fixed.addresses)
    desired = process.fleet.desired.value
    if desired is not None and desired.size is not None:
        return desired.size
    return instances if pods is None else 1


def make_instances(
    process: Process, fixed: AgentList | ApiList | None, fleet: LocalFleet | PodFleet | None
) -> Callable[..., Awaitable[None]]:
    """Return the task that provides endpoints: the first ones by started(), later ones in `process.endpoints`."""
    if process.fleet.pods is not None:
        return partial(process.fleet.pods.run, process.endpoints.put)
    if isinstance(fixed, AgentList):
        return partial(run_agent_list, fixed, process)
    if isinstance(fixed, ApiList):
        return partial(run_api_list, fixed, process)
    assert isinstance(fleet, LocalFleet)
    return fleet.provider.run
