"""Functions of templates: `gateway.routes(…)`, `gateway.rules(…)`, `gateway.ports(…)`, `gateway.is_used(…)`."""

from collections.abc import Sequence
from typing import Any

from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.listeners.ports import (
    RefusedListeners,
    RefusedPort,
    ServedPort,
    refused_listeners,
    refused_ports,
    served_ports,
)
from haptic_trio.gateway.objects import Lookups, Resource, name_of, namespace_of
from haptic_trio.gateway.routes import routing
from haptic_trio.gateway.routes.attachment import listeners_for
from haptic_trio.gateway.routes.backends import backend_name
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.gateway.routes.matches import EXACT, PREFIX
from haptic_trio.gateway.routes.policies import BackendTls, tls_for
from haptic_trio.gateway.routes.rules import ineffective
from haptic_trio.gateway.routes.variants import Variant, variants_of


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

    def ineffective(self, route: Resource, kind: str, resources: Lookups, controller: str) -> list[str]:
        """Return what *route* asks for, if it is served at all, and does not get."""
        found = list(ineffective(route))
        return found if found and listeners_for(route, kind, resources, controller) else []

    def port_rules(
        self,
        pool: Sequence[str],
        shared: Sequence[int],
        reserved: Sequence[int],
        allowed: Sequence[Any],
        most: int,
        listeners: int,
    ) -> PortRules:
        """Return which ports listeners may have.

        Each Gateway has an address of *pool*; without any, all share an
        address, and *shared* are ports that other frontends have there.
        Listeners may have the ports and ranges *allowed*, but for those *reserved*; those of one
        namespace have at most *most*. ListenerSets of one namespace add at most *listeners* to a
        Gateway of another one.
        """
        return PortRules.of(pool, shared, reserved, allowed, most, listeners)

    def ports(self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> list[ServedPort]:
        """Return the ports of *gateway* that are served; none if it is not of *controller*."""
        return served_ports(gateway, resources, controller, rules)

    def refused_ports(
        self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules
    ) -> list[RefusedPort]:
        """Return the ports that *gateway* asks for and cannot have, once for each owner of listeners."""
        return refused_ports(gateway, resources, controller, rules)

    def refused_listeners(
        self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules
    ) -> list[RefusedListeners]:
        """Return the ListenerSets that have more listeners for *gateway* than their namespace may add."""
        return refused_listeners(gateway, resources, controller, rules)

    def backends(self, service: Resource, resources: Lookups) -> list[Variant]:
        """Return which backends the routes that name *service* need for each port of it."""
        return variants_of(service, resources)

    def tls(self, service: Resource, port_name: str, resources: Lookups) -> BackendTls | None:
        """Return what connections to a port of *service* have to be; None without a BackendTLSPolicy."""
        return tls_for(service, port_name, resources)

    def backend_name(self, service: Resource, port: int) -> str:
        """Return the name of the backend for *port* of *service*."""
        return backend_name(namespace_of(service), name_of(service), port)
