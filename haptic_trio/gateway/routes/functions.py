"""Functions of templates: `gateway.routes(…)`, `gateway.rules(…)`, `gateway.ports(…)`, `gateway.is_used(…)`."""

from collections.abc import Sequence
from typing import Any

from haptic_trio.gateway.extensions import Allowed, guards_of
from haptic_trio.gateway.listeners.port_rules import MOST_ADDRESSES, PortRules, taken_reason
from haptic_trio.gateway.listeners.ports import (
    RejectedListeners,
    RejectedPort,
    ServedPort,
    address_guard,
    address_problem,
    rejected_listeners,
    rejected_ports,
    served_ports,
)
from haptic_trio.gateway.objects import (
    Lookups,
    Resource,
    name_of,
    namespace_of,
)
from haptic_trio.gateway.routes import routing
from haptic_trio.gateway.routes.attachment import TakenHost, listeners_for, taken_hosts
from haptic_trio.gateway.routes.backends import backend_name, variant_name
from haptic_trio.gateway.routes.former import FormerEntries, former_gateway, former_route
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS
from haptic_trio.gateway.routes.matches import EXACT, PREFIX
from haptic_trio.gateway.routes.policies import BackendTls, tls_for
from haptic_trio.gateway.routes.rules import closed_rules, ineffective
from haptic_trio.gateway.routes.variants import (
    FilteredBackend,
    FilteredRoute,
    Variant,
    filtered_routes,
    find_filtered_backends,
    variants_of,
)


class GatewayFunctions:
    """The template namespace `gateway_api`. Every lookup is recorded as a dependency of the fragment."""

    __slots__ = ()

    def exact_paths(
        self,
        route: Resource,
        kind: str,
        resources: Lookups,
        controller: str,
        is_rejected: bool = False,
        normalizes: bool = True,
    ) -> list[routing.Entry]:
        """Return the entries of *route* in the map of exact paths; if it *is_rejected*, those that keep its paths.

        With *normalizes*, all spellings of a path have one entry.
        """
        return _entries(route, kind, EXACT, resources, controller, normalizes=normalizes, is_rejected=is_rejected)

    def prefixes(
        self,
        route: Resource,
        kind: str,
        resources: Lookups,
        controller: str,
        is_rejected: bool = False,
        normalizes: bool = True,
    ) -> list[routing.Entry]:
        """Return the entries of *route* in the map of path prefixes; if it *is_rejected*, those that keep its paths.

        With *normalizes*, all spellings of a path have one entry.
        """
        return _entries(route, kind, PREFIX, resources, controller, normalizes=normalizes, is_rejected=is_rejected)

    def rules(
        self, route: Resource, kind: str, resources: Lookups, controller: str, filters: Allowed | None = None
    ) -> list[routing.Entry]:
        """Return the entries of *route* in the map of rules: the effects of each rule on a request.

        *filters* has the filters of the administrator, with the namespaces whose routes may name them.
        """
        return list(routing.rule_entries(route, ROUTE_KINDS[kind], resources, controller, filters or {}))

    def is_attached(self, route: Resource, kind: str, resources: Lookups, controller: str) -> bool:
        """Whether *route* is attached to a listener of *controller*."""
        return bool(listeners_for(route, kind, resources, controller))

    def guards(self, route: Resource) -> list[str]:
        """Return what may guard access to *route*, for `guarded`; empty without filters of the administrator."""
        return guards_of(route)

    def filtered_routes(self, service: Resource, resources: Lookups) -> list[FilteredRoute]:
        """Return the routes that name a filter of the administrator in a rule for *service*."""
        return list(filtered_routes(service, resources))

    def filtered_backends(
        self, route: Resource, kind: str, service: Resource, resources: Lookups, controller: str, filters: Allowed
    ) -> list[FilteredBackend]:
        """Return the backends for ports of *service* that *route* alone has, since their requests pass *filters*."""
        return find_filtered_backends(route, ROUTE_KINDS[kind], service, resources, controller, filters)

    def ineffective(self, route: Resource, kind: str, resources: Lookups, controller: str) -> list[str]:
        """Return messages about fields of *route* without effect, and about rules that are answered with 500.

        There are none if the route is not served.
        """
        found = [*ineffective(route), *closed_rules(route, ROUTE_KINDS[kind], resources)]
        return found if found and listeners_for(route, kind, resources, controller) else []

    def port_rules(
        self,
        pool: Sequence[str],
        shared: Sequence[int],
        reserved: Sequence[int],
        allowed: Sequence[Any],
        most: int,
        listeners: int,
        own_listeners: int,
        tcp_services: Sequence[Any] = (),
        addresses: int = MOST_ADDRESSES,
    ) -> PortRules:
        """Return the rules for the ports and addresses of listeners.

        Each Gateway has an address of *pool*, and those of a namespace get at
        most *addresses* together; with an empty pool all Gateways share an
        address, where other frontends use the ports *shared*.
        Listeners may use the ports and ranges *allowed*, except *reserved*;
        the listeners of one namespace may use at most *most* ports. ListenerSets of a
        namespace add at most *listeners* to a Gateway of another namespace, and
        at most *own_listeners* to one of their own. The ports and ranges
        *tcp_services* belong to TCP services.
        """
        return PortRules.of(pool, shared, reserved, allowed, most, listeners, own_listeners, tcp_services, addresses)

    def unbound(self, port: int, resources: Lookups) -> str:
        """Return why HAProxy cannot listen on *port* at the common address; empty if nothing is known."""
        return taken_reason(resources, port, (), ())

    def ports(self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> list[ServedPort]:
        """Return the ports of *gateway* that are served; none if it is not of *controller*."""
        found = served_ports(gateway, resources, controller, rules)
        if found:
            resources["gatewayClasses"].rely(former_gateway(gateway, resources, controller))
        return found

    def rejected_ports(
        self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules
    ) -> list[RejectedPort]:
        """Return the unavailable ports of the listeners of *gateway*, once for each owner of listeners."""
        return rejected_ports(gateway, resources, controller, rules)

    def address_guard(self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> str:
        """Return a guard of a pool's addresses that *gateway* requests or has; empty without a pool."""
        return address_guard(gateway, resources, controller, rules)

    def address_problem(self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> str:
        """Return why *gateway* lacks an address of the pool; empty if it has all that it asks for."""
        return address_problem(gateway, resources, controller, rules)

    def rejected_listeners(
        self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules
    ) -> list[RejectedListeners]:
        """Return the ListenerSets that have more listeners for *gateway* than their namespace may add."""
        return rejected_listeners(gateway, resources, controller, rules)

    def taken_hosts(self, gateway: Resource, ports: Sequence[ServedPort], resources: Lookups) -> list[TakenHost]:
        """Return the hosts of *ports* of *gateway* that a ListenerSet takes from a route of another namespace."""
        return list(taken_hosts(gateway, ports, resources))

    def backends(self, service: Resource, resources: Lookups) -> list[Variant]:
        """Return the variants of backends that the routes to *service* need, for each of its ports."""
        return variants_of(service, resources)

    def tls(self, service: Resource, port_name: str, resources: Lookups) -> BackendTls | None:
        """Return the TLS settings of connections to a port of *service*; None without a BackendTLSPolicy."""
        return tls_for(service, port_name, resources)

    def backend_name(self, service: Resource, port: int, variant: Variant | None = None) -> str:
        """Return the name of the backend for *port* of *service*, and for *variant* of it."""
        name = backend_name(namespace_of(service), name_of(service), port)
        return name if variant is None else variant_name(name, variant.suffix) + variant.end


def _entries(
    route: Resource,
    kind: str,
    path_kind: str,
    resources: Lookups,
    controller: str,
    *,
    normalizes: bool,
    is_rejected: bool,
) -> list[routing.Entry]:
    which = ROUTE_KINDS[kind], path_kind
    found = list(routing.entries(route, *which, resources, controller, normalizes=normalizes, is_rejected=is_rejected))
    if is_rejected:
        # Not a version that is served later.
        return found
    keys = tuple(entry.key for entry in found if entry.value)
    if keys:
        condition = former_route(route, kind, resources, controller)
        if condition is not None:
            resources["gatewayClasses"].rely(condition)
        resources["gatewayClasses"].rely(FormerEntries(route, kind, path_kind, controller, normalizes, keys))
    return found
