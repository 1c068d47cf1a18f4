"""Functions of templates: `gateway.routes(…)`, `gateway.rules(…)`, `gateway.ports(…)`, `gateway.is_used(…)`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from haptic_trio.gateway.extensions import Allowed, guards_of
from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.listeners.port_rules import MOST_ADDRESSES, PortRules, taken_reason
from haptic_trio.gateway.listeners.ports import (
    RejectedListeners,
    RejectedPort,
    ServedPort,
    address_problem,
    rejected_listeners,
    rejected_ports,
    served_ports,
)
from haptic_trio.gateway.objects import (
    Lookups,
    Resource,
    dig,
    items_of,
    name_of,
    namespace_of,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes import routing
from haptic_trio.gateway.routes.attachment import Attached, TakenHost, attach, listeners_for, taken_hosts
from haptic_trio.gateway.routes.backends import backend_name, mirrors_of, variant_name
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

    def exact_paths(self, route: Resource, kind: str, resources: Lookups, controller: str) -> list[routing.Entry]:
        """Return the entries of *route* in the map of exact paths."""
        return _entries(route, kind, EXACT, resources, controller)

    def prefixes(self, route: Resource, kind: str, resources: Lookups, controller: str) -> list[routing.Entry]:
        """Return the entries of *route* in the map of path prefixes."""
        return _entries(route, kind, PREFIX, resources, controller)

    def rules(
        self, route: Resource, kind: str, resources: Lookups, controller: str, filters: Allowed | None = None
    ) -> list[routing.Entry]:
        """Return the entries of *route* in the map of rules: the effects of each rule on a request.

        *filters* has the filters of the administrator, with the namespaces whose routes may name them.
        """
        return list(routing.rule_entries(route, ROUTE_KINDS[kind], resources, controller, filters or {}))

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
        condition = _former_gateway(gateway, resources) if found else None
        if condition is not None:
            resources["gatewayClasses"].rely(condition)
        return found

    def rejected_ports(
        self, gateway: Resource, resources: Lookups, controller: str, rules: PortRules
    ) -> list[RejectedPort]:
        """Return the unavailable ports of the listeners of *gateway*, once for each owner of listeners."""
        return rejected_ports(gateway, resources, controller, rules)

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


def _entries(route: Resource, kind: str, path_kind: str, resources: Lookups, controller: str) -> list[routing.Entry]:
    found = list(routing.entries(route, ROUTE_KINDS[kind], path_kind, resources, controller))
    keys = tuple(entry.key for entry in found if entry.value)
    if keys:
        condition = _former_route(route, kind, resources, controller)
        if condition is not None:
            resources["gatewayClasses"].rely(condition)
        resources["gatewayClasses"].rely(_FormerEntries(route, kind, path_kind, controller, keys))
    return found


# Conditions for former versions of routes and Gateways, which are served while the present ones are rejected. Owners of
# Gateways, ListenerSets, Services and Secrets in other namespaces admit them, by `allowedRoutes` and ReferenceGrants,
# and may cease to. A former version is served only while they still admit what it was made from.


class _FormerRoute(msgspec.Struct, frozen=True):
    """Whether *route*, a former version, may be served as it was."""

    route: Resource
    kind: str
    controller: str
    places: frozenset[tuple[str, str]]
    """Listeners, each with a host name."""
    granted: frozenset[tuple[str, str]]
    """Services of other namespaces that it refers to."""

    def __call__(self, lookups: Lookups, text: str) -> str | None:
        """Return *text* if the owners of these listeners and Services still admit the route."""
        attachments = attach(self.route, self.kind, lookups, self.controller) if self.places else ()
        attached = (one for attachment in attachments for one in attachment.attached)
        is_admitted = self.places <= _places_in(attached) and self.granted <= _granted(self.route, self.kind, lookups)
        return text if is_admitted else None


class _FormerGateway(msgspec.Struct, frozen=True):
    """Whether *gateway*, a former version, may be served as it was."""

    gateway: Resource
    granted: frozenset[tuple[str, str]]
    """Secrets of other namespaces that it refers to."""

    def __call__(self, lookups: Lookups, text: str) -> str | None:
        """Return *text* if the owners of these Secrets still permit the references."""
        return text if self.granted <= _granted_secrets(self.gateway, lookups) else None


class _FormerEntries(msgspec.Struct, frozen=True):
    """The lines of *route*, a former version, with the present values: other routes may share its entries."""

    route: Resource
    kind: str
    path_kind: str
    controller: str
    keys: tuple[str, ...]
    """Of its lines."""

    def __call__(self, lookups: Lookups, text: str) -> str | None:
        """Return *text* with the present values; a line whose key the route no longer has becomes a comment."""
        lines = [line for line in text.split("\n") if line]
        if len(lines) != len(self.keys):
            return None
        found = routing.entries(self.route, ROUTE_KINDS[self.kind], self.path_kind, lookups, self.controller)
        values = {entry.key: entry.value for entry in found}
        revised = []
        for line, key in zip(lines, self.keys, strict=True):
            column, value = line.partition(" ")[0].removeprefix("#"), values.get(key, "")
            if not value.isprintable() or value != value.strip():
                return None
            revised.append(f"{column} {value}" if value else f"#{column}")
        return text if revised == lines else "".join(f"{line}\n" for line in revised)


def _former_gateway(gateway: Resource, lookups: Lookups) -> _FormerGateway | None:
    """Return the condition for *gateway* as it is now; None if it refers to no Secret of another namespace."""
    granted = _granted_secrets(gateway, lookups)
    return _FormerGateway(gateway, granted) if granted else None


def _former_route(route: Resource, kind: str, lookups: Lookups, controller: str) -> _FormerRoute | None:
    """Return the condition for *route* as it is now; None if it refers to nothing in another namespace."""
    own = namespace_of(route)
    is_attached = any(target_namespace(parent, route) != own for parent in items_of(route, "spec", "parentRefs"))
    granted = _granted(route, kind, lookups)
    if not is_attached and not granted:
        return None
    attached = listeners_for(route, kind, lookups, controller).values() if is_attached else ()
    return _FormerRoute(route, kind, controller, _places_in(attached), granted)


def _places_in(found: Iterable[Attached]) -> frozenset[tuple[str, str]]:
    return frozenset((one.listener.key, hostname) for one in found for hostname, _ in one.hostnames)


def _granted(route: Resource, kind: str, lookups: Lookups) -> frozenset[tuple[str, str]]:
    return _granted_among(_references_in(route), route, kind, "Service", lookups)


def _granted_secrets(gateway: Resource, lookups: Lookups) -> frozenset[tuple[str, str]]:
    references = [
        one
        for listener in items_of(gateway, "spec", "listeners")
        for one in items_of(listener, "tls", "certificateRefs")
    ]
    client = dig(gateway, "spec", "tls", "backend", "clientCertificateRef")
    return _granted_among([*references, client], gateway, "Gateway", "Secret", lookups)


def _granted_among(
    references: Iterable[Any], owner: Resource, kind: str, to_kind: str, lookups: Lookups
) -> frozenset[tuple[str, str]]:
    """Return namespace and name of the objects in other namespaces that *owner* may refer to."""
    own = namespace_of(owner)
    found = {(target_namespace(one, owner), text_of(one, "name")) for one in references if isinstance(one, Mapping)}
    return frozenset(
        (namespace, name)
        for namespace, name in found
        if namespace != own
        and is_granted(lookups, kind=kind, namespace=own, to_namespace=namespace, to_kind=to_kind, to_name=name)
    )


def _references_in(route: Resource) -> Iterator[Any]:
    """Yield the backend references of *route*, and those of mirrored requests."""
    for rule in items_of(route, "spec", "rules"):
        yield from items_of(rule, "backendRefs")
        yield from mirrors_of(rule)
