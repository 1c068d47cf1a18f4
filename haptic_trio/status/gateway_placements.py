"""Placements of Gateways, as their statuses report them: a written address may not have come back by a watch yet."""

from collections.abc import Mapping
from typing import Any

from haptic_trio.gateway.listeners.addresses import Key, Placement, doubtful, generations_behind, place_gateways
from haptic_trio.gateway.listeners.listeners import our_gateways
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.objects import dig, items_of, name_of, namespace_of, text_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import ReadableStore


class GatewayPlacements:
    """The placements of all Gateways of a controller at the addresses of the pool."""

    def __init__(self, stores: Mapping[str, ReadableStore], controller: str, rules: PortRules) -> None:
        self._stores = stores
        self._controller = controller
        self._rules = rules
        # By Gateway: its uid and addresses. A written address is not in the store at once, and must not change.
        self._given: dict[Key, tuple[str, tuple[str, ...]]] = {}
        self._placed: Mapping[Key, Placement] = {}
        self._doubtful: frozenset[Key] = frozenset()
        self._placed_at: tuple[int, ...] | None = None
        """The versions of the stores that `_placed` was made of."""

    def of(self, gateway: Resource) -> Placement:
        """Return the placement of *gateway*."""
        # Conditions of a status count only while some are doubtful.
        stores = ("gatewayClasses", "gateways", *(["gatewayStates"] if self._doubtful else []))
        versions = tuple(self._stores[store].version for store in stores)
        if versions != self._placed_at:
            self._place()
            self._placed_at = versions
        return self._placed.get((namespace_of(gateway), name_of(gateway)), Placement())

    def _place(self) -> None:
        """Place all Gateways, once for each change of the stores."""
        own = our_gateways(self._stores, self._controller)
        # The store has the addresses of a status, and no other part of it.
        states: dict[Key, Any] = {}
        for one in own:
            key = namespace_of(one), name_of(one)
            states[key] = dig(one, "status")
            uid, given = self._given.get(key, ("", ()))
            if given and uid == text_of(one, "metadata", "uid") and not items_of(states[key], "addresses"):
                states[key] = {"addresses": [{"value": address} for address in given]}
        self._doubtful = doubtful(states, self._rules.addresses)
        behind = generations_behind(self._doubtful, self._stores)
        self._placed = place_gateways(own, self._rules.pool, states, self._rules.addresses, behind)
        self._given = {
            key: (text_of(one, "metadata", "uid"), self._placed[key].addresses)
            for one in own
            if (key := (namespace_of(one), name_of(one))) in self._placed
        }
