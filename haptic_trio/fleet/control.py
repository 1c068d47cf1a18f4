"""Control API of the fleet: HTTP on a unix socket that only the owner can reach.

    GET    /fleet                          FleetStatus
    GET    /fleet/instances/ID             record and process of one instance
    POST   /fleet/instances/ID/drain       drain it now; its replacement is created at the same time
    POST   /fleet/instances/ID/rotate      create a replacement, then drain it
    POST   /fleet/rotate                   rotate all instances, one after the other
    PUT    /fleet/size                     {"size": N}, or null for the configured size

Errors are answered with `{"error": …}`: 404 for an unknown instance, 409 if
this process cannot carry out the request, 400 for an invalid request.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec
import trio
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from haptic_trio.dataplane.endpoint import Endpoint, EndpointError
from haptic_trio.errors import HapticError
from haptic_trio.fleet.model import EventType, InstanceRecord, InstanceState, ReconcileEvent
from haptic_trio.fleet.status import FleetStatus

MAX_INSTANCES = 64
DESCRIBE_LIMIT = 5.0
"""Seconds that an instance may take to report its version and generation."""


class UnknownInstanceError(HapticError):
    """There is no such instance. A permanent error."""


class Fleet(Protocol):
    """A fleet that can be queried and changed; each method raises a `HapticError` for a request it cannot carry out."""

    def describe(self) -> FleetStatus:
        """Return the fleet as it is now."""
        ...

    def find(self, instance_id: str) -> InstanceRecord | None:
        """Return the record of an instance; None for an unknown one."""
        ...

    def ask(self, event: ReconcileEvent) -> bool:
        """Enqueue *event*; False if its instance or group is unknown."""
        ...

    async def resize(self, size: int | None) -> None:
        """Override the configured size; None removes the override."""
        ...


class _SizeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int | None


class InstanceDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One instance: its record, and the report of its process."""

    record: InstanceRecord
    version: str = ""
    """Version of HAProxy; empty if the process does not answer."""
    generation: str = ""
    pid: int = 0
    reloads: int = 0


Handler = Callable[[Request], Awaitable[object]]


def make_control_app(fleet: Callable[[], Fleet], endpoints: Callable[[], Sequence[Endpoint]]) -> Starlette:
    """Return the application over *fleet*; *endpoints* returns those that can report their version and generation."""

    async def show(_request: Request) -> object:
        return fleet().describe()

    async def show_instance(request: Request) -> object:
        record = _find(fleet(), request)
        endpoint = next((one for one in endpoints() if one.name == record.id), None)
        if endpoint is not None:
            with trio.move_on_after(DESCRIBE_LIMIT):
                try:
                    info = await endpoint.describe()
                except EndpointError:
                    # The state in the record already shows that it does not answer.
                    return InstanceDetails(record=record)
                return InstanceDetails(
                    record=record,
                    version=info.version,
                    generation=info.generation,
                    pid=info.pid,
                    reloads=info.reloads,
                )
        return InstanceDetails(record=record)

    async def drain(request: Request) -> object:
        return _ask(fleet(), _find(fleet(), request), EventType.TERMINATION_NOTICE)

    async def rotate(request: Request) -> object:
        return _ask(fleet(), _find(fleet(), request), EventType.ROTATION_REQUESTED)

    async def rotate_all(_request: Request) -> object:
        present = fleet()
        records = [
            record
            for group in present.describe().groups
            for one in group.instances
            if (record := present.find(one.id)) is not None
            and record.state in {InstanceState.PENDING, InstanceState.STARTING, InstanceState.READY}
        ]
        for record in records:
            _ask(present, record, EventType.ROTATION_REQUESTED)
        return {"asked": [record.id for record in records]}

    async def resize(request: Request) -> object:
        size = msgspec.json.decode(await request.body(), type=_SizeBody).size
        if size is not None and not 0 <= size <= MAX_INSTANCES:
            raise msgspec.ValidationError(f"size {size} is out of range: choose 0 to {MAX_INSTANCES}")
        await fleet().resize(size)
        return {"size": size}

    return Starlette(
        routes=[
            Route("/fleet", _answering(show)),
            Route("/fleet/rotate", _answering(rotate_all), methods=["POST"]),
            Route("/fleet/size", _answering(resize), methods=["PUT"]),
            Route("/fleet/instances/{id}", _answering(show_instance)),
            Route("/fleet/instances/{id}/drain", _answering(drain), methods=["POST"]),
            Route("/fleet/instances/{id}/rotate", _answering(rotate), methods=["POST"]),
        ]
    )


def _find(fleet: Fleet, request: Request) -> InstanceRecord:
    name = request.path_params["id"]
    record = fleet.find(name)
    if record is None:
        raise UnknownInstanceError(f"there is no instance {name!r}: `haptic-trio fleet list` shows all")
    return record


def _ask(fleet: Fleet, record: InstanceRecord, kind: EventType) -> dict[str, Any]:
    event = ReconcileEvent(
        type=kind,
        group=record.key.group,
        tenant=record.key.tenant,
        instance_id=record.id,
        timestamp=time.time(),
        cause="requested",
    )
    if not fleet.ask(event):
        raise UnknownInstanceError(f"there is no instance {record.id!r} any more")
    return {"asked": [record.id]}


def _answering(handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return _json(await handler(request), 200)
        except UnknownInstanceError as exc:
            return _json({"error": str(exc)}, 404)
        except HapticError as exc:
            return _json({"error": str(exc)}, 409)
        except msgspec.MsgspecError as exc:
            return _json({"error": str(exc)}, 400)

    return answer


def _json(content: object, status: int) -> Response:
    return Response(msgspec.json.encode(content), status_code=status, media_type="application/json")
