"""Rules for the ports and addresses of listeners: what the administrator allows and has not reserved."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.gateway.objects import GatewayObjectError, Lookups, found_in, text_of

TAKEN_PORTS: Final = "takenPorts"
"""The store with an object for each address that HAProxy could not listen on: no kind of the cluster."""
_RANGE: Final = re.compile(r"([1-9][0-9]{0,4})(?:-([1-9][0-9]{0,4}))?").fullmatch
_LAST_PORT: Final = 65_535
_MOST: Final = 256
_MOST_LISTENERS: Final = 64
_MOST_OWN_LISTENERS: Final = 1000
MOST_ADDRESSES: Final = 4

NOT_ALLOWED: Final = "the administrator does not allow this port (gatewayPorts)"
RESERVED: Final = "the port is reserved (gatewayReservedPorts)"
OF_TCP_SERVICES: Final = "the port belongs to TCP services (tcpServicePorts)"
BEYOND: Final = "the namespace has reached its limit of listener ports (gatewayPortsPerNamespace)"
TOO_MANY: Final = "the namespace has reached its limit of listeners of this Gateway (gatewayListenersPerNamespace)"
TOO_MANY_OWN: Final = "the namespace has reached its limit of listeners of its own Gateway (gatewayOwnListeners)"
HELD: Final = "another Gateway, or another frontend of HAProxy, has this port"


def port_range(value: Any) -> tuple[int, int]:
    """Return the first and the last port of *value*, such as `80` or `8000-8999`; raises ValueError."""
    match = _RANGE(str(value)) if isinstance(value, str | int) and not isinstance(value, bool) else None
    first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 0 < first <= last <= _LAST_PORT:
        raise ValueError("use a port from 1 to 65535, or a range such as 8000-8999")
    return first, last


class PortRules(msgspec.Struct, frozen=True):
    """The configured rules for the ports and addresses of listeners."""

    pool: tuple[str, ...] = ()
    """Addresses of which each Gateway has one of its own; without any, all Gateways share an address."""
    shared: frozenset[int] = frozenset()
    """Ports of HAProxy's other frontends; at an address of its own a Gateway can have them as well."""
    reserved: frozenset[int] = frozenset()
    """Ports that no listener has."""
    allowed: tuple[tuple[int, int], ...] = ((1, _LAST_PORT),)
    """Ranges of ports that listeners may have, each with its last port."""
    most: int = _MOST
    """Maximum number of ports of the listeners of one namespace: a frontend costs HAProxy time and memory."""
    listeners: int = _MOST_LISTENERS
    """Maximum number of listeners that the ListenerSets of one namespace may add to a Gateway of another one."""
    own_listeners: int = _MOST_OWN_LISTENERS
    """Maximum number of listeners that ListenerSets may add to a Gateway of their own namespace."""
    tcp_services: tuple[tuple[int, int], ...] = ()
    """Ranges of ports that belong to TCP services of the administrator."""
    addresses: int = MOST_ADDRESSES
    """Maximum number of addresses of the pool that the Gateways of one namespace may get."""

    @classmethod
    def of(
        cls,
        pool: Iterable[Any] = (),
        shared: Iterable[Any] = (),
        reserved: Iterable[Any] = (),
        allowed: Any = None,
        most: int = _MOST,
        listeners: int = _MOST_LISTENERS,
        own_listeners: int = _MOST_OWN_LISTENERS,
        tcp_services: Iterable[Any] = (),
        addresses: int = MOST_ADDRESSES,
    ) -> "PortRules":
        """Return the rules of what templates and settings have; raises `GatewayObjectError`."""
        try:
            ranges = ((1, _LAST_PORT),) if allowed is None else tuple(map(port_range, allowed))
            services = tuple(map(port_range, tcp_services))
        except ValueError as exc:
            raise GatewayObjectError(f"invalid range of ports: {exc}") from None
        return cls(
            tuple(map(str, pool)),
            _numbers(shared),
            _numbers(reserved),
            ranges,
            most,
            listeners,
            own_listeners,
            services,
            addresses,
        )

    @classmethod
    def of_settings(cls, settings: Mapping[str, Any]) -> "PortRules":
        """Return the rules that the *settings* of the libraries make, as `frontends-gateway` does."""
        return cls.of(
            settings.get("gatewayAddresses") or (),
            [settings.get(name) or 0 for name in ("httpPort", "httpsPort", "metricsPort", "passthroughPort")],
            settings.get("gatewayReservedPorts") or (),
            settings.get("gatewayPorts"),
            settings.get("gatewayPortsPerNamespace", _MOST),
            settings.get("gatewayListenersPerNamespace", _MOST_LISTENERS),
            settings.get("gatewayOwnListeners", _MOST_OWN_LISTENERS),
            settings.get("tcpServicePorts") or (),
            settings.get("gatewayAddressesPerNamespace", MOST_ADDRESSES),
        )

    def rejection(self, port: int) -> str:
        """Return why no listener may have *port*; empty if one may."""
        if not any(first <= port <= last for first, last in self.allowed):
            return NOT_ALLOWED
        if any(first <= port <= last for first, last in self.tcp_services):
            return OF_TCP_SERVICES
        return RESERVED if port in self.reserved else ""


def _numbers(ports: Iterable[Any]) -> frozenset[int]:
    # 0 is how a setting says that there is no such port.
    return frozenset(int(port) for port in ports if port)


def taken_reason(lookups: Lookups, port: int, own: Sequence[str], pool: Sequence[str]) -> str:
    """Return why HAProxy cannot listen on *port* where a Gateway with the addresses *own* does; empty if it can."""
    for entry in found_in(lookups, TAKEN_PORTS, str(port)):
        host = text_of(entry, "spec", "host")
        # What another Gateway cannot have at its own address is nothing to this one.
        if host in own or host not in pool:
            return f"HAProxy cannot listen on it: {text_of(entry, 'spec', 'reason')}"
    return ""


def taken_port(host: str, port: int, reason: str) -> dict[str, Any]:
    """Return the object of the store `TAKEN_PORTS` for an address that HAProxy could not listen on."""
    return {
        "apiVersion": "haptic-trio/v1",
        "kind": "TakenPort",
        "metadata": {"name": f"{host} {port}"},
        "spec": {"host": host, "port": str(port), "reason": reason},
    }
