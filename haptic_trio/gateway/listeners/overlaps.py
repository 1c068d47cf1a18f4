"""Listeners of one port with overlapping TLS host names.

A client may use a connection for every host that its certificate names, also
for one that another listener has. Such requests get 421; that it can come to
that, the status says.
"""

from collections.abc import Iterable

from haptic_trio.gateway.hostnames import ANY, wider
from haptic_trio.gateway.listeners.listeners import Listener, has_hostname_fault

_WITH_TLS = frozenset({"HTTPS", "TLS"})


def overlapping(listeners: Iterable[Listener]) -> frozenset[str]:
    """Return the keys of those *listeners* of a Gateway that have hosts in common with another one of their port."""
    ports: dict[int, dict[str, list[Listener]]] = {}
    for listener in listeners:
        if listener.protocol in _WITH_TLS and listener.is_accepted and not has_hostname_fault(listener):
            ports.setdefault(listener.port, {}).setdefault(listener.hostname, []).append(listener)
    found: set[str] = set()
    for hosts in ports.values():
        for hostname, own in hosts.items():
            others = [wide for wide in (*wider(hostname), ANY) if wide in hosts and wide != hostname]
            if others:
                found.update(listener.key for listener in own)
                found.update(listener.key for wide in others for listener in hosts[wide])
    return frozenset(found)
