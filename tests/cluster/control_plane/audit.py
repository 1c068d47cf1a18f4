"""Requests of Pods to the API server, read from its audit log."""

from datetime import datetime
from typing import Any

import msgspec

from tests.cluster.control_plane.state import State


class Asked(msgspec.Struct, frozen=True):
    """One request that was answered, or a watch that was opened."""

    at: float
    """When the server got it, in seconds since the epoch."""
    verb: str
    resource: str
    """Group, plural and subresource: `networking.k8s.io/ingresses/status`; the path of what is no resource."""
    name: str
    query: str
    status: int
    pod: str
    """Empty for a token that is bound to none."""

    @property
    def reads_all(self) -> bool:
        """Whether it is a list, or a watch that begins with one."""
        return self.verb == "list" or "sendInitialEvents=true" in self.query


def read_requests(state: State, namespace: str, account: str = "default") -> list[Asked]:
    """Return what the Pods of a service account have asked, in the order in which it was answered."""
    found: dict[str, Asked] = {}
    user = f"system:serviceaccount:{namespace}:{account}"
    for line in state.audit_log.read_bytes().splitlines():
        if user.encode() in line:
            event = msgspec.json.decode(line)
            # A watch is noted when it begins and when it ends.
            if event["user"]["username"] == user and event["auditID"] not in found:
                found[event["auditID"]] = _asked(event)
    return list(found.values())


def _asked(event: dict[str, Any]) -> Asked:
    target: dict[str, str] = event.get("objectRef") or {}
    parts = [target.get("apiGroup", ""), target.get("resource", "")]
    resource = "/".join([*parts, *filter(None, [target.get("subresource")])])
    pods: list[str] = (event["user"].get("extra") or {}).get("authentication.kubernetes.io/pod-name") or [""]
    return Asked(
        at=datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp(),
        verb=event["verb"],
        resource=resource if target.get("resource") else event["requestURI"].partition("?")[0],
        name=target.get("name", ""),
        query=event["requestURI"].partition("?")[2],
        status=event["responseStatus"]["code"],
        pod=pods[0],
    )
