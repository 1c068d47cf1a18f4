"""Ports that a Gateway cannot have, because another one holds them or for another reason."""

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from haptic_trio.gateway.answers import Answers, Record
from haptic_trio.gateway.listeners.listener_limits import beyond_among
from haptic_trio.gateway.listeners.listeners import all_listeners, class_of, is_rejected
from haptic_trio.gateway.listeners.port_holders import holder_of
from haptic_trio.gateway.listeners.port_limits import ports_beyond
from haptic_trio.gateway.listeners.port_rules import BEYOND, HELD, PortRules, taken_reason
from haptic_trio.gateway.objects import Lookups, Resource, derived, name_of, namespace_of, text_of

PORT_STORES: Final = ("gatewaysByPort", "listenerSetsByPort")
"""The stores to look up the owners of a port in."""


class _NamesOf(msgspec.Struct, frozen=True):
    """The names of the classes of a controller."""

    controller: str

    def __call__(self, found: Sequence[Resource]) -> frozenset[str]:
        names = (name_of(one) for one in found if text_of(one, "spec", "controllerName") == self.controller)
        return frozenset(name for name in names if name)


def unavailable_ports(
    gateway: Resource, lookups: Lookups, controller: str, rules: PortRules, addresses: Sequence[str] = ()
) -> dict[int, str]:
    """Return the ports of listeners of *gateway* that it cannot have, each with the reason.

    *addresses* are its own, where each Gateway has some. Where all share an
    address, ports that other Gateways hold and those of other frontends are
    among them. Ports beyond the limit of a namespace always are.
    """
    accepted: dict[int, set[tuple[str, str]]] = {}
    servable: dict[int, set[tuple[str, str]]] = {}
    listeners = all_listeners(gateway, lookups)
    too_many = beyond_among(listeners, namespace_of(gateway), rules.listeners, rules.own_listeners)
    for listener in listeners:
        if listener.is_accepted:
            owner = listener.kind, listener.namespace
            accepted.setdefault(listener.port, set()).add(owner)
            if listener.is_servable and not (too_many and listener.key in too_many):
                servable.setdefault(listener.port, set()).add(owner)
    classes = classes_of(lookups, controller)
    key = namespace_of(gateway), name_of(gateway)
    beyond = {
        owner: ports_beyond(key, *owner, lookups, classes, rules) for owner in sorted(set().union(*accepted.values()))
    }
    is_served = class_of([gateway]) in classes and not is_rejected(gateway)
    reasons = {}
    for port in sorted(accepted):
        # One owner that may have the port, and uses it, is enough: the others use the same frontend.
        is_beyond = all(port in beyond[owner] for owner in servable.get(port, accepted[port]))
        reason = _rejection(port, rules) or (BEYOND if is_beyond else "")
        if not reason and not rules.pool and is_served and port in servable:
            holder = holder_of(port, lookups, classes, rules)
            reason = HELD if holder not in (None, key) else ""
        reasons[port] = reason or taken_reason(lookups, port, addresses, rules.pool)
    return {port: reason for port, reason in reasons.items() if reason}


def classes_of(lookups: Lookups, controller: str) -> frozenset[str]:
    """Return the names of all GatewayClasses of *controller*."""
    return derived(lookups, "gatewayClasses", _NamesOf(controller))


def _rejection(port: int, rules: PortRules) -> str:
    return rules.rejection(port) or (HELD if not rules.pool and port in rules.shared else "")


class HeldPorts:
    """Finds the unavailable ports of Gateways, with answers that are remembered while stores change."""

    def __init__(self, lookups: Lookups, controller: str, rules: PortRules) -> None:
        self._lookups = lookups
        self._controller = controller
        self.rules = rules
        self._answers = Answers(lookups)
        self._records: dict[tuple[str, str], Record] = {}
        """By the namespace and name of the Gateway; they keep its answers."""

    def unavailable(self, gateway: Resource, addresses: Sequence[str]) -> dict[int, str]:
        """Return the result of `unavailable_ports`."""
        if len(self._records) > 2 * len(self._lookups["gateways"]) + 100:
            self._records.clear()
        lookups = self._answers.lookups
        question = partial(unavailable_ports, gateway, lookups, self._controller, self.rules, addresses)
        taken, self._records[namespace_of(gateway), name_of(gateway)] = self._answers.record(question)
        return taken
