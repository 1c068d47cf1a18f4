"""Attachment of a route to listeners by its parent references, with the reason if there is none.

The most specific listener gets a request, whatever the ages, as the Gateway
API demands. So a ListenerSet with a listener for one host takes it from routes
of other namespaces whose listener is for more hosts.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import msgspec

from haptic_trio.gateway.hostnames import covers
from haptic_trio.gateway.listeners.listeners import (
    Listener,
    WantedListeners,
    class_of,
    is_managed,
    is_managed_class,
    listeners_of,
    listeners_of_set,
    parent_of,
)
from haptic_trio.gateway.listeners.ports import ServedPort
from haptic_trio.gateway.objects import (
    GROUP,
    Lookups,
    Resource,
    bare,
    by_namespace,
    derived,
    dig,
    identity_of,
    items_of,
    name_of,
    namespace_of,
    shared,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes.kinds import GRPC_ROUTE, HTTP_ROUTE, RouteKind
from haptic_trio.gateway.routes.precedence.contenders import hostnames_of
from haptic_trio.gateway.routes.precedence.rivals import is_displaced, shared_hostnames

NO_PARENT = "NoMatchingParent"
NOT_ALLOWED = "NotAllowedByListeners"
NO_HOSTNAME = "NoMatchingListenerHostname"
DISPLACED = "HostnameConflict"
_MOST_NAMESPACES = 8
_MOST_ROUTES = 4
"""Maximum numbers of namespaces and of their routes that `taken_hosts` looks at for a host."""


class Attached(msgspec.Struct, frozen=True):
    """A listener that a route is attached to, and the host names that both have."""

    listener: Listener
    hostnames: tuple[tuple[str, str], ...]
    """Pairs of the shared host name and the route's own host name (`ANY` for a route without host names)."""


class Attachment(msgspec.Struct, frozen=True):
    """The result of one parent reference to a Gateway of this controller."""

    reference: Mapping[str, Any]
    attached: tuple[Attached, ...]
    reason: str = ""
    """Reason of the condition `Accepted` if `attached` is empty; otherwise empty."""


def attach(route: Resource, kind: str, lookups: Lookups, controller: str) -> Iterator[Attachment]:
    """Yield the result of each parent reference of *route*, a route of *kind*, to a Gateway of *controller*."""
    for reference in items_of(route, "spec", "parentRefs"):
        if (text_of(reference, "group") or GROUP) != GROUP:
            continue
        keys = target_namespace(reference, route), text_of(reference, "name")
        wanted = WantedListeners(text_of(reference, "sectionName"), _port_of(reference))
        match text_of(reference, "kind") or "Gateway":
            case "Gateway":
                if is_managed_class(derived(lookups, "gateways", class_of, *keys), lookups, controller):
                    yield _attach(route, kind, reference, derived(lookups, "gateways", wanted, *keys), lookups)
            case "ListenerSet":
                found = bare(lookups, "listenerSets", *keys)
                gateway = parent_of(found, lookups) if found is not None else None
                if found is not None and gateway is not None and is_managed(gateway, lookups, controller):
                    own = wanted.among(listeners_of_set(found, gateway, lookups))
                    yield _attach(route, kind, reference, own, lookups)


def _port_of(reference: Mapping[str, Any]) -> int | None:
    port = dig(reference, "port")
    # No listener has the port -1.
    return port if port is None or isinstance(port, int) else -1


def _attach(
    route: Resource, kind: str, reference: Mapping[str, Any], wanted: Iterable[Listener], lookups: Lookups
) -> Attachment:
    named = [listener for listener in wanted if listener.is_accepted]
    if not named:
        return Attachment(reference, (), NO_PARENT)
    allowing = [
        listener for listener in named if kind in listener.kinds and listener.allows(lookups, namespace_of(route))
    ]
    if not allowing:
        return Attachment(reference, (), NOT_ALLOWED)
    names = hostnames_of(route)
    matching = [Attached(listener, shared) for listener in allowing if (shared := shared_hostnames(names, listener))]
    attached = tuple(found for found in matching if not is_displaced(route, kind, found.listener, lookups))
    return Attachment(reference, attached, "" if attached else DISPLACED if matching else NO_HOSTNAME)


def listeners_for(route: Resource, kind: str, lookups: Lookups, controller: str) -> dict[str, Attached]:
    """Return the listeners that *route* is attached to, by their keys."""

    def find() -> dict[str, Attached]:
        found: dict[str, Attached] = {}
        for attachment in attach(route, kind, lookups, controller):
            for attached in attachment.attached:
                found.setdefault(attached.listener.key, attached)
        return found

    return shared(lookups, ("listeners_for", kind, controller, *identity_of(route)), find)


class TakenHost(msgspec.Struct, frozen=True):
    """A host of a route that a ListenerSet of another namespace has."""

    host: str
    port: int
    route: Resource
    listener_set: Resource
    """As far as it takes to name it."""


def taken_hosts(gateway: Resource, ports: Iterable[ServedPort], lookups: Lookups) -> Iterator[TakenHost]:
    """Yield the hosts of *ports* of *gateway* that a ListenerSet has, and a route whose listener is for more hosts.

    The cost for a host is bounded: of very many routes, only some are found.
    """
    key = namespace_of(gateway), name_of(gateway)
    own = [listener for listener in listeners_of(gateway) if listener.is_accepted]
    for port in ports:
        if port.kind not in ("http", "https"):
            continue
        wide = [listener for listener in own if listener.port == port.port]
        for listener in port.listeners:
            if listener.listener_set is None or listener.hostname == "*":
                continue
            namespace, name = listener.listener_set
            for kind in (HTTP_ROUTE, GRPC_ROUTE):
                for other in derived(lookups, kind.by_host, _SomeOf(key, listener.listener_set), listener.hostname):
                    route = bare(lookups, kind.store, *other)
                    if route is not None and _has_host(route, kind, key, listener.hostname, wide, lookups):
                        owner = {"kind": "ListenerSet", "metadata": {"namespace": namespace, "name": name}}
                        yield TakenHost(listener.hostname, port.port, route, owner)


class _SomeOf(msgspec.Struct, frozen=True):
    """Namespace and name of some routes for a Gateway, without those for a ListenerSet and those of its namespace."""

    gateway: tuple[str, str]
    listener_set: tuple[str, str]

    def __call__(self, found: Sequence[Resource]) -> tuple[tuple[str, str], ...]:
        groups = islice((one for one in by_namespace(found) if one[0] != self.listener_set[0]), _MOST_NAMESPACES)
        routes = chain.from_iterable(islice(group, _MOST_ROUTES) for _, group in groups)
        return tuple(
            (namespace_of(route), name_of(route))
            for route in routes
            if any(_references(route, "Gateway", self.gateway))
            and not any(_references(route, "ListenerSet", self.listener_set))
        )


def _references(route: Resource, kind: str, owner: tuple[str, str]) -> Iterator[Mapping[str, Any]]:
    """Yield the parent references of *route* to the Gateway or ListenerSet *owner*."""
    for one in items_of(route, "spec", "parentRefs"):
        named = text_of(one, "kind") or "Gateway", text_of(one, "group") or GROUP
        if named == (kind, GROUP) and (target_namespace(one, route), text_of(one, "name")) == owner:
            yield one


def _has_host(
    route: Resource,
    kind: RouteKind,
    gateway: tuple[str, str],
    host: str,
    listeners: Iterable[Listener],
    lookups: Lookups,
) -> bool:
    """Whether *route* may have *host* on one of *listeners*, of *gateway*; a route of another kind may displace it."""
    return host in hostnames_of(route) and any(
        kind.name in listener.kinds
        and covers(listener.hostname, host)
        and listener.allows(lookups, namespace_of(route))
        for reference in _references(route, "Gateway", gateway)
        for listener in WantedListeners(text_of(reference, "sectionName"), _port_of(reference)).among(listeners)
    )
