"""Conditions for former versions of routes and Gateways, which are served while the present ones are rejected.

Owners of Gateways, ListenerSets, Services and Secrets in other namespaces admit
them, by `allowedRoutes` and ReferenceGrants, and may cease to. A former version
is served only while they still admit what it was made from.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.listeners.listeners import is_managed
from haptic_trio.gateway.objects import Lookups, Resource, dig, items_of, namespace_of, target_namespace, text_of
from haptic_trio.gateway.routes import routing
from haptic_trio.gateway.routes.attachment import Attached, attach, listeners_for
from haptic_trio.gateway.routes.backends import mirrors_of
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS


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


class FormerGateway(msgspec.Struct, frozen=True):
    """Whether *gateway*, a former version, may be served as it was."""

    gateway: Resource
    controller: str
    granted: frozenset[tuple[str, str]]
    """Secrets of other namespaces that it refers to."""

    def __call__(self, lookups: Lookups, text: str) -> str | None:
        """Return *text* if its class is still that of this controller, and the owners of these Secrets permit them."""
        is_managed_now = is_managed(self.gateway, lookups, self.controller)
        return text if is_managed_now and self.granted <= _granted_secrets(self.gateway, lookups) else None


class FormerEntries(msgspec.Struct, frozen=True):
    """The lines of *route*, a former version, with the present values: other routes may share its entries."""

    route: Resource
    kind: str
    path_kind: str
    controller: str
    normalizes: bool
    keys: tuple[str, ...]
    """Of its lines."""

    def __call__(self, lookups: Lookups, text: str) -> str | None:
        """Return *text* with the present values; a line whose key the route no longer has becomes a comment."""
        lines = [line for line in text.split("\n") if line]
        if len(lines) != len(self.keys):
            return None
        kind = ROUTE_KINDS[self.kind]
        found = routing.entries(self.route, kind, self.path_kind, lookups, self.controller, normalizes=self.normalizes)
        values = {entry.key: entry.value for entry in found}
        revised = []
        for line, key in zip(lines, self.keys, strict=True):
            column, value = line.partition(" ")[0].removeprefix("#"), values.get(key, "")
            if not value.isprintable() or value != value.strip():
                return None
            revised.append(f"{column} {value}" if value else f"#{column}")
        return text if revised == lines else "".join(f"{line}\n" for line in revised)


def former_gateway(gateway: Resource, lookups: Lookups, controller: str) -> FormerGateway:
    """Return the condition for *gateway* as it is now."""
    return FormerGateway(gateway, controller, _granted_secrets(gateway, lookups))


def former_route(route: Resource, kind: str, lookups: Lookups, controller: str) -> _FormerRoute | None:
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
