"""Attachment of a route to listeners by its parent references, with the reason if there is none."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import msgspec

from haptic_trio.gateway.hostnames import ANY, intersection, is_hostname, wider
from haptic_trio.gateway.listeners.listeners import (
    Listener,
    WantedListeners,
    class_of,
    has_hostname_fault,
    is_class_ours,
    is_ours,
    listeners_of_set,
    parent_of,
)
from haptic_trio.gateway.objects import (
    GROUP,
    Lookups,
    Resource,
    age_of,
    bare,
    bare_in,
    derived,
    dig,
    items_of,
    name_of,
    namespace_of,
    text_of,
)
from haptic_trio.gateway.routes.kinds import RIVALS, RouteKind

NO_PARENT = "NoMatchingParent"
NOT_ALLOWED = "NotAllowedByListeners"
NO_HOSTNAME = "NoMatchingListenerHostname"
DISPLACED = "HostnameConflict"


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


def hostnames_of(route: Resource) -> tuple[str, ...]:
    """Return the host names of *route*, in lower case; `ANY` if it has none."""
    names = tuple(str(name).lower() for name in items_of(route, "spec", "hostnames") if isinstance(name, str))
    return tuple(dict.fromkeys(names)) or ("",)


def attach(route: Resource, kind: str, lookups: Lookups, controller: str) -> Iterator[Attachment]:
    """Yield the result of each parent reference of *route*, a route of *kind*, to a Gateway of *controller*."""
    for reference in items_of(route, "spec", "parentRefs"):
        if (text_of(reference, "group") or GROUP) != GROUP:
            continue
        keys = text_of(reference, "namespace") or namespace_of(route), text_of(reference, "name")
        wanted = WantedListeners(text_of(reference, "sectionName"), _port_of(reference))
        match text_of(reference, "kind") or "Gateway":
            case "Gateway":
                if is_class_ours(derived(lookups, "gateways", class_of, *keys), lookups, controller):
                    yield _attach(route, kind, reference, derived(lookups, "gateways", wanted, *keys), lookups)
            case "ListenerSet":
                found = bare(lookups, "listenerSets", *keys)
                gateway = parent_of(found, lookups) if found is not None else None
                if found is not None and gateway is not None and is_ours(gateway, lookups, controller):
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
    matching = [Attached(listener, shared) for listener in allowing if (shared := _shared_hostnames(route, listener))]
    attached = tuple(found for found in matching if not _is_displaced(route, kind, found, lookups))
    return Attachment(reference, attached, "" if attached else DISPLACED if matching else NO_HOSTNAME)


def _is_displaced(route: Resource, kind: str, attached: Attached, lookups: Lookups) -> bool:
    """Whether an older route of the other kind, not displaced itself, has one of the hosts of *route* on the listener.

    Decided from the oldest route on, each once, so the cost is linear in the
    number of older routes that share hosts, directly or through others.
    """
    if RIVALS.get(kind) is None:
        return False
    taken: dict[str, set[str]] = {"HTTPRoute": set(), "GRPCRoute": set()}
    for _, one, hosts in sorted(_older_contenders(route, kind, attached, lookups)):
        if not _meet(hosts, taken[RIVALS[one].name]):
            taken[one].update(hosts)
    return _meet(_hosts(attached), taken[RIVALS[kind].name])


def _older_contenders(
    route: Resource, kind: str, attached: Attached, lookups: Lookups
) -> Iterator[tuple[tuple[Any, ...], str, tuple[str, ...]]]:
    """Yield age, kind and hosts of each route older than *route* that may decide about it; each route once."""
    listener, own = attached.listener, _order(route, kind)
    known = {(kind, namespace_of(route), name_of(route))}
    asked: set[tuple[str, str]] = set()
    waiting = [(kind, _hosts(attached))]
    while waiting:
        one, hosts = waiting.pop()
        other = RIVALS[one]
        for rival in _rivals(other, hosts, listener, asked, lookups):
            key = other.name, namespace_of(rival), name_of(rival)
            if key in known:
                continue
            known.add(key)
            order = _order(rival, other.name)
            if order < own and _reaches(rival, other.name, listener, lookups):
                shared = tuple(host for host, _ in _shared_hostnames(rival, listener))
                if shared:
                    yield order, other.name, shared
                    waiting.append((other.name, shared))


def _order(route: Resource, kind: str) -> tuple[Any, ...]:
    return (*age_of(route), kind == "GRPCRoute")


def _hosts(attached: Attached) -> tuple[str, ...]:
    return tuple(host for host, _ in attached.hostnames)


def _is_wide(host: str) -> bool:
    return host == ANY or host.startswith("*")


def _meet(hosts: Iterable[str], taken: AbstractSet[str]) -> bool:
    """Whether one of *hosts* has a name in common with one of *taken*."""
    return any(
        any(intersection(host, other) is not None for other in taken)
        if _is_wide(host)
        else not taken.isdisjoint((host, ANY, *wider(host)))
        for host in hosts
    )


def _rivals(
    other: RouteKind, hosts: Iterable[str], listener: Listener, asked: set[tuple[str, str]], lookups: Lookups
) -> Iterator[Resource]:
    """Yield the routes of the kind *other* that may share one of *hosts*; reads all of them only for wildcards.

    *asked* has the lookups made before, which are not repeated.
    """

    def find(index: str, key: str) -> Sequence[Resource]:
        if (index, key) in asked:
            return ()
        asked.add((index, key))
        return bare_in(lookups, index, key)

    if any(map(_is_wide, hosts)):
        yield from find(other.by_gateway, listener.owner)
        return
    yield from find(other.without_host, listener.owner)
    for host in hosts:
        for name in (host, *wider(host)):
            yield from find(other.by_host, name)


def _reaches(route: Resource, kind: str, listener: Listener, lookups: Lookups) -> bool:
    """Whether *route* would be attached to *listener* if there were no other routes."""
    return (
        kind in listener.kinds
        and listener.allows(lookups, namespace_of(route))
        and any(
            (text_of(reference, "group") or GROUP, text_of(reference, "kind") or "Gateway") == (GROUP, listener.kind)
            and (text_of(reference, "namespace") or namespace_of(route)) == listener.namespace
            and text_of(reference, "name") == listener.owner
            and text_of(reference, "sectionName") in ("", listener.name)
            and reference.get("port") in (None, listener.port)
            for reference in items_of(route, "spec", "parentRefs")
        )
    )


def _shared_hostnames(route: Resource, listener: Listener) -> tuple[tuple[str, str], ...]:
    shared: dict[str, str] = {}
    if has_hostname_fault(listener):
        # The fault is the listener's; it must not reject a route that has other listeners.
        return ()
    for hostname in hostnames_of(route):
        common = intersection(hostname, listener.hostname) if not hostname or is_hostname(hostname) else None
        # Of several host names of the route with the same intersection, the most specific one counts.
        if common is not None and (common not in shared or len(hostname) > len(shared[common])):
            shared[common] = hostname
    return tuple(shared.items())


def listeners_for(route: Resource, kind: str, lookups: Lookups, controller: str) -> dict[str, Attached]:
    """Return the listeners that *route* is attached to, by their keys."""
    found: dict[str, Attached] = {}
    for attachment in attach(route, kind, lookups, controller):
        for attached in attachment.attached:
            found.setdefault(attached.listener.key, attached)
    return found
