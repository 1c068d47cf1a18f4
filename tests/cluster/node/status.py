"""Status of a Pod as a kubelet reports it, derived from the states of its containers; no I/O."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from haptic_trio.k8s.resource import Resource


class Ended(msgspec.Struct, frozen=True):
    """How a container's process ended."""

    code: int
    """As a shell reports it: 128 and the signal for one that was killed."""
    reason: str
    started: str
    finished: str


class ContainerState(msgspec.Struct):
    """One container as its kubelet sees it; times are as the API writes them."""

    name: str
    image: str
    waiting: tuple[str, str] | None = ("ContainerCreating", "")
    """Reason and message, while nothing runs that shall run."""
    running_since: str | None = None
    ended: Ended | None = None
    previous: Ended | None = None
    restarts: int = 0
    started: bool = False
    """Whether the startup probe passed."""
    probed_ready: bool = False
    sidecar: bool = False

    @property
    def ready(self) -> bool:
        """Whether the container may get traffic, or, of an init container, is no longer in the way."""
        return self.running_since is not None and self.started and self.probed_ready


def timestamp() -> str:
    """Return the time as the API writes it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def build_status(
    pod: Resource, *, address: str, host: str, init: Sequence[ContainerState], main: Sequence[ContainerState], now: str
) -> Resource:
    """Return the status of *pod*; conditions that did not change keep their time, as *pod* reports it."""
    before = {one["type"]: one for one in (pod.get("status") or {}).get("conditions") or ()}
    initialised = all(one.ready if one.sidecar else _completed(one) for one in init)
    phase = find_phase(main, pod["spec"].get("restartPolicy", "Always")) if initialised else "Pending"
    containers_ready = (
        phase == "Running" and all(one.ready for one in main) and all(one.ready for one in init if one.sidecar)
    )
    claims = {
        "PodReadyToStartContainers": bool(address),
        "Initialized": initialised,
        "ContainersReady": containers_ready,
        "Ready": containers_ready,
    }
    status: Resource = {
        "phase": phase,
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "startTime": (pod.get("status") or {}).get("startTime") or now,
        "conditions": [_condition(before.get(name), name, claim, now) for name, claim in claims.items()],
        "containerStatuses": [_container_status(one) for one in main],
    }
    if init:
        status["initContainerStatuses"] = [_container_status(one) for one in init]
    if address:
        status |= {"podIP": address, "podIPs": [{"ip": address}]}
    return status


def find_phase(containers: Sequence[ContainerState], restart_policy: str) -> str:
    """Return the phase of a Pod whose init containers are done."""
    ended = [one.ended for one in containers if one.ended is not None]
    if restart_policy != "Always" and len(ended) == len(containers):
        if all(one.code == 0 for one in ended):
            return "Succeeded"
        if restart_policy == "Never":
            return "Failed"
    if all(one.running_since is None and one.ended is None and one.previous is None for one in containers):
        return "Pending"
    return "Running"


def _completed(state: ContainerState) -> bool:
    return state.ended is not None and state.ended.code == 0


def _condition(before: Mapping[str, Any] | None, name: str, claim: bool, now: str) -> Resource:
    value = str(claim)
    unchanged = before is not None and before["status"] == value
    since = before["lastTransitionTime"] if before is not None and unchanged else now
    return {"type": name, "status": value, "lastTransitionTime": since}


def _container_status(state: ContainerState) -> Resource:
    if state.running_since is not None:
        current: Resource = {"running": {"startedAt": state.running_since}}
    elif state.waiting is not None:
        current = {"waiting": {"reason": state.waiting[0], "message": state.waiting[1]}}
    else:
        assert state.ended is not None
        current = {"terminated": _terminated(state.ended)}
    return {
        "name": state.name,
        "image": state.image,
        "imageID": state.image,
        "ready": state.ready,
        "started": state.started,
        "restartCount": state.restarts,
        "state": current,
        "lastState": {} if state.previous is None else {"terminated": _terminated(state.previous)},
    }


def _terminated(ended: Ended) -> Resource:
    return {
        "exitCode": ended.code,
        "reason": ended.reason,
        "startedAt": ended.started,
        "finishedAt": ended.finished,
    }
