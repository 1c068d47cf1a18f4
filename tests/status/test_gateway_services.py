"""The Services of Gateways: what is in them, and when they are written."""

from collections.abc import Callable
from typing import Any

import pytest
import trio
import trio.testing

from haptic_trio.channels import Latest
from haptic_trio.gateway.listeners.infrastructure import GATEWAY_LABEL, objects_of, service_name
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import InvalidError
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of
from haptic_trio.status.gateway_services import GatewayServices
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, made, stores_of

SERVICE = ResourceRef("Service", "web", "gw-haptic")


def with_addresses(one: Resource, *addresses: str) -> Resource:
    """Return *one* as it is once it has a uid and addresses."""
    status = {"addresses": [{"type": "IPAddress", "value": address} for address in addresses]}
    return {**one, "metadata": {**one["metadata"], "uid": f"uid-of-{one['metadata']['name']}"}, "status": status}


GATEWAY = with_addresses(
    gateway("gw", infrastructure={"labels": {"team": "x", GATEWAY_LABEL: "y"}, "annotations": {"a": "b"}}), "192.0.2.1"
)


def test_the_service_has_the_addresses_and_the_infrastructure_of_the_gateway() -> None:
    service, slice4, slice6 = objects_of(GATEWAY, stores_of(gateway_class(), GATEWAY))

    assert ref_of(service) == SERVICE
    assert service["spec"] == {
        "clusterIP": "None",
        "type": "ClusterIP",
        "ports": [{"name": "port-80", "port": 80, "protocol": "TCP"}],
    }
    for one in (service, slice4, slice6):
        # What the Gateway says does not stand for another Gateway.
        assert one["metadata"]["labels"].items() >= {"team": "x", GATEWAY_LABEL: "gw"}.items()
        assert one["metadata"]["annotations"] == {"a": "b"}
        assert [owner["uid"] for owner in one["metadata"]["ownerReferences"]] == ["uid-of-gw"]
    assert [endpoint["addresses"] for endpoint in slice4["endpoints"]] == [["192.0.2.1"]]
    assert slice4["metadata"]["labels"]["kubernetes.io/service-name"] == "gw-haptic"
    assert slice6["endpoints"] == []


def test_what_an_endpoint_slice_may_not_have_is_left_out() -> None:
    one = with_addresses(gateway(), "127.0.0.1", "2001:db8::1", "lb.test", "::1", "169.254.0.1", "192.0.2.2")

    _, slice4, slice6 = objects_of(one, stores_of(gateway_class(), one))

    assert [endpoint["addresses"] for endpoint in slice4["endpoints"]] == [["192.0.2.2"]]
    assert [endpoint["addresses"] for endpoint in slice6["endpoints"]] == [["2001:db8::1"]]


@pytest.mark.parametrize("name", ["a.b", "1st", "x" * 63])
def test_a_name_that_no_service_may_have_becomes_another_one(name: str) -> None:
    found = service_name(gateway(name))

    assert found.startswith("gateway-")
    assert len(found) <= 63
    assert found != service_name(gateway(f"{name}-"))


class Server:
    """What an API server does with applied objects, as far as it matters here."""

    def __init__(self) -> None:
        self.objects: dict[ResourceRef, Resource] = {}
        self.writes: list[ResourceRef] = []
        self.rejects = False
        self.on_write: Callable[[Resource], None] = lambda _stored: None

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        await trio.lowlevel.checkpoint()
        ref = ResourceRef("Service", namespace, name)
        if ref not in self.objects:
            raise NotFoundError(ref)
        return self.objects[ref]

    async def apply(self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = "") -> Any:
        await trio.lowlevel.checkpoint()
        ref = ref_of(resource)
        if self.rejects:
            raise InvalidError("apply", "no", status=422)
        self.writes.append(ref)
        metadata = {**resource["metadata"], "resourceVersion": str(len(self.writes))}
        self.objects[ref] = {**resource, "metadata": metadata}
        self.on_write(self.objects[ref])
        return self.objects[ref]


class Office:
    """A writer at a server, with stores that receive the written objects."""

    def __init__(self, *objects: Resource) -> None:
        self.stores = stores_of(gateway_class(), *objects)
        self.server = Server()
        self.server.on_write = self.put
        self.cell: Latest[int] = Latest()
        self.reports: list[tuple[ResourceRef, str]] = []
        self.services = GatewayServices(
            self.server, self.stores, CONTROLLER, report=lambda ref, problem: self.reports.append((ref, problem))
        )

    def put(self, one: Resource) -> None:
        """Have *one* in the stores, and a cycle after it."""
        names = {"Service": "services", "EndpointSlice": "endpointSlices", "Gateway": "gateways"}
        self.stores[names[one["kind"]]].upsert(one)
        self.cell.put(self.cell.version)

    async def until(self, claim: Callable[[], bool]) -> None:
        with trio.fail_after(30):
            while not claim():
                await trio.testing.wait_all_tasks_blocked()

    async def settle(self) -> None:
        await trio.testing.wait_all_tasks_blocked(0.01)


async def test_every_managed_gateway_gets_its_objects_once(nursery: trio.Nursery) -> None:
    other = made("Gateway", "other", spec={"gatewayClassName": "others", "listeners": []})
    office = Office(GATEWAY, other)
    nursery.start_soon(office.services.run, (office.cell,))
    await office.until(lambda: len(office.server.writes) == 3)
    await office.settle()
    office.put(other)
    await office.settle()

    assert len(office.server.writes) == 3
    assert office.server.writes[0] == SERVICE

    office.put(with_addresses(GATEWAY, "192.0.2.9"))
    await office.until(lambda: len(office.server.writes) == 6)
    endpoints = office.server.objects[ResourceRef("EndpointSlice", "web", "gw-haptic-ipv4")]["endpoints"]
    assert [one["addresses"] for one in endpoints] == [["192.0.2.9"]]


async def test_changes_from_outside_are_reverted(nursery: trio.Nursery) -> None:
    office = Office(GATEWAY)
    nursery.start_soon(office.services.run, (office.cell,))
    await office.until(lambda: len(office.server.writes) == 3)
    await office.settle()

    found = office.server.objects[SERVICE]
    office.put({**found, "metadata": {**found["metadata"], "resourceVersion": "900", "labels": {}}})

    await office.until(lambda: len(office.server.writes) == 6)


async def test_an_unmanaged_service_stays_unchanged(nursery: trio.Nursery) -> None:
    office = Office(GATEWAY)
    theirs = made("Service", "gw-haptic", version="v1", spec={"ports": []})
    office.server.objects[SERVICE] = theirs
    nursery.start_soon(office.services.run, (office.cell,))
    await office.until(lambda: bool(office.reports))

    assert office.server.objects[SERVICE] == theirs
    assert office.server.writes == []
    assert office.reports == [
        (ref_of(GATEWAY), "Service gw-haptic exists and is not managed by haptic-trio: it stays unchanged")
    ]


async def test_a_rejected_write_is_reported_and_retried_after_a_change(nursery: trio.Nursery) -> None:
    office = Office(GATEWAY)
    office.server.rejects = True
    nursery.start_soon(office.services.run, (office.cell,))
    await office.until(lambda: bool(office.reports))
    office.server.rejects = False
    office.put(with_addresses(GATEWAY, "192.0.2.9"))

    await office.until(lambda: len(office.server.writes) == 3)
