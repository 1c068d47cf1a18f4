"""The leader writes a status once when it differs, and removes only its own fields."""

from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing

from haptic_trio.channels import Latest
from haptic_trio.gateway.listeners.port_rules import PortRules
from haptic_trio.gateway.routes.kinds import HTTP_ROUTE
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.client import Selection
from haptic_trio.k8s.reflector import ResourceChanged, run_reflector
from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType, ref_of
from haptic_trio.k8s.store import Store, Stores
from haptic_trio.status.gateway import GatewayStatus, RouteStatus
from haptic_trio.status.ingress import Addresses, IngressClaim, IngressStatus
from haptic_trio.status.sources import Status, StatusKey, StatusSource
from haptic_trio.status.writer import WORKERS, StatusLedger, StatusWriter, find_object, follow_service
from tests.gateway.objects import CONTROLLER, gateway, gateway_class, route, rule, stores_of
from tests.gateway.objects import service as service_of_gateway
from tests.k8s.api.api_cluster import Reports, connected
from tests.support.api_server.server import ApiServer, serving
from tests.support.kubernetes import ingress, ingress_class, service

INGRESSES = ResourceType("networking.k8s.io/v1", "ingresses")
CLASSES = ResourceType("networking.k8s.io/v1", "ingressclasses")
CLAIM = IngressClaim(class_name="haptic", controller="us", without_class=False)
HERE, THERE = {"ip": "192.0.2.7"}, {"ip": "192.0.2.8"}


def with_address(resource: Resource, *entries: dict[str, str], version: str = "1") -> Resource:
    metadata = {**resource["metadata"], "resourceVersion": version}
    return {**resource, "metadata": metadata, "status": {"loadBalancer": {"ingress": list(entries)}}}


class Desk:
    """Stores of Ingresses and classes, and the source over them."""

    def __init__(self) -> None:
        self.stores = Stores(
            [Store("ingresses", ["metadata.namespace", "metadata.name"]), Store("ingressClasses", ["metadata.name"])]
        )
        self.addresses: Latest[Addresses] = Latest()
        self.source = IngressStatus(
            CLAIM,
            store="ingresses",
            class_store="ingressClasses",
            classes=self.stores["ingressClasses"].list,
            addresses=lambda: self.addresses.value,
        )


KEY = StatusKey("ingress", ResourceRef("Ingress", "default", "web"))


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.addresses.put(Addresses(("192.0.2.7",)))
    return desk


def test_what_differs_is_written_and_what_was_written_is_not_written_again(desk: Desk) -> None:
    ledger = StatusLedger(desk.stores, [desk.source])
    desk.stores["ingresses"].upsert(ingress("web"))
    difference = ledger.compare(KEY)
    assert difference is not None
    assert difference.wanted == {"loadBalancer": {"ingress": [HERE]}}
    assert not difference.exact
    ledger.note_written(KEY, difference)

    assert ledger.compare(KEY) is None, "the watch has not brought it back yet"
    desk.stores["ingresses"].upsert(with_address(ingress("web"), HERE, version="2"))
    assert ledger.compare(KEY) is None
    desk.stores["ingresses"].upsert(with_address(ingress("web"), THERE, version="3"))
    assert ledger.compare(KEY) is not None, "somebody has changed it"


def test_a_status_is_removed_in_that_version_only_when_another_controller_takes_over(desk: Desk) -> None:
    ledger = StatusLedger(desk.stores, [desk.source])
    desk.stores["ingresses"].upsert(with_address(ingress("web", ingress_class="other"), HERE))

    difference = ledger.compare(KEY)

    assert difference is not None
    assert difference.wanted is None
    assert difference.exact
    ledger.note_written(KEY, difference)
    assert ledger.compare(KEY) is None, "what is left then is not ours"


def test_status_of_others_is_left_alone(desk: Desk) -> None:
    ledger = StatusLedger(desk.stores, [desk.source])
    desk.stores["ingresses"].upsert(with_address(ingress("web", ingress_class="other"), THERE))

    assert ledger.compare(KEY) is None


def test_nothing_is_compared_before_the_addresses_are_known() -> None:
    desk = Desk()
    ledger = StatusLedger(desk.stores, [desk.source])
    desk.stores["ingresses"].upsert(with_address(ingress("web"), THERE))

    assert ledger.compare(KEY) is None


def test_change_of_a_class_compares_everything_and_of_an_ingress_only_that(desk: Desk) -> None:
    ledger = StatusLedger(desk.stores, [desk.source])
    desk.stores["ingresses"].replace([ingress("web"), ingress("api")])
    assert len(ledger.take_changes()) == 2
    desk.stores["ingresses"].upsert(ingress("web", defaultBackend={}))
    assert ledger.take_changes() == [KEY]

    desk.stores["ingressClasses"].upsert(ingress_class("haptic", "us"))

    assert len(ledger.take_changes()) == 2
    assert ledger.take_changes() == []


def test_an_own_write_that_comes_back_compares_that_object_only() -> None:
    one = route("web", rule())
    stores = stores_of(gateway_class(), gateway(), one)
    sources: list[StatusSource] = [
        GatewayStatus(stores, CONTROLLER, PortRules.of(["192.0.2.7"]), lambda: ()),
        RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE),
    ]
    ledger = StatusLedger(stores, sources)
    for name in ("httpRoutes", "httpRoutesStates"):
        stores[name].upsert({**one, "spec": {}})

    # The Gateway is another matter: it depends on the other store.
    assert ledger.take_echoes() == [StatusKey("HTTPRoute", ref_of(one))]
    assert [key.source for key in ledger.take_changes()] == ["gateway"]
    assert ledger.take_echoes() == []


def test_route_is_compared_again_when_its_competitor_changes() -> None:
    first = route("first", rule(), hostnames=["a.test"], created="1")
    rival = route("rival", rule(), kind="GRPCRoute", hostnames=["*.test"], created="2")
    last = route("last", rule(), hostnames=["b.test"], created="3")
    stores = stores_of(gateway_class(), gateway(), service_of_gateway(), first, rival, last)
    ledger = StatusLedger(stores, [RouteStatus(stores, CONTROLLER, kind=HTTP_ROUTE)])
    key = StatusKey("HTTPRoute", ref_of(last))

    def accepted() -> str:
        difference = ledger.compare(key)
        assert difference is not None
        assert difference.wanted is not None
        return str(difference.wanted["parents"][0]["conditions"][0]["status"])

    ledger.take_changes()
    assert accepted() == "True"
    for name, store in stores.items():
        if name.startswith("httpRoutes"):
            store.delete(ref_of(first))

    assert key in ledger.take_changes()
    assert accepted() == "False"


def test_source_without_its_store_is_left_out(desk: Desk) -> None:
    assert StatusLedger(Stores([]), [desk.source]).everything() == []


def test_object_is_found_in_whichever_store_has_it(desk: Desk) -> None:
    desk.stores["ingresses"].upsert(ingress("web"))

    assert find_object(desk.stores, KEY.ref) == ingress("web")
    assert find_object(desk.stores, ResourceRef("Service", "default", "web")) is None


class Office:
    """A writer at an API server, with stores that follow it."""

    def __init__(self, server: ApiServer, cluster: ApiCluster, nursery: trio.Nursery) -> None:
        self.server = server
        self.cluster = cluster
        self.desk = Desk()
        self.cell: Latest[int] = Latest()
        self._nursery = nursery
        self.writer = StatusWriter(cluster, self.desk.stores, [self.desk.source])

    async def open(self) -> None:
        async def note(change: ResourceChanged) -> None:
            self.cell.put(self.cell.version)

        for resource_type, name in ((INGRESSES, "ingresses"), (CLASSES, "ingressClasses")):
            selection = Selection(type=resource_type)

            async def reflect(
                selection: Selection = selection,
                name: str = name,
                *,
                task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
            ) -> None:
                stores = [self.desk.stores[name]]
                await run_reflector(self.cluster, selection, stores, note, report=Reports(), task_status=task_status)

            await self._nursery.start(reflect)
        self._nursery.start_soon(self.writer.run, (self.cell,))

    def publish(self, *entries: str) -> None:
        self.desk.addresses.put(Addresses(entries))
        self.writer.compare_again("ingress")

    def address(self, name: str) -> Any:
        stored = self.server.stored(INGRESSES, "default", name)
        return ((stored.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []

    @property
    def writes(self) -> list[str]:
        return [request for request in self.server.requests if request.startswith("PATCH")]

    async def until(self, claim: Callable[[], bool]) -> None:
        await self.server.until(claim)

    async def handles_changes(self) -> None:
        """Return once a change that is made now is written, and with it whatever changed before."""
        self.server.put(ingress("last"))
        await self.until(lambda: self.address("last") == [HERE])


@pytest.fixture
async def office(tmp_path: Path, nursery: trio.Nursery) -> AsyncIterator[Office]:
    async with serving(ingress_class("other", "them")) as server, connected(server, tmp_path / "kubeconfig") as cluster:
        office = Office(server, cluster, nursery)
        yield office
        nursery.cancel_scope.cancel()


async def test_each_managed_ingress_is_written_once(office: Office) -> None:
    office.server.put(ingress("web"), ingress("api"), ingress("foreign", ingress_class="other"))
    await office.open()
    office.publish("192.0.2.7")
    await office.until(lambda: len(office.writes) == 2)
    for number in range(5):
        office.server.put(ingress("later", number=number))
        office.server.put(ingress_class(f"class-{number}", "them"))
    await office.until(lambda: office.address("later") == [HERE])
    await office.handles_changes()

    assert office.address("web") == office.address("api") == [HERE]
    assert office.address("foreign") == []
    assert sum("/later/" in write for write in office.writes) <= 5
    assert sum("/web/" in write for write in office.writes) == 1
    assert all("fieldManager=haptic-trio" in write and "/status?" in write for write in office.writes)


class Recording:
    """A server that notes whose statuses are written."""

    def __init__(self, expected: int) -> None:
        self.namespaces: list[str] = []
        self.is_done = trio.Event()
        self._expected = expected

    async def apply(
        self, resource: Resource, *, field_manager: str, force: bool = False, subresource: str = ""
    ) -> Resource:
        await trio.lowlevel.checkpoint()
        self.namespaces.append(resource["metadata"]["namespace"])
        if len(self.namespaces) == self._expected:
            self.is_done.set()
        return resource


async def test_statuses_of_a_namespace_do_not_wait_behind_many_of_another(desk: Desk, nursery: trio.Nursery) -> None:
    server = Recording(3002)
    many = [ingress(f"web-{number}", namespace="many") for number in range(3000)]
    desk.stores["ingresses"].replace([*many, ingress("web", namespace="one"), ingress("web", namespace="two")])
    nursery.start_soon(StatusWriter(server, desk.stores, [desk.source]).run, ())
    with trio.fail_after(20):
        await server.is_done.wait()
    nursery.cancel_scope.cancel()

    written = server.namespaces.index("one"), server.namespaces.index("two")
    # They are queued after all the others, which begin to be written meanwhile.
    assert max(written) < 1000, written


async def test_other_tasks_have_turns_between_comparisons_that_take_long(
    desk: Desk, nursery: trio.Nursery, mock_clock: trio.testing.MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, comparisons = 0, Counter[int]()
    wanted = desk.source.wanted

    def slow(resource: Resource) -> Status | None:
        mock_clock.jump(0.006)
        comparisons[turn] += 1
        return wanted(resource)

    monkeypatch.setattr(desk.source, "wanted", slow)
    desk.stores["ingresses"].replace([ingress(f"web-{number}") for number in range(100)])
    server = Recording(100)
    nursery.start_soon(StatusWriter(server, desk.stores, [desk.source]).run, ())
    while not server.is_done.is_set():
        await trio.lowlevel.checkpoint()
        turn += 1
    nursery.cancel_scope.cancel()

    # Two in a row, and the workers some more between two turns of this task.
    assert max(comparisons.values()) <= 2 + 3 * WORKERS, comparisons


async def test_other_addresses_reach_every_ingress(office: Office) -> None:
    office.server.put(ingress("web"), ingress("api"))
    await office.open()
    office.publish("192.0.2.7")
    await office.until(lambda: office.address("web") == office.address("api") == [HERE])

    office.publish("192.0.2.8", "lb.test")
    await office.until(lambda: office.address("web") == office.address("api") == [THERE, {"hostname": "lb.test"}])
    office.publish()
    await office.until(lambda: office.address("web") == office.address("api") == [])


async def test_ingress_that_is_no_longer_managed_loses_the_address(office: Office) -> None:
    office.server.put(ingress("web"))
    await office.open()
    office.publish("192.0.2.7")
    await office.until(lambda: office.address("web") == [HERE])

    present = office.server.stored(INGRESSES, "default", "web")
    office.server.put({**present, "spec": {**present["spec"], "ingressClassName": "other"}})
    await office.until(lambda: office.address("web") == [])
    await office.handles_changes()

    assert [write for write in office.writes if "/last/" not in write] == office.writes[:2]


async def test_write_that_fails_is_tried_again(office: Office) -> None:
    office.server.put(ingress("web"))
    await office.open()
    office.server.faults.failing = 2
    office.publish("192.0.2.7")

    await office.until(lambda: office.address("web") == [HERE])


async def test_writing_ends_at_once_when_cancelled(office: Office) -> None:
    office.server.put(ingress("web"))
    await office.open()
    office.server.faults.hanging = True
    office.publish("192.0.2.7")
    await office.until(lambda: len(office.writes) == 1)


async def test_addresses_follow_the_service(tmp_path: Path, nursery: trio.Nursery) -> None:
    addresses: Latest[Addresses] = Latest()
    async with serving() as server, connected(server, tmp_path / "kubeconfig") as cluster:
        nursery.start_soon(follow_service, cluster, "default", "haproxy", addresses)
        with trio.fail_after(10):
            seen, found = await addresses.wait_newer(0)
            assert found.entries == ()
            server.put(service("haproxy") | {"status": {"loadBalancer": {"ingress": [HERE]}}}, service("other"))
            seen, found = await addresses.wait_newer(seen)
            assert found.entries == ("192.0.2.7",)
            server.remove(service("haproxy"))
            seen, found = await addresses.wait_newer(seen)
            assert found.entries == ()
        nursery.cancel_scope.cancel()
