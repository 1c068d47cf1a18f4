"""Conversion between pod objects and instances of the fleet. Without I/O.

The record of an instance is an annotation of its pod, so the next leader
finds the state that its predecessor has written. The label
`haptic-trio/fleet` marks pods managed by haptic-trio; the Service selects by
`haptic-trio/serving`.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from haptic_trio.errors import INVALID_JSON
from haptic_trio.fleet.model import (
    GroupKey,
    InstanceRecord,
    ProviderInstance,
    ProviderStatus,
)
from haptic_trio.k8s.resource import Resource, ResourceType

PODS: Final = ResourceType("v1", "pods")
POD_TEMPLATES: Final = ResourceType("v1", "podtemplates")
MARK: Final = "haptic-trio/fleet"
"""Label: the group of the instance."""
SERVING: Final = "haptic-trio/serving"
"""Label: `true` for a pod that gets connections, `false` for one that drains."""
RECORD: Final = "haptic-trio/record"
"""Annotation: the record of the instance, as JSON."""
METRICS_PORT: Final = "metrics"
"""Name of the container port where HAProxy serves its metrics."""
_LONGEST_GROUP: Final = 40
"""Characters of a group name; the pod name that begins with it must fit into a label."""


def group_of(name: str) -> GroupKey:
    """Return the group for the ConfigMap *name* of a controller; its name is the prefix of pod names."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "haproxy"
    if plain != name or len(plain) > _LONGEST_GROUP:
        digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        plain = f"{plain[: _LONGEST_GROUP - 9].rstrip('-')}-{digest}"
    return GroupKey(plain)


def hash_template(template: Resource) -> str:
    """Return a hash of the pod specification in *template*, a PodTemplate."""
    content = msgspec.json.encode(template.get("template") or {}, order="sorted")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def labels_of(template: Resource) -> Mapping[str, str]:
    """Return the labels that *template* gives its pods."""
    metadata = (template.get("template") or {}).get("metadata") or {}
    return metadata.get("labels") or {}


def make_pod(template: Resource, record: InstanceRecord, namespace: str) -> Resource:
    """Return the pod for *record*, owned by the PodTemplate *template*."""
    inner: Mapping[str, Any] = template.get("template") or {}
    owner = template["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": record.id,
            "namespace": namespace,
            "labels": {**labels_of(template), MARK: record.key.group, SERVING: "true"},
            "annotations": {
                **((inner.get("metadata") or {}).get("annotations") or {}),
                RECORD: msgspec.json.encode(record).decode(),
            },
            "ownerReferences": [
                {
                    "apiVersion": "v1",
                    "kind": "PodTemplate",
                    "name": owner["name"],
                    "uid": owner.get("uid") or "",
                    "controller": True,
                    "blockOwnerDeletion": False,
                }
            ],
        },
        "spec": inner.get("spec") or {},
    }


def with_metadata(
    pod: Resource, *, label: tuple[str, str] | None = None, record: InstanceRecord | None = None
) -> Resource:
    """Return a copy of *pod* with *label* and *record* set."""
    metadata = dict(pod["metadata"])
    if label is not None:
        metadata["labels"] = {**(metadata.get("labels") or {}), label[0]: label[1]}
    if record is not None:
        content = msgspec.json.encode(record).decode()
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RECORD: content}
    return {**pod, "metadata": metadata}


def read_record(pod: Resource) -> InstanceRecord | None:
    """Return the record in the annotation of *pod*; None if it is missing, invalid, or copied from another pod."""
    content = (pod["metadata"].get("annotations") or {}).get(RECORD)
    if content is None:
        return None
    try:
        record = msgspec.json.decode(content, type=InstanceRecord)
    except INVALID_JSON:
        return None
    return record if record.id == pod["metadata"]["name"] else None


def status_of(pod: Resource, *, was_ready: bool) -> ProviderStatus:
    """Return the status of *pod*; a pod that *was_ready* and no longer is counts as unresponsive."""
    status: Mapping[str, Any] = pod.get("status") or {}
    phase = status.get("phase")
    if phase == "Failed":
        return ProviderStatus.FAILED
    if phase == "Succeeded":
        return ProviderStatus.STOPPED
    if pod["metadata"].get("deletionTimestamp"):
        return ProviderStatus.STOPPING
    if condition_of(pod, "Ready") == "True":
        return ProviderStatus.RUNNING
    return ProviderStatus.UNRESPONSIVE if was_ready else ProviderStatus.STARTING


def condition_of(pod: Resource, kind: str) -> str:
    """Return the status of the condition *kind* of *pod*; empty if it has none."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((str(one.get("status")) for one in conditions if one.get("type") == kind), "")


def listed_as(pod: Resource) -> ProviderInstance:
    """Return *pod* as a provider lists it."""
    metadata = pod["metadata"]
    record = read_record(pod)
    return ProviderInstance(
        id=metadata["name"],
        provider_id=metadata["name"],
        key=GroupKey((metadata.get("labels") or {}).get(MARK, "")),
        status=status_of(pod, was_ready=record is not None and record.ready_at is not None),
        created_at=read_time(metadata.get("creationTimestamp")) or 0.0,
        config_hash=record.config_hash if record is not None else "",
    )


def is_doomed(pod: Resource) -> bool:
    """Whether *pod* is being terminated from outside: deleted, evicted, or on a node that goes away."""
    return bool(pod["metadata"].get("deletionTimestamp")) or condition_of(pod, "DisruptionTarget") == "True"


def read_time(text: object) -> float | None:
    """Return a timestamp of the API as wall-clock seconds; None for anything else."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def metrics_url(pod: Resource) -> str:
    """Return the URL of the metrics of HAProxy in *pod*; empty if the pod has no address or no such port."""
    address = (pod.get("status") or {}).get("podIP")
    containers = (pod.get("spec") or {}).get("containers") or ()
    ports = [port for container in containers for port in container.get("ports") or ()]
    port = next((one.get("containerPort") for one in ports if one.get("name") == METRICS_PORT), None)
    if not address or not port:
        return ""
    host = f"[{address}]" if ":" in address else address
    return f"http://{host}:{port}/metrics"


_SESSIONS = re.compile(r'^haproxy_frontend_current_sessions\{[^}]*proxy="([^"]*)"[^}]*\} ([0-9.]+)$', re.MULTILINE)


def count_sessions(metrics: str) -> int | None:
    """Return the number of client connections in *metrics* of HAProxy; None if they do not contain it.

    Connections to the frontend `metrics`, such as the request for the metrics
    itself, do not count.
    """
    found = _SESSIONS.findall(metrics)
    if not found:
        return None
    return sum(int(float(number)) for proxy, number in found if proxy != METRICS_PORT)
