"""Gateways and their listeners: ownership, accepted routes, conflicts."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import msgspec

from haptic_trio.gateway.hostnames import ANY, is_hostname
from haptic_trio.gateway.listeners.label_selectors import selects
from haptic_trio.gateway.objects import (
    GROUP,
    Lookups,
    Resource,
    Same,
    age_of,
    bare,
    bare_in,
    derived,
    dig,
    items_of,
    name_of,
    namespace_of,
    target_namespace,
    text_of,
)

KINDS_OF_PROTOCOL: Final[Mapping[str, tuple[str, ...]]] = {
    "HTTP": ("HTTPRoute", "GRPCRoute"),
    "HTTPS": ("HTTPRoute", "GRPCRoute"),
    "TLS": ("TLSRoute",),
    "TCP": ("TCPRoute",),
}
"""The route kinds that a listener of each supported protocol accepts."""
_KNOWN: Final = 16
"""Maximum number of Gateways with ListenerSets whose listeners are cached."""
PARENT_INDEX: Final = "listener_set_gateway()"
"""In `indexBy`: the namespace and name of the Gateway that a ListenerSet is for, with `/` between them."""


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """A listener of a Gateway of this controller; references are not resolved."""

    kind: str
    """`Gateway` or `ListenerSet`: whose listener it is."""
    namespace: str
    """The owner's."""
    owner: str
    """The owner's name."""
    name: str
    port: int
    protocol: str
    hostname: str
    kinds: tuple[str, ...]
    """Kinds of routes that the listener accepts."""
    has_invalid_kinds: bool
    conflict: str
    """Reason of the condition `Conflicted`; empty if there is none."""
    source: Mapping[str, Any]
    """As the object has it."""

    @property
    def is_accepted(self) -> bool:
        """Whether it can be served at all."""
        return self.protocol in KINDS_OF_PROTOCOL and not self.conflict

    @property
    def is_servable(self) -> bool:
        """Whether it is accepted, and its object has all that it needs; objects that it refers to may be absent."""
        has_certificates = not self.is_terminated or bool(items_of(self.source, "tls", "certificateRefs"))
        return self.is_accepted and bool(self.kinds) and has_certificates and not has_hostname_fault(self)

    @property
    def is_terminated(self) -> bool:
        """Whether HAProxy terminates its TLS connections, which requires certificates."""
        return self.protocol == "HTTPS" or (self.protocol == "TLS" and not self.is_passed_through)

    @property
    def is_passed_through(self) -> bool:
        """Whether its TLS connections end at the backend."""
        return self.protocol == "TLS" and text_of(self.source, "tls", "mode") == "Passthrough"

    @property
    def family(self) -> str:
        """Family of the protocol: `http`, `https`, `passthrough`, `tls` or `tcp`."""
        return "passthrough" if self.is_passed_through else self.protocol.lower()

    @property
    def company(self) -> str:
        """Key that is equal for listeners that can share a port."""
        return _company(self.source)

    @property
    def key(self) -> str:
        """Prefix of its keys in the maps."""
        # Its name is text, as long as no API server has checked it, and may not end a key or be that of a set.
        return f"{self.namespace}/{self.owner}/{_quoted(self.name)}" + ("" if self.kind == "Gateway" else "/set")

    def allows(self, lookups: Lookups, namespace: str) -> bool:
        """Whether routes of *namespace* may be attached."""
        allowed = dig(self.source, "allowedRoutes", "namespaces")
        return allows_namespace(allowed, "Same", self.namespace, namespace, lookups)


@lru_cache(maxsize=64)
def _quoted(name: str) -> str:
    return quote(name, safe="")


class _Selected(msgspec.Struct, frozen=True):
    """Whether a selector covers the labels of a Namespace."""

    selector: str
    """As JSON."""

    def __call__(self, found: Sequence[Resource]) -> bool:
        return bool(found) and selects(json.loads(self.selector), dig(found[0], "metadata", "labels"))


def allows_namespace(allowed: Any, default: str, own: str, namespace: str, lookups: Lookups) -> bool:
    """Whether *allowed*, of an object in the namespace *own*, covers *namespace*."""
    origin = text_of(allowed, "from") or default
    if origin == "Selector":
        return derived(
            lookups, "namespaces", _Selected(json.dumps(dig(allowed, "selector"), sort_keys=True)), namespace
        )
    return origin == "All" or (origin == "Same" and namespace == own)


def is_managed(gateway: Resource, lookups: Lookups, controller: str) -> bool:
    """Whether *gateway* is of a class of *controller*."""
    return is_managed_class(class_of([gateway]), lookups, controller)


def class_of(found: Sequence[Resource]) -> str:
    """Return the name of the class of the Gateway that *found* has; empty without one."""
    return text_of(found[0], "spec", "gatewayClassName") if found else ""


def is_managed_class(name: str, lookups: Lookups, controller: str) -> bool:
    """Whether the GatewayClass *name* exists and has the controller *controller*."""
    return bool(name) and derived(lookups, "gatewayClasses", _controller, name) == controller


def _controller(found: Sequence[Resource]) -> str | None:
    return text_of(found[0], "spec", "controllerName") if found else None


def is_rejected(gateway: Resource) -> bool:
    """Whether *gateway* has parameters. None are supported: the Gateway is not accepted, and not served."""
    return dig(gateway, "spec", "infrastructure", "parametersRef") is not None


def our_gateways(lookups: Lookups, controller: str) -> list[Resource]:
    """Return all Gateways of classes of *controller*."""
    return [gateway for gateway in bare_in(lookups, "gateways") if is_managed(gateway, lookups, controller)]


def listeners_of(gateway: Resource) -> tuple[Listener, ...]:
    """Return the listeners of *gateway* itself, in its order."""
    sources = _sources(gateway)
    conflicts = _conflicts(sources)
    return tuple(_listener(gateway, source, conflict) for source, conflict in zip(sources, conflicts, strict=True))


class WantedListeners(msgspec.Struct, frozen=True):
    """Asks for those listeners that a reference of a route means; others may change at no cost."""

    section: str
    """Empty for all."""
    port: int | None
    """None for all."""

    def __call__(self, found: Sequence[Resource]) -> tuple[Listener, ...]:
        """Return those of the Gateway that *found* has, if any."""
        return self.among(listeners_of(found[0])) if found else ()

    def among(self, listeners: Iterable[Listener]) -> tuple[Listener, ...]:
        """Return those of *listeners*."""
        return tuple(
            listener
            for listener in listeners
            if self.section in ("", listener.name) and self.port in (None, listener.port)
        )


def _sources(owner: Resource) -> list[Mapping[str, Any]]:
    return [source for source in items_of(owner, "spec", "listeners") if isinstance(source, Mapping)]


def allows_set(gateway: Resource, listener_set: Resource, lookups: Lookups) -> bool:
    """Whether *gateway* lets *listener_set* add listeners."""
    allowed = dig(gateway, "spec", "allowedListeners", "namespaces")
    return allows_namespace(allowed, "None", namespace_of(gateway), namespace_of(listener_set), lookups)


def parent_key(listener_set: Resource) -> tuple[str, str] | None:
    """Return the namespace and name of the Gateway that *listener_set* names; None if it names none."""
    reference = dig(listener_set, "spec", "parentRef")
    if (text_of(reference, "group") or GROUP) != GROUP or (text_of(reference, "kind") or "Gateway") != "Gateway":
        return None
    return target_namespace(reference, listener_set), text_of(reference, "name")


def parent_of(listener_set: Resource, lookups: Lookups) -> Resource | None:
    """Return the Gateway that *listener_set* is for; None if it is not there."""
    key = parent_key(listener_set)
    return bare(lookups, "gateways", *key) if key is not None else None


def opens_port(gateway: Resource, port: int) -> bool:
    """Whether *gateway* itself has a servable listener on *port*."""
    # Only listeners of one port exclude each other.
    sources = _sources_with(gateway, port)
    conflicts = _conflicts(sources)
    return any(_listener(gateway, *one).is_servable for one in zip(sources, conflicts, strict=True))


def may_open_port(listener_set: Resource, port: int) -> bool:
    """Whether *listener_set* has a listener on *port* that is servable unless another one excludes it."""
    return any(_listener(listener_set, source, "").is_servable for source in _sources_with(listener_set, port))


def named_ports(owner: Resource) -> tuple[int, ...]:
    """Return the ports of the listeners of *owner*, in its order: those that a frontend may serve, each once."""
    ports = (_port_of(source) for source in _sources(owner) if text_of(source, "protocol") in KINDS_OF_PROTOCOL)
    return tuple(dict.fromkeys(port for port in ports if port))


def _sources_with(owner: Resource, port: int) -> list[Mapping[str, Any]]:
    return [source for source in _sources(owner) if source.get("port") == port and _port_of(source) == port]


def all_listeners(gateway: Resource, lookups: Lookups) -> tuple[Listener, ...]:
    """Return the listeners of *gateway*, and those that ListenerSets add, the oldest first.

    A listener of a set that excludes, or is excluded by, one before it has
    the conflict alone.
    """
    return _combined(gateway, lookups).listeners


def listeners_of_set(listener_set: Resource, gateway: Resource, lookups: Lookups) -> tuple[Listener, ...]:
    """Return those of `all_listeners` that *listener_set* adds, in its order."""
    return _combined(gateway, lookups).of_sets.get((namespace_of(listener_set), name_of(listener_set)), ())


class Combined(NamedTuple):
    """The listeners of a Gateway with those of ListenerSets, as `all_listeners` returns them."""

    listeners: tuple[Listener, ...]
    of_sets: Mapping[tuple[str, str], tuple[Listener, ...]]
    """Those of each ListenerSet, by its namespace and name."""


def _combined(gateway: Resource, lookups: Lookups) -> Combined:
    sets = _sets_named(gateway, lookups)
    if not sets:
        return Combined(listeners_of(gateway), {})
    found = Same(sets)
    allowed = dig(gateway, "spec", "allowedListeners", "namespaces")
    own = namespace_of(gateway)
    namespaces = frozenset(
        namespace for namespace in namespaces_in(found) if allows_namespace(allowed, "None", own, namespace, lookups)
    )
    # Each route of each ListenerSet asks: for all of them it is found once.
    return combine(Same(gateway), found, namespaces)


@lru_cache(maxsize=_KNOWN)
def namespaces_in(sets: Same[Sequence[Resource]]) -> frozenset[str]:
    """Return the namespaces of *sets*."""
    return frozenset(map(namespace_of, sets.found))


@lru_cache(maxsize=_KNOWN)
def combine(owner: Same[Resource], sets: Same[Sequence[Resource]], namespaces: frozenset[str]) -> Combined:
    """Return the listeners of the Gateway *owner* and of those of *sets*, which are for it, in *namespaces*."""
    gateway = owner.found
    found = list(listeners_of(gateway))
    served = [listener for listener in found if listener.is_accepted]
    companies = {listener.port: listener.company for listener in served}
    taken = {(listener.port, listener.hostname) for listener in served}
    of_sets: dict[tuple[str, str], tuple[Listener, ...]] = {}
    for listener_set in sorted((one for one in sets.found if namespace_of(one) in namespaces), key=age_of):
        added = []
        for source in _sources(listener_set):
            listener = _listener(listener_set, source, "")
            if companies.get(listener.port, listener.company) != listener.company:
                listener = _listener(listener_set, source, "ProtocolConflict")
            elif (listener.port, listener.hostname) in taken:
                listener = _listener(listener_set, source, "HostnameConflict")
            elif listener.is_accepted:
                companies[listener.port] = listener.company
                taken.add((listener.port, listener.hostname))
            added.append(listener)
        found += added
        of_sets[namespace_of(listener_set), name_of(listener_set)] = tuple(added)
    return Combined(tuple(found), of_sets)


def _sets_named(gateway: Resource, lookups: Lookups) -> Sequence[Resource]:
    """Return the ListenerSets for *gateway* that it may allow; those of other namespaces cost it nothing otherwise."""
    origin = text_of(gateway, "spec", "allowedListeners", "namespaces", "from")
    if origin not in ("All", "Same", "Selector"):
        return ()
    namespace = namespace_of(gateway)
    keys = [f"{namespace}/{name_of(gateway)}", *([namespace] if origin == "Same" else ())]
    return bare_in(lookups, "listenerSetsByGateway", *keys)


def gateway_in(listener_set: Any) -> list[str]:
    """Return the value of `PARENT_INDEX` for *listener_set*; none if it names no Gateway."""
    key = parent_key(listener_set)
    return ["/".join(key)] if key is not None else []


def _listener(owner: Resource, source: Mapping[str, Any], conflict: str) -> Listener:
    protocol = text_of(source, "protocol")
    known = KINDS_OF_PROTOCOL.get(protocol, ())
    named = items_of(source, "allowedRoutes", "kinds")
    wanted = [text_of(kind, "kind") for kind in named if (text_of(kind, "group") or GROUP) == GROUP]
    kinds = tuple(kind for kind in known if kind in wanted) if named else known
    return Listener(
        kind=text_of(owner, "kind"),
        namespace=namespace_of(owner),
        owner=name_of(owner),
        name=text_of(source, "name"),
        port=_port_of(source),
        protocol=protocol,
        hostname=hostname_of(source),
        kinds=kinds,
        has_invalid_kinds=bool(named) and len(kinds) < len(named),
        conflict=conflict,
        source=source,
    )


def _port_of(source: Mapping[str, Any]) -> int:
    """Return the port of a listener; 0, which no listener can have, for anything that is not a whole number."""
    port = source.get("port")
    return port if isinstance(port, int) and not isinstance(port, bool) else 0


def hostname_of(source: Any) -> str:
    """Return the host name of a listener in lower case; `ANY` for none."""
    return text_of(source, "hostname").lower() or ANY


def _conflicts(sources: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return for each listener the reason for which it and another one exclude each other; empty for none."""
    known = [
        (_port_of(source), _company(source), text_of(source, "protocol"), hostname_of(source)) for source in sources
    ]
    companies: dict[Any, set[str]] = {}
    for port, company, protocol, _ in known:
        if protocol in KINDS_OF_PROTOCOL:
            companies.setdefault(port, set()).add(company)
    hosts = Counter((port, company, hostname) for port, company, _, hostname in known)
    return [
        "ProtocolConflict"
        if len(companies.get(port, ())) > 1
        else "HostnameConflict"
        if hosts[port, company, hostname] > 1
        else ""
        for port, company, _, hostname in known
    ]


def _company(source: Any) -> str:
    # Protocols that begin with a TLS ClientHello are distinguished by the host name in it.
    protocol = text_of(source, "protocol")
    return "hello" if protocol in ("HTTPS", "TLS") else protocol


def has_hostname_fault(listener: Listener) -> bool:
    """Whether the listener's host name is invalid."""
    return listener.hostname != ANY and not is_hostname(listener.hostname)
