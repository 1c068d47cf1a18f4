"""Which HAProxy instances `serve` keeps: processes of this machine, a fixed list of agents elsewhere, or pods."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
import trio

from haptic_trio.dataplane.agent_client import AgentAddress
from haptic_trio.dataplane.agent_tls import TlsFiles
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.dataplane.remote_agents import RemoteAgents
from haptic_trio.deployment.pods import AGENT_NAME, AgentAccess

F = TypeVar("F", bound=Callable[..., Any])

_AGENT = re.compile(
    r"(?P<name>[A-Za-z0-9][\w.-]*)=(?P<url>https://(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+)(?::(?P<port>\d{1,5}))?)/?"
)
_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


class AgentList(msgspec.Struct, frozen=True, kw_only=True):
    """Agents that are there from beginning to end."""

    addresses: tuple[AgentAddress, ...]
    tls: TlsFiles


class PodMode(msgspec.Struct, frozen=True, kw_only=True):
    """Instances are the pods that the configuration chooses."""

    access: AgentAccess | None = None
    """To agents in them; None: there are only Data Plane APIs."""


def agent_options(command: F) -> F:
    """Add `--agent`, `--pods`, `--agent-ca`, `--agent-cert`, `--agent-key` and `--agent-server-name`."""
    for decorate in reversed(
        (
            click.option(
                "--agent",
                "agents",
                multiple=True,
                metavar="NAME=URL",
                envvar="HAPTIC_AGENTS",
                callback=_read_agents,
                help="Deploy to the agent at https://HOST:PORT instead of to local instances; may be repeated"
                " (in the environment separated by spaces).",
            ),
            click.option(
                "--pods",
                is_flag=True,
                envvar="HAPTIC_PODS",
                help="Deploy to the pods that `podSelector` chooses, in the controller's namespace.",
            ),
            click.option(
                "--agent-ca",
                type=_FILE,
                envvar="HAPTIC_AGENT_CA",
                help="Authorities that signed the agents' certificates.",
            ),
            click.option(
                "--agent-cert", type=_FILE, envvar="HAPTIC_AGENT_CERT", help="Certificate that is shown to agents."
            ),
            click.option("--agent-key", type=_FILE, envvar="HAPTIC_AGENT_KEY", help="Its private key."),
            click.option(
                "--agent-server-name",
                default=AGENT_NAME,
                show_default=True,
                metavar="NAME",
                envvar="HAPTIC_AGENT_SERVER_NAME",
                help="Name in the certificates of agents in pods, which have no names of their own.",
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
            raise click.BadParameter(f"{value!r} is no name and address, such as edge-1=https://10.0.0.7:5555")
        addresses.append(AgentAddress(name=match["name"], url=match["url"]))
    if len({address.name for address in addresses}) < len(addresses):
        raise click.BadParameter("a name is given twice")
    return tuple(addresses)


def make_agent_list(
    agents: tuple[AgentAddress, ...], ca: Path | None, certificate: Path | None, key: Path | None
) -> AgentList | None:
    """Return the options as one value; None without agents. Raises UsageError when a file is not given."""
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
    """Return the options as one value; None without `--pods`. Raises UsageError when they do not fit together."""
    if not chosen:
        return None
    if agents:
        raise click.UsageError("--pods and --agent exclude each other")
    if ca is not None and certificate is not None and key is not None:
        tls = TlsFiles(certificate=certificate, key=key, authorities=ca)
        return PodMode(access=AgentAccess(tls=tls, server_name=server_name))
    if ca is not None or certificate is not None or key is not None:
        raise click.UsageError("agents need all of --agent-ca, --agent-cert and --agent-key")
    return PodMode()


async def run_agent_list(
    agents: AgentList,
    publish: Callable[[tuple[Endpoint, ...]], None],
    *,
    task_status: trio.TaskStatus[Sequence[Endpoint]] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Follow *agents* until cancelled; see `RemoteAgents.run`. Raises TlsFilesError."""
    await RemoteAgents(agents.addresses, agents.tls).run(publish, task_status=task_status)
