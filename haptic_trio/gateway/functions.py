"""What templates ask: `gateway.routes(…)`, `gateway.rules(…)`, `gateway.ports(…)`, `gateway.is_used(…)`."""

from collections.abc import Mapping
from typing import Any

import msgspec

from haptic_trio.gateway import routing
from haptic_trio.gateway.addresses import Placement, place_gateways
from haptic_trio.gateway.backends import Variant, backend_name, variants_of
from haptic_trio.gateway.certificates import CertificateProblem, certificates_of
from haptic_trio.gateway.clients import ClientValidation, certificate_suffix, client_certificate, client_validation
from haptic_trio.gateway.hostnames import ANY
from haptic_trio.gateway.kinds import ROUTE_KINDS
from haptic_trio.gateway.listeners import Listener, all_listeners, is_ours, our_gateways, unavailable_ports
from haptic_trio.gateway.matches import EXACT, PREFIX
from haptic_trio.gateway.objects import (
    Lookups,
    Resource,
    checked_name,
    dig,
    found_in,
    name_of,
    namespace_of,
)
from haptic_trio.gateway.policies import BackendTls, tls_for


class ServedListener(msgspec.Struct, frozen=True):
    """A listener as a frontend serves it."""

    key: str
    hostname: str
    """`*` for every host."""
    secrets: tuple[Resource, ...]


class ServedPort(msgspec.Struct, frozen=True):
    """A port of a Gateway: one frontend."""

    name: str
    addresses: tuple[str, ...]
    port: int
    kind: str
    """`http`, `https`, `passthrough`, `tls` (terminated) or `tcp`."""
    listeners: tuple[ServedListener, ...]
    clients: ClientValidation | None
    suffix: str
    """What the names of its backends end in."""


class GatewayFunctions:
    """`gateway`: what Gateway API objects mean for the configuration. Every look-up is recorded."""

    __slots__ = ()

    def exact_paths(self, route: Resource, kind: str, resources: Lookups, controller: str) -> list[routing.Entry]:
        """Return what *route* contributes to the map of exact paths."""
        return list(routing.entries(route, ROUTE_KINDS[kind], EXACT, resources, controller))

    def prefixes(self, route: Resource, kind: str, resources: Lookups, controller: str) -> list[routing.Entry]:
        """Return what *route* contributes to the map of path prefixes."""
        return list(routing.entries(route, ROUTE_KINDS[kind], PREFIX, resources, controller))

    def rules(self, route: Resource, kind: str, resources: Lookups, controller: str) -> list[routing.Entry]:
        """Return what the rules of *route* do to a request."""
        return list(routing.rule_entries(route, ROUTE_KINDS[kind], resources, controller))

    def ports(
        self, gateway: Resource, resources: Lookups, controller: str, pool: list[str], reserved: list[int]
    ) -> list[ServedPort]:
        """Return the ports of *gateway* that are served; none if it is not of *controller*.

        Without a *pool* all Gateways share an address, and *reserved* are ports that others use there.
        """
        if not is_ours(gateway, resources, controller):
            return []
        placement = _placement(gateway, resources, controller, pool)
        taken = frozenset[int]() if pool else unavailable_ports(gateway, resources, controller, reserved)
        served: dict[int, list[ServedListener]] = {}
        kinds: dict[int, str] = {}
        for listener in all_listeners(gateway, resources):
            is_open = listener.is_accepted and listener.kinds and listener.port not in taken
            found = _served(gateway, listener, resources) if is_open else None
            if found is not None:
                served.setdefault(listener.port, []).append(found)
                kinds[listener.port] = listener.family
        if pool and not placement.addresses:
            return []
        stem = f"gateway_{checked_name(namespace_of(gateway))}_{checked_name(name_of(gateway))}"
        secret = client_certificate(gateway, resources)
        has_certificate = secret is not None and not isinstance(secret, CertificateProblem)
        return [
            ServedPort(
                f"{stem}_{port}",
                placement.addresses,
                port,
                kinds[port],
                tuple(_in_order(listeners)),
                client_validation(gateway, port, resources) if kinds[port] in ("https", "tls") else None,
                certificate_suffix(gateway) if has_certificate else "",
            )
            for port, listeners in sorted(served.items())
        ]

    def backends(self, service: Resource, resources: Lookups) -> list[Variant]:
        """Return which backends the routes that name *service* need for each port of it."""
        return variants_of(service, resources)

    def tls(self, service: Resource, port_name: str, resources: Lookups) -> BackendTls | None:
        """Return what connections to a port of *service* have to be; None without a BackendTLSPolicy."""
        return tls_for(service, port_name, resources)

    def backend_name(self, service: Resource, port: int) -> str:
        """Return the name of the backend for *port* of *service*."""
        return backend_name(namespace_of(service), name_of(service), port)


def _in_order(listeners: list[ServedListener]) -> list[ServedListener]:
    """Return *listeners* with the one for every host first: its certificate is for clients that name no known host."""
    return sorted(listeners, key=lambda listener: listener.hostname != "*")


def _served(gateway: Resource, listener: Listener, resources: Lookups) -> ServedListener | None:
    secrets: tuple[Resource, ...] = ()
    if listener.is_terminated:
        clients = client_validation(gateway, listener.port, resources)
        if clients is not None and not clients.authorities:
            return None
        secrets, _ = certificates_of(resources, listener.source, kind=listener.kind, namespace=listener.namespace)
        if not secrets:
            return None
    return ServedListener(listener.key, "*" if listener.hostname == ANY else listener.hostname, secrets)


def _placement(gateway: Resource, resources: Lookups, controller: str, pool: list[str]) -> Placement:
    if not pool:
        return Placement()
    states: Mapping[tuple[str, str], Any] = {
        (namespace_of(state), name_of(state)): dig(state, "status") for state in found_in(resources, "gatewayStates")
    }
    placed = place_gateways(our_gateways(resources, controller), [str(address) for address in pool], states)
    return placed.get((namespace_of(gateway), name_of(gateway)), Placement(unusable="not placed"))
