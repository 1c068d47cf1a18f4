"""Which listeners a route is attached to by each of its parent references, and why it is not."""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from haptic_trio.gateway.hostnames import intersection, is_hostname
from haptic_trio.gateway.listeners import Listener, all_listeners, is_ours, listeners_of, parent_of
from haptic_trio.gateway.objects import GROUP, Lookups, Resource, items_of, namespace_of, single, text_of

NO_PARENT = "NoMatchingParent"
NOT_ALLOWED = "NotAllowedByListeners"
NO_HOSTNAME = "NoMatchingListenerHostname"


class Attached(msgspec.Struct, frozen=True):
    """A listener that a route is attached to, and the host names that both have."""

    listener: Listener
    hostnames: tuple[tuple[str, str], ...]
    """Each with the route's own, which is `ANY` for a route without."""


class Attachment(msgspec.Struct, frozen=True):
    """What became of one parent reference to a Gateway of ours."""

    reference: Mapping[str, Any]
    attached: tuple[Attached, ...]
    reason: str = ""
    """Why there is none; empty if there is one."""


def hostnames_of(route: Resource) -> tuple[str, ...]:
    """Return the host names of *route*, in lower case; `ANY` if it has none."""
    names = tuple(str(name).lower() for name in items_of(route, "spec", "hostnames") if isinstance(name, str))
    return tuple(dict.fromkeys(names)) or ("",)


def attach(route: Resource, kind: str, lookups: Lookups, controller: str) -> Iterator[Attachment]:
    """Yield what became of each parent reference of *route*, a route of *kind*, to a Gateway of *controller*."""
    for reference in items_of(route, "spec", "parentRefs"):
        if (text_of(reference, "group") or GROUP) != GROUP:
            continue
        namespace = text_of(reference, "namespace") or namespace_of(route)
        match text_of(reference, "kind") or "Gateway":
            case "Gateway":
                gateway = single(lookups, "gateways", namespace, text_of(reference, "name"))
                if gateway is not None and is_ours(gateway, lookups, controller):
                    yield _attach(route, kind, reference, listeners_of(gateway), lookups)
            case "ListenerSet":
                found = single(lookups, "listenerSets", namespace, text_of(reference, "name"))
                gateway = parent_of(found, lookups) if found is not None else None
                if found is not None and gateway is not None and is_ours(gateway, lookups, controller):
                    listeners = all_listeners(gateway, lookups)
                    own = tuple(listener for listener in listeners if listener.is_owned_by(found))
                    yield _attach(route, kind, reference, own, lookups)


def _attach(
    route: Resource, kind: str, reference: Mapping[str, Any], listeners: tuple[Listener, ...], lookups: Lookups
) -> Attachment:
    section, port = text_of(reference, "sectionName"), reference.get("port")
    named = [
        listener
        for listener in listeners
        if section in ("", listener.name) and port in (None, listener.port) and listener.is_accepted
    ]
    if not named:
        return Attachment(reference, (), NO_PARENT)
    allowing = [
        listener for listener in named if kind in listener.kinds and listener.allows(lookups, namespace_of(route))
    ]
    if not allowing:
        return Attachment(reference, (), NOT_ALLOWED)
    attached = tuple(
        Attached(listener, shared) for listener in allowing if (shared := _shared_hostnames(route, listener))
    )
    return Attachment(reference, attached, "" if attached else NO_HOSTNAME)


def _shared_hostnames(route: Resource, listener: Listener) -> tuple[tuple[str, str], ...]:
    shared: dict[str, str] = {}
    for hostname in hostnames_of(route):
        common = intersection(hostname, listener.hostname) if not hostname or is_hostname(hostname) else None
        # Of several of the route that mean the same here, the most specific one counts.
        if common is not None and (common not in shared or len(hostname) > len(shared[common])):
            shared[common] = hostname
    return tuple(shared.items())


def listeners_for(route: Resource, kind: str, lookups: Lookups, controller: str) -> dict[str, Attached]:
    """Return each listener that *route* is attached to, once, by its key."""
    found: dict[str, Attached] = {}
    for attachment in attach(route, kind, lookups, controller):
        for attached in attachment.attached:
            found.setdefault(attached.listener.key, attached)
    return found
