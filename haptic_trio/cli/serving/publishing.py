"""Options of `serve` for the addresses in the status of Ingresses and Gateways."""

import re
from collections.abc import Callable, Sequence
from ipaddress import ip_address
from typing import Any, TypeVar

import click
import msgspec

from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.stages.process import StatusAccess
from haptic_trio.status.node_addresses import ADDRESS_KINDS

F = TypeVar("F", bound=Callable[..., Any])

_SERVICE = re.compile(r"(?P<namespace>[a-z0-9]([a-z0-9-]*[a-z0-9])?)/(?P<name>[a-z0-9]([a-z0-9-]*[a-z0-9])?)")
_HOST = re.compile(r"(?=.{1,253}\Z)[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")


class Publishing(msgspec.Struct, frozen=True, kw_only=True):
    """External addresses of HAProxy; if all are empty, no Ingress status is written."""

    service: tuple[str, str] | None = None
    """Namespace and name."""
    addresses: tuple[str, ...] = ()
    nodes: str = ""
    """Kind of addresses of the nodes that run HAProxy pods; empty: those of no node."""


def publish_options(command: F) -> F:
    """Add `--publish-service`, `--publish-nodes` and `--publish-address`."""
    for decorate in (
        click.option(
            "--publish-address",
            "publish_addresses",
            multiple=True,
            metavar="ADDRESS",
            envvar="HAPTIC_PUBLISH_ADDRESSES",
            callback=_read_addresses,
            help="IP address or host name for the status of Ingresses; may be repeated.",
        ),
        click.option(
            "--publish-nodes",
            type=click.Choice(ADDRESS_KINDS),
            envvar="HAPTIC_PUBLISH_NODES",
            help="Addresses of the nodes that run HAProxy pods go into the status of Ingresses: the external ones (of a"
            " node that has none, the internal ones), or the internal ones. Needs --pods.",
        ),
        click.option(
            "--publish-service",
            metavar="NAMESPACE/NAME",
            envvar="HAPTIC_PUBLISH_SERVICE",
            callback=_read_service,
            help="Service whose load balancer addresses go into the status of Ingresses.",
        ),
    ):
        command = decorate(command)
    return command


def make_publishing(
    service: tuple[str, str] | None, addresses: tuple[str, ...], nodes: str | None, *, pods: bool
) -> Publishing:
    """Return the options as one value; raises `click.UsageError` for several, and for nodes without *pods*."""
    if [service is not None, bool(addresses), nodes is not None].count(True) > 1:
        raise click.UsageError("--publish-service, --publish-nodes and --publish-address exclude each other")
    if nodes is not None and not pods:
        raise click.UsageError("--publish-nodes needs --pods: the addresses are those of the nodes of HAProxy's pods")
    return Publishing(service=service, addresses=addresses, nodes=nodes or "")


def make_status_access(publishing: Publishing, server: ApiCluster | None, identity: str) -> StatusAccess | None:
    """Return the access for status writes of the replica *identity*; None without an API server."""
    if server is None:
        return None
    return StatusAccess(
        server=server,
        instance=identity,
        service=publishing.service,
        addresses=publishing.addresses,
        nodes=publishing.nodes,
    )


def _read_service(_context: click.Context, _parameter: click.Parameter, value: str | None) -> tuple[str, str] | None:
    if value is None:
        return None
    match = _SERVICE.fullmatch(value)
    if match is None:
        raise click.BadParameter(f"{value!r} is not NAMESPACE/NAME (expected such as ingress/haproxy)")
    return match["namespace"], match["name"]


def _read_addresses(_context: click.Context, _parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    for value in values:
        try:
            ip_address(value)
        except ValueError:
            if _HOST.fullmatch(value) is None:
                raise click.BadParameter(f"{value!r} is neither an IP address nor a host name") from None
    return tuple(dict.fromkeys(values))
