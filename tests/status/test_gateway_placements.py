"""Statuses of Gateways report the address that each Gateway has and keeps."""

from typing import Any

from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.k8s.resource import Resource, ref_of
from haptic_trio.k8s.store import Stores
from haptic_trio.status.gateway_placements import GatewayPlacements
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, stores_of

POOL = ["10.0.0.1", "10.0.0.2"]


def placements(stores: Stores) -> GatewayPlacements:
    return GatewayPlacements(stores, CONTROLLER, PortRules.of(POOL, addresses=len(POOL)))


def aged(number: int, one: Resource) -> Resource:
    one["metadata"] |= {"creationTimestamp": f"2026-01-0{number + 1}T00:00:00Z", "uid": f"uid-{number}"}
    return one


def written(one: Resource, address: str, *, generation: int, observed: int) -> Resource:
    """Return *one* of a *generation*, with a status about the generation *observed*."""
    status: dict[str, Any] = {
        "addresses": [{"type": "IPAddress", "value": address}],
        "conditions": [{"type": "Programmed", "status": "True", "observedGeneration": observed}],
    }
    return {**one, "metadata": {**one["metadata"], "generation": generation}, "status": status}


def test_an_address_stays_although_the_status_that_has_it_has_not_come_back() -> None:
    old, young = aged(0, gateway("old")), aged(1, gateway("young"))
    stores = stores_of(gateway_class(), old, young)
    placed = placements(stores)

    assert (placed.of(old).addresses, placed.of(young).addresses) == (("10.0.0.1",), ("10.0.0.2",))
    stores["gateways"].delete(ref_of(old))

    assert placed.of(young).addresses == ("10.0.0.2",)

    # Another Gateway of that name is another matter.
    again = {**young, "metadata": {**young["metadata"], "uid": "uid-2"}}
    stores["gateways"].replace([again])
    assert placed.of(again).addresses == ("10.0.0.1",)


def test_of_two_gateways_whose_statuses_have_one_address_the_one_with_the_newer_status_keeps_it() -> None:
    back = written(aged(0, gateway("back")), "10.0.0.1", generation=3, observed=1)
    holder = written(aged(1, gateway("holder")), "10.0.0.1", generation=2, observed=1)
    stores = stores_of(gateway_class(), back, holder)
    placed = placements(stores)

    assert (placed.of(holder).addresses, placed.of(back).addresses) == (("10.0.0.1",), ("10.0.0.2",))

    # The conditions alone decide which status is the newer one.
    stores["gatewayStates"].upsert(written(holder, "10.0.0.1", generation=9, observed=1))
    assert placed.of(back).addresses == ("10.0.0.1",)
