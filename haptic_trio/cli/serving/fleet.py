"""Fleet of `serve`: probe counts, and the control socket of `haptic-trio fleet`."""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.local.sockets import choose_socket_directory, require_writable
from haptic_trio.deployment.pods import PodEndpoints
from haptic_trio.errors import HapticError, text_of
from haptic_trio.fleet.control import Fleet, make_control_app
from haptic_trio.fleet.model import InstanceState
from haptic_trio.fleet.owner import FleetOwner
from haptic_trio.fleet.providers.observed_pods import ObservedPods
from haptic_trio.fleet.reconciler import FleetSnapshot
from haptic_trio.health import GroupHealth, serve_app
from haptic_trio.logs import get_logger
from haptic_trio.stages.fleets.local import LocalFleet
from haptic_trio.stages.fleets.pods import PodFleet
from haptic_trio.stages.process import Process

SOCKET_NAME = "control.sock"


class NoFleetError(HapticError):
    """This controller does not manage instances; permanent."""


def control_path(state: Path) -> Path:
    """Return the control socket of the controller with the state directory *state*; creates its directory. Blocks."""
    return choose_socket_directory(state.absolute()) / SOCKET_NAME


def with_fleet(process: Process, fleet: LocalFleet | PodFleet | None, pods: PodEndpoints | None) -> Process:
    """Return *process* with its *fleet*, and with *pods*, the discovery of endpoints in pods."""
    parts = replace(process.fleet, pods=pods, owner=fleet.owner if fleet is not None else None)
    if isinstance(fleet, PodFleet):
        parts = replace(parts, observed=fleet.observed, aim=fleet.aim)
    return replace(process, fleet=parts)


@asynccontextmanager
async def serving_control(state: Path, process: Process) -> AsyncIterator[None]:
    """Serve the control socket of the fleet of *process* for the duration of the block.

    Without it, only a warning is logged: a full or read-only disk prevents no adoption of HAProxy.
    """

    def fleet() -> Fleet:
        found = fleet_of(process)
        if found is None:
            raise NoFleetError("this controller does not manage instances: it deploys to existing ones")
        return found

    path = await trio.to_thread.run_sync(control_path, state)
    app = make_control_app(fleet, lambda: process.endpoints.value or ())
    try:
        await trio.to_thread.run_sync(require_writable, path.parent)
    except OSError as exc:
        get_logger("fleet").warning(
            "cannot create the control socket: restart the controller to use `haptic-trio fleet`",
            path=str(path),
            error=text_of(exc),
        )
        yield
        return
    try:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(serve_app, app, f"unix:{path}", umask=0o177))
            yield
            nursery.cancel_scope.cancel(reason="the controller ended")
    finally:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


def fleet_of(process: Process) -> FleetOwner | ObservedPods | None:
    """Return the current owner or observer of the instances; None if their number is unknown."""
    if process.fleet.observed is not None and not (
        process.fleet.desired.value and process.fleet.desired.value.pod_template
    ):
        return process.fleet.observed
    return process.fleet.owner


def count_groups(snapshot: FleetSnapshot | None) -> tuple[GroupHealth, ...]:
    """Return the groups of a fleet as health reports show them."""
    if snapshot is None:
        return ()
    return tuple(
        GroupHealth(
            name=str(group.key),
            size=group.spec.size if group.spec is not None else 0,
            ready=sum(record.state is InstanceState.READY for record in group.records),
            starting=sum(record.state in {InstanceState.PENDING, InstanceState.STARTING} for record in group.records),
            draining=sum(record.state is InstanceState.DRAINING for record in group.records),
        )
        for group in snapshot.groups
    )
