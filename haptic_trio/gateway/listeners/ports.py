"""Served ports of a Gateway, and the listeners behind each of them.

Listeners of a port that are served in different ways are distinguished by the
host name that a client's first message asks for. A frontend in front reads
it; connections that end here go on to an inner frontend, one for each way,
at an address that only this machine can reach.
"""

import hashlib
import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final

import msgspec

from haptic_trio.gateway.hostnames import ANY, is_hostname, wider
from haptic_trio.gateway.listeners.addresses import IP_ADDRESS, Placement, placements, requested_addresses
from haptic_trio.gateway.listeners.certificates import CertificateProblem, certificates_of, names_of
from haptic_trio.gateway.listeners.clients import (
    ClientValidation,
    certificate_suffix,
    client_certificate,
    client_validation,
)
from haptic_trio.gateway.listeners.exclusions import Room, choose
from haptic_trio.gateway.listeners.held_ports import classes_of, unavailable_ports
from haptic_trio.gateway.listeners.listener_limits import listeners_beyond
from haptic_trio.gateway.listeners.listeners import (
    Listener,
    all_listeners,
    has_hostname_fault,
    is_managed,
    is_rejected,
)
from haptic_trio.gateway.listeners.port_rules import TOO_MANY, TOO_MANY_OWN, PortRules
from haptic_trio.gateway.objects import Lookups, Resource, checked_name, hash_of, name_of, namespace_of

MIXED: Final = "mixed"
_TERMINATED: Final = frozenset({"https", "tls"})
_ELSEWHERE: Final = "="
"""Key of a listener that another frontend of the port serves: no entry of a route begins with it."""
_INNER: Final = int(ipaddress.IPv4Address("127.128.0.0"))
_MOST_INNER: Final = 2**23 - 2
"""Number of loopback addresses from `_INNER` on."""
_ROOM: Final = Room(hosts=1_900, size=60_000, share_hosts=64, share_size=3_000)
"""Of all names in a line: HAProxy takes 2,047 words and 64 kB, and a line also has the file and its options."""
_LONGEST_STEM: Final = 150
"""Names of files have at most 200 characters."""


class ServedListener(msgspec.Struct, frozen=True):
    """A listener as a frontend serves it."""

    key: str
    """Prefix of its keys in the maps; `=` if another frontend serves it, and the backend that leads there, if any."""
    hostname: str
    """`*` for every host."""
    secrets: tuple[Resource, ...]
    lines: tuple[tuple[Resource, tuple[str, ...], tuple[str, ...]], ...] = ()
    """Lines of the crt-list: a Secret, the hosts that it serves, and the hosts excluded from its wildcards."""
    listener_set: tuple[str, str] | None = None
    """Namespace and name of the ListenerSet that adds it; None if it is the Gateway's own."""


class ServedPort(msgspec.Struct, frozen=True, kw_only=True):
    """One frontend of a Gateway."""

    name: str
    addresses: tuple[str, ...]
    port: int
    kind: str
    """`http`, `https`, `passthrough`, `tls` (terminated), `tcp`, or `mixed`: several, distinguished by host."""
    listeners: tuple[ServedListener, ...]
    known: tuple[ServedListener, ...]
    """Listeners to look hosts up in: a client may connect for one host and request the host of another listener."""
    clients: ClientValidation | None = None
    suffix: str = ""
    """Suffix of the names of its backends."""
    outer: "ServedPort | None" = None
    """The frontend in front, from which TCP connections come through the backend `entry`, by the PROXY protocol."""

    @property
    def is_inner(self) -> bool:
        """Whether another frontend is in front. HTTP/3, which that one cannot read, comes from clients nevertheless."""
        return self.outer is not None

    @property
    def has_default(self) -> bool:
        """Whether a listener takes all hosts: its certificate is for clients that name no other one."""
        return any(listener.hostname == "*" for listener in self.listeners)

    @property
    def has_wildcards(self) -> bool:
        """Whether a known listener takes all hosts of a domain."""
        return any(listener.hostname.startswith("*.") for listener in self.known)

    @property
    def entry(self) -> str:
        """The name of the backend that leads to an inner frontend."""
        return _entry_of(self.name)

    @property
    def verified(self) -> str:
        """Name of the stick table with the client certificates that were verified here; empty if none are required.

        The name depends on the authorities: if they change, every client is verified again.
        """
        if self.clients is None or self.clients.is_optional or not self.clients.authorities:
            return ""
        digest = hash_of(self.clients.authorities, 16)
        return f"gateway-clients::{self.name}_{digest}"


class RejectedPort(msgspec.Struct, frozen=True):
    """A port on which listeners of one owner are not served."""

    owner: Resource
    """A Gateway or ListenerSet, as far as it takes to name it."""
    port: int
    reason: str


class RejectedListeners(msgspec.Struct, frozen=True):
    """Listeners of a ListenerSet that are beyond the limit of their namespace."""

    owner: Resource
    """As far as it takes to name it."""
    count: int
    reason: str


def _entry_of(frontend: str) -> str:
    return f"gateway-entry::{frontend}"


def served_ports(gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> list[ServedPort]:
    """Return the served ports of *gateway*; none if it is not of *controller*, or not accepted."""
    if not is_managed(gateway, resources, controller) or is_rejected(gateway):
        return []
    placement = _placement(gateway, resources, controller, rules)
    if rules.pool and not placement.addresses:
        return []
    taken = unavailable_ports(gateway, resources, controller, rules, placement.addresses)
    beyond = listeners_beyond(gateway, resources, rules)
    ports: dict[int, dict[str, list[ServedListener]]] = {}
    for listener in all_listeners(gateway, resources):
        is_open = listener.is_accepted and listener.kinds and listener.port not in taken and listener.key not in beyond
        found = _served(gateway, listener, resources) if is_open else None
        if found is not None:
            ports.setdefault(listener.port, {}).setdefault(listener.family, []).append(found)
    secret = client_certificate(gateway, resources)
    has_certificate = secret is not None and not isinstance(secret, CertificateProblem)
    suffix = certificate_suffix(gateway) if has_certificate else ""
    stem = _stem_of(gateway)
    return [
        msgspec.structs.replace(served, clients=client_validation(gateway, port, resources), suffix=suffix)
        if served.kind in _TERMINATED
        else msgspec.structs.replace(served, suffix=suffix)
        for port, families in sorted(ports.items())
        for served in _frontends(
            f"{stem}_{port}",
            placement.addresses,
            port,
            {family: _with_lines(listeners, families) for family, listeners in families.items()},
            rules.pool,
        )
    ]


def address_problem(gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> str:
    """Return why *gateway* lacks an address of the pool; empty if it has all that it asks for."""
    if not rules.pool or not is_managed(gateway, resources, controller) or is_rejected(gateway):
        return ""
    placement = _placement(gateway, resources, controller, rules)
    if placement.unsupported:
        return f"spec.addresses: the type {placement.unsupported} is not supported; use {IP_ADDRESS}"
    return placement.unusable


def address_guard(gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> str:
    """Return a name for the addresses that *gateway* requests, or has if it requests none; empty without a pool.

    As a guard, it keeps a former version from being served at other addresses, which other Gateways may have by now.
    """
    if not rules.pool or not is_managed(gateway, resources, controller):
        return ""
    found = requested_addresses(gateway) or _placement(gateway, resources, controller, rules).addresses
    return f"addresses {' '.join(sorted(found))}"


def rejected_ports(gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> list[RejectedPort]:
    """Return the unavailable ports of the listeners of *gateway*, once for each owner of listeners."""
    if not is_managed(gateway, resources, controller) or is_rejected(gateway):
        return []
    placement = _placement(gateway, resources, controller, rules)
    taken = unavailable_ports(gateway, resources, controller, rules, placement.addresses)
    owners = {
        (listener.port, listener.kind, listener.namespace, listener.owner): None
        for listener in (all_listeners(gateway, resources) if taken else ())
        if listener.is_accepted and listener.port in taken
    }
    return [
        RejectedPort(_named(kind, namespace, name), port, taken[port]) for port, kind, namespace, name in sorted(owners)
    ]


def rejected_listeners(
    gateway: Resource, resources: Lookups, controller: str, rules: PortRules
) -> list[RejectedListeners]:
    """Return the ListenerSets for *gateway* with more listeners than their namespace may add."""
    if not is_managed(gateway, resources, controller) or is_rejected(gateway):
        return []
    beyond = listeners_beyond(gateway, resources, rules)
    owners = Counter((listener.namespace, listener.owner) for listener in beyond.values())
    own = namespace_of(gateway)
    return [
        RejectedListeners(_named("ListenerSet", *owner), count, TOO_MANY_OWN if owner[0] == own else TOO_MANY)
        for owner, count in sorted(owners.items())
    ]


def _stem_of(gateway: Resource) -> str:
    """Return the beginning of the names of frontends and crt-lists of *gateway*; a long name ends with a hash."""
    # The form of the template function `ident` with a kind, so it never equals a backend name of an Ingress.
    text = f"gateway-port::{checked_name(namespace_of(gateway))}_{checked_name(name_of(gateway))}"
    if len(text) <= _LONGEST_STEM:
        return text
    return f"{text[: _LONGEST_STEM - 33]}_{hash_of(text)}"


def _named(kind: str, namespace: str, name: str) -> Resource:
    return {"kind": kind, "metadata": {"namespace": namespace, "name": name}}


def _frontends(
    name: str,
    addresses: tuple[str, ...],
    port: int,
    families: Mapping[str, list[ServedListener]],
    pool: Sequence[str],
) -> Iterator[ServedPort]:
    if len(families) == 1:
        ((kind, listeners),) = families.items()
        found = _in_order(listeners)
        yield ServedPort(name=name, addresses=addresses, port=port, kind=kind, listeners=found, known=found)
        return
    entries = {kind: f"{name}_inner_{kind}" for kind in sorted(families) if kind in _TERMINATED}
    leading = _in_order(
        [
            ServedListener(f"={_entry_of(entries[kind])}" if kind in entries else listener.key, listener.hostname, ())
            for kind, listeners in sorted(families.items())
            for listener in listeners
        ]
    )
    outer = ServedPort(name=name, addresses=addresses, port=port, kind=MIXED, listeners=leading, known=leading)
    yield outer
    for kind, inner in entries.items():
        others = [
            ServedListener(_ELSEWHERE, listener.hostname, ())
            for other, listeners in sorted(families.items())
            for listener in listeners
            if other != kind
        ]
        yield ServedPort(
            name=inner,
            addresses=(inner_address(inner, _place(addresses, pool, kind)),),
            port=port,
            kind=kind,
            listeners=_in_order(families[kind]),
            known=_in_order([*families[kind], *others]),
            outer=outer,
        )


def _place(addresses: Sequence[str], pool: Sequence[str], kind: str) -> int | None:
    """Return a number that no other Gateway's inner frontend for the same port has; None if no other has the port."""
    return 2 * pool.index(addresses[0]) + (kind == "tls") if addresses else None


def inner_address(name: str, place: int | None = None) -> str:
    """Return an address of this machine's own for the frontend *name*, always the same.

    Frontends of one port differ in *place*: names with the same digest can be
    found, and the kernel deals out connections among those that share an
    address. Without a *place* only the port distinguishes Gateways.
    """
    digest = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8]) if place is None else place
    return str(ipaddress.IPv4Address(_INNER + 1 + digest % _MOST_INNER))


def _in_order(listeners: Sequence[ServedListener]) -> tuple[ServedListener, ...]:
    """Return *listeners* with the one for every host first: its certificate is for clients that name no known host."""
    return tuple(sorted(listeners, key=lambda listener: listener.hostname != "*"))


def _served(gateway: Resource, listener: Listener, resources: Lookups) -> ServedListener | None:
    if has_hostname_fault(listener):
        # It must not reject the Gateway, which may have listeners of other namespaces.
        return None
    secrets: tuple[Resource, ...] = ()
    if listener.is_terminated:
        clients = client_validation(gateway, listener.port, resources)
        if clients is not None and not clients.authorities:
            return None
        secrets, _ = certificates_of(resources, listener.source, kind=listener.kind, namespace=listener.namespace)
        if not secrets:
            return None
    hostname = "*" if listener.hostname == ANY else listener.hostname
    owner = (listener.namespace, listener.owner) if listener.kind == "ListenerSet" else None
    return ServedListener(listener.key, hostname, secrets, listener_set=owner)


def _with_lines(
    listeners: Sequence[ServedListener], families: Mapping[str, Sequence[ServedListener]]
) -> list[ServedListener]:
    """Return *listeners*, which have a crt-list of their own, with its lines; *families* has all of their port."""
    hosts = PortHosts(chain.from_iterable(families.values()), listeners)
    return [with_lines(listener, hosts) for listener in listeners]


class PortHosts:
    """The hosts of all listeners of a port, and those that a crt-list of some of them must keep apart."""

    def __init__(self, listeners: Iterable[ServedListener], listed: Iterable[ServedListener]) -> None:
        """*listeners* are all of the port, *listed* those with lines in one crt-list."""
        self._known = frozenset(listener.hostname for listener in listeners) - {"*"}
        # By wildcard, and by the namespace of a ListenerSet: names of the Gateway have an empty one.
        self._below: dict[str, dict[str, list[str]]] = {}
        for listener in listed:
            host = listener.hostname
            if not host.startswith("*"):
                owner = listener.listener_set[0] if listener.listener_set is not None else ""
                self._below.setdefault(f"*.{host.partition('.')[2]}", {}).setdefault(owner, []).append(host)

    def host_of(self, name: str) -> str:
        """Return the host of the listener that takes *name*, the most specific one; `*` if no other one does."""
        return next((host for host in (name, *wider(name)) if host in self._known), "*")

    def excluded(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return the hosts that a line for *names* excludes: one label instead of the `*` of a wildcard.

        HAProxy limits the length of a line. Hosts of a namespace beyond its
        share of the line may be missing.
        """
        below = [self._below[name] for name in names if name in self._below]
        if not below:
            return ()
        hosts, size = _ROOM.hosts - len(names), _ROOM.size - sum(len(name) + 1 for name in names)
        room = msgspec.structs.replace(_ROOM, hosts=hosts, size=size)
        return choose([list(owned.items()) for owned in below], room)


def with_lines(listener: ServedListener, hosts: PortHosts) -> ServedListener:
    """Return *listener* with its lines of a crt-list, where *hosts* are those of all listeners of its port.

    A certificate is shown for the hosts of its listener alone, whatever it
    names. HAProxy may prefer that of a wildcard to that of the very name, for
    its kind of key; so names of other listeners with certificates are excluded.
    """
    lines = []
    for secret in listener.secrets:
        names = _names_for(listener.hostname, secret, hosts)
        lines.append((secret, names, hosts.excluded(names)))
    return msgspec.structs.replace(listener, lines=tuple(lines))


def _names_for(hostname: str, secret: Resource, hosts: PortHosts) -> tuple[str, ...]:
    """Return the names in a line for *hostname*, the host of a listener with the certificate *secret*.

    HAProxy has a wildcard match one label only, and shows the certificate of
    the listener for every host for names that no line has. So names of more
    labels are listed if they are in the certificate.
    """
    if not hostname.startswith("*"):
        return (hostname,)
    found = {
        name
        for name in names_of(secret) or ()
        if name.endswith(hostname[1:])
        and is_hostname(name)
        and hosts.host_of(name) == hostname
        and f"*.{name.partition('.')[2]}" != hostname
    }
    return tuple(sorted(found if hostname == "*" else {*found, hostname}))


def _placement(gateway: Resource, resources: Lookups, controller: str, rules: PortRules) -> Placement:
    if not rules.pool:
        return Placement()
    placed = placements(resources, classes_of(resources, controller), rules.pool, rules.addresses)
    return placed.get((namespace_of(gateway), name_of(gateway)), Placement(unusable="not placed"))
