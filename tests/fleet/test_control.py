"""Answers of the control API."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio

from haptic_trio.errors import HapticError
from haptic_trio.fleet.control import make_control_app
from haptic_trio.fleet.model import (
    EventType,
    GroupKey,
    GroupSpec,
    InstanceRecord,
    InstanceState,
    Reason,
    ReconcileEvent,
)
from haptic_trio.fleet.reconciler import FleetSnapshot, GroupSnapshot
from haptic_trio.fleet.status import FleetStatus, describe_fleet
from tests.support.components.endpoints import MemoryEndpoint

KEY = GroupKey("local")
SPEC = GroupSpec(key=KEY, size=2, config_hash="1")
NOW = 1_000.0


def record(number: int, state: InstanceState = InstanceState.READY, **fields: Any) -> InstanceRecord:
    return InstanceRecord(id=f"local-{number}", key=KEY, state=state, created_at=NOW - 90, config_hash="1", **fields)


class FakeFleet:
    """A fleet that records its requests."""

    def __init__(self) -> None:
        self.records = [
            record(1),
            record(2, unwanted_at=NOW),
            record(
                3,
                InstanceState.DRAINING,
                drain_started_at=NOW,
                drain_deadline=NOW + 30,
                drain_reason=Reason.SCALE_DOWN,
            ),
        ]
        self.asked: list[ReconcileEvent] = []
        self.sizes: list[int | None] = []
        self.rejection: HapticError | None = None
        self.is_known = True

    def describe(self) -> FleetStatus:
        if self.rejection is not None:
            raise self.rejection
        group = GroupSnapshot(key=KEY, spec=SPEC, records=tuple(self.records))
        return describe_fleet(FleetSnapshot(groups=(group,)), NOW, configured={"local": 5})

    def find(self, instance_id: str) -> InstanceRecord | None:
        return next((one for one in self.records if one.id == instance_id), None)

    def ask(self, event: ReconcileEvent) -> bool:
        self.asked.append(event)
        return self.is_known

    async def resize(self, size: int | None) -> None:
        await trio.lowlevel.checkpoint()
        if self.rejection is not None:
            raise self.rejection
        self.sizes.append(size)


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet()


@pytest.fixture
async def client(fleet: FakeFleet) -> AsyncIterator[httpx.AsyncClient]:
    app = make_control_app(lambda: fleet, lambda: (MemoryEndpoint("local-1"),))
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://controller") as client:
        yield client


async def test_the_fleet_is_described(client: httpx.AsyncClient) -> None:
    (group,) = (await client.get("/fleet")).json()["groups"]
    assert (group["name"], group["size"], group["ready"], group["configured_size"]) == ("local", 2, 2, 5)
    assert [(one["id"], one["state"], one["leaves_for"], one["drain_left"]) for one in group["instances"]] == [
        ("local-1", "ready", "", None),
        ("local-2", "ready", "requested", None),
        ("local-3", "draining", "scale-down", 30.0),
    ]
    assert group["instances"][0]["age"] == 90.0


async def test_an_instance_is_described_with_its_version_and_generation(client: httpx.AsyncClient) -> None:
    details = (await client.get("/fleet/instances/local-1")).json()
    assert details["record"]["id"] == "local-1"
    assert details["version"]
    assert (await client.get("/fleet/instances/local-3")).json()["version"] == ""


async def test_requests_are_forwarded_to_the_fleet(client: httpx.AsyncClient, fleet: FakeFleet) -> None:
    assert (await client.post("/fleet/instances/local-1/drain")).json() == {"asked": ["local-1"]}
    assert (await client.post("/fleet/instances/local-2/rotate")).status_code == 200
    assert [(event.type, event.instance_id) for event in fleet.asked] == [
        (EventType.TERMINATION_NOTICE, "local-1"),
        (EventType.ROTATION_REQUESTED, "local-2"),
    ]
    # The draining instance is already being replaced.
    assert (await client.post("/fleet/rotate")).json() == {"asked": ["local-1", "local-2"]}
    assert (await client.put("/fleet/size", json={"size": 3})).json() == {"size": 3}
    assert (await client.put("/fleet/size", json={"size": None})).json() == {"size": None}
    assert fleet.sizes == [3, None]


@pytest.mark.parametrize("content", [b"", b"{}", b'{"size": -1}', b'{"size": 65}', b'{"size": "3"}', b'{"siz": 3}'])
async def test_invalid_size_is_rejected(client: httpx.AsyncClient, fleet: FakeFleet, content: bytes) -> None:
    answer = await client.put("/fleet/size", content=content)
    assert answer.status_code == 400
    assert answer.json()["error"]
    assert fleet.sizes == []


async def test_errors_are_answered_with_a_message(client: httpx.AsyncClient, fleet: FakeFleet) -> None:
    answer = await client.post("/fleet/instances/local-9/drain")
    assert (answer.status_code, answer.json()) == (
        404,
        {"error": "there is no instance 'local-9': `haptic-trio fleet list` shows all"},
    )
    fleet.is_known = False
    assert (await client.post("/fleet/instances/local-1/drain")).status_code == 404
    fleet.rejection = HapticError("another one leads")
    answer = await client.get("/fleet")
    assert (answer.status_code, answer.json()) == (409, {"error": "another one leads"})
    assert (await client.put("/fleet/size", json={"size": 3})).status_code == 409
    assert (await client.get("/nowhere")).status_code == 404
    assert (await client.get("/fleet/rotate")).status_code == 405
