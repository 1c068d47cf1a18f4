"""Attachment of a route to listeners by its parent references, with the reason if there is none."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from haptic_trio.gateway.listeners.listeners import (
    Listener,
    WantedListeners,
    class_of,
    is_managed,
    is_managed_class,
    listeners_of_set,
    parent_of,
)
from haptic_trio.gateway.objects import (
    GROUP,
    Lookups,
    Resource,
    bare,
    derived,
    dig,
    identity_of,
    items_of,
    namespace_of,
    shared,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes.contenders import hostnames_of
from haptic_trio.gateway.routes.rivals import is_displaced, shared_hostnames

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
