"""Control API of the fleet: HTTP on a unix socket that only the owner can reach.

    GET    /fleet                          FleetStatus
    GET    /fleet/instances/ID             record and process of one instance
    POST   /fleet/instances/ID/drain       take it out now; another one is made in its place
    POST   /fleet/instances/ID/rotate      make another one, then take it out
    POST   /fleet/rotate                   the same for all, one after the other
    PUT    /fleet/size                     {"size": N}, or null for what the configuration says

Problems are answered with `{"error": …}`: 404 for an unknown instance, 409
when this process cannot do it, 400 for what makes no sense.
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

MOST_INSTANCES = 64
DESCRIBE_LIMIT = 5.0
"""Seconds that an instance may take to say what it is."""


class UnknownInstanceError(HapticError):
    """There is no such instance; trying again is futile."""


class Fleet(Protocol):
    """A fleet that can be asked; each method raises a `HapticError` that says what cannot be done."""

    def describe(self) -> FleetStatus:
        """Return the fleet as it is now."""
        ...

    def find(self, instance_id: str) -> InstanceRecord | None:
        """Return what is known of an instance."""
        ...

    def ask(self, event: ReconcileEvent) -> bool:
        """Have *event* handled; False when it is about nothing that is known."""
        ...

    async def resize(self, size: int | None) -> None:
        """Have *size* instances; None is as many as the configuration says."""
        ...


class _SizeBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    size: int | None


class InstanceDetails(msgspec.Struct, frozen=True, kw_only=True):
    """One instance, as its record and its process say."""

    record: InstanceRecord
    version: str = ""
    """HAProxy's; empty when it does not say."""
    generation: str = ""
    pid: int = 0
    reloads: int = 0


Handler = Callable[[Request], Awaitable[object]]


def make_control_app(fleet: Callable[[], Fleet], endpoints: Callable[[], Sequence[Endpoint]]) -> Starlette:
    """Return the application over *fleet*; *endpoints* are those that can be asked what they run."""

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
                    # That it does not answer is what its state says.
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
        if size is not None and not 0 <= size <= MOST_INSTANCES:
            raise msgspec.ValidationError(f"a size is from 0 to {MOST_INSTANCES}")
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
        raise UnknownInstanceError(f"there is no instance {name!r}")
    return record


def _ask(fleet: Fleet, record: InstanceRecord, kind: EventType) -> dict[str, Any]:
    event = ReconcileEvent(
        type=kind,
        group=record.key.group,
        tenant=record.key.tenant,
        instance_id=record.id,
        timestamp=time.time(),
        cause="asked for",
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
