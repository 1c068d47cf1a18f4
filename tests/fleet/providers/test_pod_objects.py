"""Conversion between pod objects and instances."""

from typing import Any

import pytest

from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, ProviderStatus
from haptic_trio.fleet.providers.observed_pods import owner_of
from haptic_trio.fleet.providers.pod_objects import (
    RECORD,
    count_sessions,
    group_of,
    hash_template,
    is_doomed,
    make_pod,
    metrics_url,
    read_record,
    read_time,
    status_of,
    with_metadata,
)
from haptic_trio.k8s.resource import Resource
from tests.fleet.rig.pod_rig import make_template

RECORD_OF_ONE = InstanceRecord(id="web-1", key=GroupKey("web"), state=InstanceState.PENDING, created_at=1.0)


def pod(**status: Any) -> Resource:
    made = make_pod(make_template(), RECORD_OF_ONE, "edge")
    return {**made, "status": {"phase": "Running", "podIP": "10.0.0.7", **status}}


def conditions(ready: str) -> list[dict[str, str]]:
    return [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": ready}]


@pytest.mark.parametrize(
    ("status", "was_ready", "expected"),
    [
        ({"phase": "Pending"}, False, ProviderStatus.STARTING),
        ({"conditions": conditions("False")}, False, ProviderStatus.STARTING),
        ({"conditions": conditions("True")}, False, ProviderStatus.RUNNING),
        ({"conditions": conditions("False")}, True, ProviderStatus.UNRESPONSIVE),
        # The node does not answer.
        ({"conditions": conditions("Unknown")}, True, ProviderStatus.UNRESPONSIVE),
        ({"phase": "Failed"}, True, ProviderStatus.FAILED),
        ({"phase": "Succeeded"}, True, ProviderStatus.STOPPED),
    ],
)
def test_status_follows_phase_and_readiness(status: dict[str, Any], was_ready: bool, expected: ProviderStatus) -> None:
    assert status_of(pod(**status), was_ready=was_ready) is expected


def test_a_deleted_pod_is_stopping_and_doomed() -> None:
    going = pod(conditions=conditions("True"))
    assert not is_doomed(going)
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:30Z"
    assert status_of(going, was_ready=True) is ProviderStatus.STOPPING
    assert is_doomed(going)
    assert read_time("2026-01-01T00:00:30Z") == 1767225630.0
    assert read_time("soon") is None
    assert read_time(None) is None


def test_record_travels_with_its_pod() -> None:
    made = pod()
    assert read_record(made) == RECORD_OF_ONE
    changed = InstanceRecord(id="web-1", key=GroupKey("web"), state=InstanceState.READY, created_at=1.0, ready_at=2.0)
    assert read_record(with_metadata(made, record=changed)) == changed
    # The pod is a copy of another one, or its annotation is damaged.
    copied = {**made, "metadata": {**made["metadata"], "name": "web-2"}}
    assert read_record(copied) is None
    made["metadata"]["annotations"][RECORD] = "{"
    assert read_record(made) is None
    del made["metadata"]["annotations"][RECORD]
    assert read_record(made) is None


def test_hash_depends_on_the_pod_specification_only() -> None:
    assert hash_template(make_template()) == hash_template({**make_template(), "metadata": {"name": "other"}})
    assert hash_template(make_template()) != hash_template(make_template("haproxy:2"))


@pytest.mark.parametrize("name", ["haptic-trio", "x" * 200, "Team.One", "-", "a.b", "a-b"])
def test_group_names_are_valid_unique_prefixes_of_pod_names(name: str) -> None:
    found = group_of(name).group
    assert len(found) <= 40
    assert found == found.lower().strip("-")
    assert found.replace("-", "").isalnum()
    assert found == name or group_of("a-b").group != found


METRICS = """\
# TYPE haproxy_frontend_current_sessions gauge
haproxy_frontend_current_sessions{proxy="http"} 3
haproxy_frontend_current_sessions{proxy="https"} 2
haproxy_frontend_current_sessions{proxy="metrics"} 1
haproxy_frontend_max_sessions{proxy="http"} 9
"""


def test_client_connections_are_counted_without_that_to_the_metrics() -> None:
    assert count_sessions(METRICS) == 5
    assert count_sessions("# nothing\n") is None


def test_metrics_url_uses_the_port_named_metrics() -> None:
    assert metrics_url(pod()) == "http://10.0.0.7:8404/metrics"
    assert metrics_url(pod(podIP="fd00::7")) == "http://[fd00::7]:8404/metrics"
    assert metrics_url(pod(podIP="")) == ""
    assert metrics_url({"metadata": {"name": "x"}}) == ""


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        (None, "no controller"),
        ({"kind": "DaemonSet", "name": "edge", "controller": True}, "DaemonSet edge"),
        ({"kind": "ReplicaSet", "name": "edge-5d8f", "controller": True}, "Deployment edge"),
        ({"kind": "ReplicaSet", "name": "bare", "controller": True}, "ReplicaSet bare"),
        ({"kind": "Node", "name": "one"}, "no controller"),
    ],
)
def test_owner_of_a_replica_set_is_its_deployment(owner: dict[str, Any] | None, expected: str) -> None:
    metadata = {"name": "x", "labels": {"pod-template-hash": "5d8f"}, "ownerReferences": [owner] if owner else []}
    assert owner_of({"metadata": metadata}) == expected
