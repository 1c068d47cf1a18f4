"""Status sources for GatewayClasses, Gateways, ListenerSets, routes and policies."""

from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

from haptic_trio.gateway.answers import Answers, Record
from haptic_trio.gateway.extensions import NO_FILTERS, Allowed
from haptic_trio.gateway.features import FEATURES
from haptic_trio.gateway.listeners.addresses import Placement, place_gateways
from haptic_trio.gateway.listeners.held_ports import PORT_STORES, HeldPorts
from haptic_trio.gateway.listeners.listeners import is_managed, parent_of
from haptic_trio.gateway.listeners.port_rules import TAKEN_PORTS, PortRules
from haptic_trio.gateway.objects import dig, items_of, name_of, namespace_of, text_of
from haptic_trio.gateway.routes.attached import AttachedRoutes, Rivalry
from haptic_trio.gateway.routes.kinds import RIVALS, ROUTE_KINDS, RouteKind
from haptic_trio.gateway.routes.policies import policy_ancestors
from haptic_trio.k8s.resource import Resource, ResourceRef, ref_of
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.status.gateway_conditions import (
    Neighbours,
    class_status,
    gateway_status,
    others_of,
    route_parents,
    same_parent,
    set_status,
)
from haptic_trio.status.gateway_placements import GatewayPlacements
from haptic_trio.status.sources import Status, merge_conditions

_GATEWAY_INPUTS: Final = (
    *("gatewayClasses", "gateways", "listenerSets", "namespaces", "tlsSecrets", "configMaps", "referenceGrants"),
    *(kind.store for kind in ROUTE_KINDS.values()),
)
_NEIGHBOUR_INPUTS: Final = (
    *("gatewayClasses", "gateways", "listenerSets", "listenerSetsByGateway", "namespaces", TAKEN_PORTS),
    *PORT_STORES,
)
"""Stores that the listeners and ports of a Gateway depend on."""
_SOURCE_STORES: Final = ("gatewayStates", "listenerSetStates", "backendTLSPolicyStates", "backendTLSPolicies")
_ROUTE_INPUTS: Final = ("gatewayClasses", "gateways", "listenerSets", "namespaces", "services", "referenceGrants")
STORES: Final = frozenset(
    {
        *_SOURCE_STORES,
        *_GATEWAY_INPUTS,
        *_ROUTE_INPUTS,
        *PORT_STORES,
        *(f"{kind.store}States" for kind in ROUTE_KINDS.values()),
    }
)
"""All stores that the sources need."""


class _Timed:
    """Adds times to conditions, and returns the same object for equal desired statuses."""

    def __init__(self, store: str, stores: Mapping[str, ReadableStore], clock: Callable[[], str]) -> None:
        self._store = store
        self._stores = stores
        self._clock = clock
        self._known: dict[ResourceRef, tuple[Any, Status]] = {}

    def status(self, resource: Resource, untimed: Any, merge: Callable[[str], Status]) -> Status:
        """Return *merge* of the current time; the previous result if *untimed* is unchanged."""
        ref = ref_of(resource)
        known = self._known.get(ref)
        if known is not None and known[0] == untimed:
            return known[1]
        if len(self._known) > 2 * len(self._stores[self._store]) + 100:
            self._known.clear()
        status = merge(self._clock())
        self._known[ref] = untimed, status
        return status


def now() -> str:
    """Return the current time in the format of the API."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class GatewayClassStatus:
    """A `StatusSource` for GatewayClasses."""

    name = "gatewayClass"
    store = "gatewayClasses"
    inputs: Sequence[str] = ()
    is_shared = False
    is_ready = True

    def __init__(
        self,
        stores: Mapping[str, ReadableStore],
        controller: str,
        *,
        features: Collection[str] = FEATURES,
        versions: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], str] = now,
    ) -> None:
        self._controller = controller
        self._features, self._versions = features, versions
        self._timed = _Timed(self.store, stores, clock)

    def wanted(self, resource: Resource) -> Status | None:
        """See `StatusSource.wanted`."""
        if text_of(resource, "spec", "controllerName") != self._controller:
            return None
        status = class_status(resource, self._features, self._versions())
        present = items_of(resource, "status", "conditions")
        return self._timed.status(
            resource,
            status,
            lambda time: {**status, "conditions": merge_conditions(present, status["conditions"], time)},
        )

    def related(self) -> Collection[ResourceRef]:
        """See `StatusSource.related`."""
        return ()

    def is_left_over(self, resource: Resource) -> bool:  # noqa: ARG002  the field cannot be changed in an object
        """See `StatusSource.is_left_over`."""
        return False


class GatewayStatus:
    """A `StatusSource` for Gateways."""

    name = "gateway"
    store = "gatewayStates"
    inputs: Sequence[str] = (*_GATEWAY_INPUTS, TAKEN_PORTS)
    is_shared = False

    def __init__(
        self,
        stores: Mapping[str, ReadableStore],
        controller: str,
        rules: PortRules,
        addresses: Callable[[], Sequence[str] | None],
        *,
        clock: Callable[[], str] = now,
    ) -> None:
        """*addresses* returns the addresses of HAProxy if there is no pool; None while they are unknown."""
        self._stores = stores
        self._controller = controller
        self._ports = HeldPorts(stores, controller, rules)
        self._pool = rules.pool
        self._addresses = addresses
        self._routes = AttachedRoutes(stores, controller)
        self._timed = _Timed(self.store, stores, clock)
        self._placed = GatewayPlacements(stores, controller, rules)

    @property
    def is_ready(self) -> bool:
        """See `StatusSource.is_ready`."""
        return bool(self._pool) or self._addresses() is not None

    def wanted(self, resource: Resource) -> Status | None:
        """See `StatusSource.wanted`."""
        if not is_managed(resource, self._stores, self._controller):
            return None
        counts = self._routes.counts(resource)
        placement = self._placement(resource)
        taken = self._ports.unavailable(resource, placement.addresses)
        status = gateway_status(resource, self._stores, placement, counts, taken, self._ports.rules)
        return self._timed.status(resource, status, lambda time: _timed_listeners(resource, status, time))

    def related(self) -> Collection[ResourceRef]:
        """See `StatusSource.related`."""
        return ()

    def is_left_over(self, resource: Resource) -> bool:  # noqa: ARG002  another controller writes the same fields
        """See `StatusSource.is_left_over`."""
        return False

    def _placement(self, gateway: Resource) -> Placement:
        if self._pool:
            return self._placed.of(gateway)
        if items_of(gateway, "spec", "addresses"):
            return place_gateways([gateway], self._addresses() or (), {})[namespace_of(gateway), name_of(gateway)]
        return Placement(addresses=tuple(self._addresses() or ()))


class ListenerSetStatus:
    """A `StatusSource` for ListenerSets."""

    name = "listenerSet"
    store = "listenerSetStates"
    inputs: Sequence[str] = (*_GATEWAY_INPUTS, TAKEN_PORTS)
    is_shared = False
    is_ready = True

    def __init__(
        self,
        stores: Mapping[str, ReadableStore],
        controller: str,
        rules: PortRules = PortRules(),  # noqa: B008  immutable
        *,
        clock: Callable[[], str] = now,
    ) -> None:
        self._stores = stores
        self._controller = controller
        self._ports = HeldPorts(stores, controller, rules)
        self._routes = AttachedRoutes(stores, controller)
        self._timed = _Timed(self.store, stores, clock)
        self._known: dict[tuple[str, ...], Neighbours] = {}
        self._known_at: tuple[int, ...] = ()
        """The versions of the stores that `_known` was made of."""

    def wanted(self, resource: Resource) -> Status | None:
        """See `StatusSource.wanted`."""
        gateway = parent_of(resource, self._stores)
        if gateway is None or not is_managed(gateway, self._stores, self._controller):
            return None
        counts = self._routes.counts(resource)
        status = set_status(resource, self._neighbours(gateway), self._stores, counts)
        return self._timed.status(resource, status, lambda time: _timed_listeners(resource, status, time))

    def _neighbours(self, gateway: Mapping[str, Any]) -> Neighbours:
        versions = tuple(self._stores[store].version for store in _NEIGHBOUR_INPUTS if store in self._stores)
        if versions != self._known_at:
            self._known.clear()
            self._known_at = versions
        addresses = self._addresses_of(gateway)
        key = namespace_of(gateway), name_of(gateway), *addresses
        known = self._known.get(key)
        if known is None:
            taken = self._ports.unavailable(gateway, addresses)
            known = self._known[key] = Neighbours(gateway, self._stores, taken, self._ports.rules)
        return known

    def _addresses_of(self, gateway: Mapping[str, Any]) -> list[str]:
        """Return the addresses in the status of *gateway*."""
        ref = ResourceRef("Gateway", namespace_of(gateway), name_of(gateway))
        state = self._stores["gatewayStates"].by_ref(ref) if "gatewayStates" in self._stores else None
        return [text_of(entry, "value") for entry in items_of(state, "status", "addresses")]

    def related(self) -> Collection[ResourceRef]:
        """See `StatusSource.related`."""
        return ()

    def is_left_over(self, resource: Resource) -> bool:  # noqa: ARG002  another controller writes the same fields
        """See `StatusSource.is_left_over`."""
        return False


def _timed_listeners(resource: Resource, status: Mapping[str, Any], time: str) -> Status:
    """Return *status* with times added to its conditions and those of its listeners."""
    present = {
        text_of(entry, "name"): items_of(entry, "conditions") for entry in items_of(resource, "status", "listeners")
    }
    listeners = [
        {**entry, "conditions": merge_conditions(present.get(entry["name"], ()), entry["conditions"], time)}
        for entry in status["listeners"]
    ]
    conditions = merge_conditions(items_of(resource, "status", "conditions"), status["conditions"], time)
    return {**status, "conditions": conditions, "listeners": listeners}


class RouteStatus:
    """A `StatusSource` for routes of one kind."""

    is_shared = True
    is_ready = True

    def __init__(
        self,
        stores: Mapping[str, ReadableStore],
        controller: str,
        *,
        kind: RouteKind,
        filters: Allowed = NO_FILTERS,
        clock: Callable[[], str] = now,
    ) -> None:
        self.name = kind.name
        self.store = f"{kind.store}States"
        rivals = RIVALS.get(kind.name)
        self.inputs: Sequence[str] = (*_ROUTE_INPUTS, *((rivals.store,) if rivals is not None else ()))
        self._answers = Answers(stores)
        self._entries = partial(route_parents, filters=filters)
        self._rivalry = Rivalry(kind, self._answers.lookups)
        self._stores, self._kind, self._controller = stores, kind, controller
        self._timed = _Timed(self.store, stores, clock)
        self._known: dict[ResourceRef, tuple[Resource, Sequence[Mapping[str, Any]], Record]] = {}
        self._contested: dict[ResourceRef, None] = {}  # routes that compete for host names

    def related(self) -> Collection[ResourceRef]:
        """See `StatusSource.related`: a route that displaces another one may be displaced itself."""
        return self._contested.keys()

    def wanted(self, resource: Resource) -> Status | None:
        """See `StatusSource.wanted`."""
        parents = self._parents(resource)
        return _shared_status(self._timed, resource, self._controller, "parents", "parentRef", parents)

    def _parents(self, resource: Resource) -> Sequence[Mapping[str, Any]]:
        store = self._stores[self._kind.store]
        if len(self._known) > 2 * len(store) + 100:
            self._known.clear()
            self._contested = {ref: None for ref in self._contested if store.by_ref(ref) is not None}
        ref = ref_of(resource)
        # The converted form is the same object until more than the status has changed.
        route = store.by_ref(ref) or resource
        known = self._known.get(ref)
        if known is not None and known[0] is route and self._answers.holds(known[2]):
            return known[1]
        (parents, has_rivals), record = self._answers.record(
            lambda: self._rivalry.ask(lambda lookups: self._entries(route, self._kind, lookups, self._controller))
        )
        self._known[ref] = route, parents, record
        if has_rivals:
            self._contested[ref] = None
        else:
            self._contested.pop(ref, None)
        return parents

    def is_left_over(self, resource: Resource) -> bool:  # noqa: ARG002  `wanted` includes entries of others
        """See `StatusSource.is_left_over`."""
        return False


class PolicyStatus:
    """A `StatusSource` for BackendTLSPolicies."""

    name = "backendTLSPolicy"
    store = "backendTLSPolicyStates"
    inputs: Sequence[str] = (*_GATEWAY_INPUTS, "backendTLSPolicies", "services")
    is_shared = True
    is_ready = True

    def __init__(self, stores: Mapping[str, ReadableStore], controller: str, *, clock: Callable[[], str] = now) -> None:
        self._stores = stores
        self._controller = controller
        self._timed = _Timed(self.store, stores, clock)

    def wanted(self, resource: Resource) -> Status | None:
        """See `StatusSource.wanted`."""
        own = policy_ancestors(resource, self._stores, self._controller)
        return _shared_status(self._timed, resource, self._controller, "ancestors", "ancestorRef", own)

    def related(self) -> Collection[ResourceRef]:
        """See `StatusSource.related`."""
        return ()

    def is_left_over(self, resource: Resource) -> bool:  # noqa: ARG002  `wanted` includes entries of others
        """See `StatusSource.is_left_over`."""
        return False


def _shared_status(
    timed: _Timed, resource: Resource, controller: str, field: str, reference: str, own: Sequence[Mapping[str, Any]]
) -> Status | None:
    """Return a status whose list *field* has the entries of other controllers and *own*, identified by *reference*."""
    present = items_of(resource, "status", field)
    others = others_of(present, controller)
    if not own and len(others) == len(present):
        return None

    def conditions_of(own: Mapping[str, Any]) -> Sequence[Any]:
        return next(
            (
                items_of(entry, "conditions")
                for entry in present
                if dig(entry, "controllerName") == controller and same_parent(entry.get(reference), own[reference])
            ),
            (),
        )

    def merge(time: str) -> Status:
        entries = [
            {**entry, "conditions": merge_conditions(conditions_of(entry), entry["conditions"], time)} for entry in own
        ]
        return {field: [*others, *entries]}

    return timed.status(resource, (others, own), merge)
