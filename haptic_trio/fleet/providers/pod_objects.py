"""HAProxy pods as instances: what a pod object says, and what one is made from. Without I/O.

The pod is the record's home: it travels in an annotation, so whoever leads
next finds what its predecessor knew. The label `haptic-trio/fleet` is the
mark of ours; `haptic-trio/serving` is what the Service selects by.
"""

import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

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
"""Label: the group that a pod is an instance of."""
SERVING: Final = "haptic-trio/serving"
"""Label: `true` for a pod that is to get connections, `false` for one that drains."""
RECORD: Final = "haptic-trio/record"
"""Annotation: what is known of the instance."""
METRICS_PORT: Final = "metrics"
"""Name of the container port where HAProxy serves its metrics."""
_LONGEST_GROUP: Final = 40
"""Characters: what is added to make a pod's name has to fit into a label, too."""


def group_of(name: str) -> GroupKey:
    """Return the group of the controller whose configuration is called *name*: names of pods begin with it."""
    plain = re.sub(r"[^a-z0-9-]+", "-", name.lower()).strip("-") or "haproxy"
    if plain != name or len(plain) > _LONGEST_GROUP:
        digest = hashlib.blake2b(name.encode(), digest_size=4).hexdigest()
        plain = f"{plain[: _LONGEST_GROUP - 9].rstrip('-')}-{digest}"
    return GroupKey(plain)


def hash_template(template: Resource) -> str:
    """Return what changes whenever pods of *template*, a PodTemplate, would be others."""
    content = msgspec.json.encode(template.get("template") or {}, order="sorted")
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def labels_of(template: Resource) -> Mapping[str, str]:
    """Return the labels that pods of *template* get from it."""
    metadata = (template.get("template") or {}).get("metadata") or {}
    return metadata.get("labels") or {}


def make_pod(template: Resource, record: InstanceRecord, namespace: str) -> Resource:
    """Return the pod of *record*, which goes when the PodTemplate goes."""
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
    """Return *pod* with another label, or with what is known of it now."""
    metadata = dict(pod["metadata"])
    if label is not None:
        metadata["labels"] = {**(metadata.get("labels") or {}), label[0]: label[1]}
    if record is not None:
        content = msgspec.json.encode(record).decode()
        metadata["annotations"] = {**(metadata.get("annotations") or {}), RECORD: content}
    return {**pod, "metadata": metadata}


def read_record(pod: Resource) -> InstanceRecord | None:
    """Return what the pod says is known of it; None when that makes no sense."""
    content = (pod["metadata"].get("annotations") or {}).get(RECORD)
    if content is None:
        return None
    try:
        record = msgspec.json.decode(content, type=InstanceRecord)
    except msgspec.MsgspecError:
        return None
    return record if record.id == pod["metadata"]["name"] else None


def status_of(pod: Resource, *, was_ready: bool) -> ProviderStatus:
    """Return how *pod* is. One that was ready and is not any more does not answer."""
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
    """Return the status of a condition of *pod*; empty when it has none of that kind."""
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
    """Whether somebody is going to end *pod*: a person, the end of its node, or an eviction."""
    return bool(pod["metadata"].get("deletionTimestamp")) or condition_of(pod, "DisruptionTarget") == "True"


def read_time(text: object) -> float | None:
    """Return the seconds of a timestamp of the API; None when it is none."""
    if not isinstance(text, str):
        return None
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return None


def metrics_url(pod: Resource) -> str:
    """Return where HAProxy in *pod* tells how many connections it has; empty when it does not."""
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
    """Return how many connections of clients HAProxy's *metrics* tell of; None when they tell nothing of that.

    Those to the frontend `metrics`, by which this is asked, are none.
    """
    found = _SESSIONS.findall(metrics)
    if not found:
        return None
    return sum(int(float(number)) for proxy, number in found if proxy != METRICS_PORT)
