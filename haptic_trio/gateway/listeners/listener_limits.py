"""The limits on the listeners that ListenerSets of one namespace add to a Gateway.

The listeners of a Gateway are one part of the configuration, which has a
limit of its own and is rejected as a whole. So a namespace that may add
listeners must not be able to use it up. And each change of one of them renders
all of its Gateway, while changes of others wait. The oldest ListenerSets go
first.
"""

from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from haptic_trio.gateway.listeners.listeners import Listener, all_listeners
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.objects import Lookups, Resource, Same, items_of, namespace_of

_KNOWN: Final = 16
_NONE: Final[Mapping[str, Listener]] = MappingProxyType({})


def listeners_beyond(gateway: Resource, lookups: Lookups, rules: PortRules) -> Mapping[str, Listener]:
    """Return the listeners that are more than *rules* allow their namespace, by their keys; none of the Gateway's own.

    A listener counts once for each of its certificates. One beyond the limit
    still excludes younger ones of its port and host.
    """
    return beyond_among(all_listeners(gateway, lookups), namespace_of(gateway), rules.listeners, rules.own_listeners)


def beyond_among(listeners: tuple[Listener, ...], own: str, most: int, most_of_own: int) -> Mapping[str, Listener]:
    """Return those of *listeners*, of a Gateway in the namespace *own*, that `listeners_beyond` returns.

    *most* is the limit of other namespaces, and *most_of_own* that of *own*.
    """
    # Without ListenerSets there are as many tuples as questions.
    if not listeners or listeners[-1].kind == "Gateway":
        return _NONE
    return _beyond(Same(listeners), own, most, most_of_own)


@lru_cache(maxsize=_KNOWN)
def _beyond(found: Same[tuple[Listener, ...]], own: str, most: int, most_of_own: int) -> Mapping[str, Listener]:
    counts: dict[str, int] = {}
    beyond: dict[str, Listener] = {}
    for listener in found.found:
        if listener.kind == "Gateway" or not listener.is_accepted:
            continue
        weight = max(1, len(items_of(listener.source, "tls", "certificateRefs")))
        count = counts.get(listener.namespace, 0) + weight
        if count > (most_of_own if listener.namespace == own else most):
            beyond[listener.key] = listener
        else:
            counts[listener.namespace] = count
    return beyond
