"""What is exported, and that facts are counted."""

from typing import Any

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from haptic_trio import messages as m
from haptic_trio.commentator import count, reload_label
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.metrics import Metrics
from tests.support.endpoints import MemoryEndpoint, generation
from tests.support.facts import PROBLEM, example_of

REF = ResourceRef("Ingress", "default", "web")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"haptic_{name}", labels)


def deployed(*, changed: bool = True, reasons: tuple[str, ...] = (), operations: int = 0) -> m.InstanceDeployed:
    result = SyncResult(
        endpoint="e", changed=changed, reloaded=bool(reasons), reasons=reasons, operations=operations, seconds=0.2
    )
    return m.InstanceDeployed(correlation="c", result=result)


def test_two_processes_in_one_interpreter_count_apart() -> None:
    one, two = Metrics(), Metrics()
    one.is_leader.set(1)

    assert value(one, "leader_election_is_leader") == 1
    assert value(two, "leader_election_is_leader") == 0


@pytest.mark.parametrize(
    ("fact", "name", "labels", "expected"),
    [
        (example_of(m.ReconcileCompleted), "reconciliation_total", {"outcome": "deployed"}, 1),
        (example_of(m.ReconcileCompleted), "reconciliation_duration_seconds_count", {}, 1),
        (example_of(m.ReconcileFailed), "reconciliation_total", {"outcome": "failed"}, 1),
        (example_of(m.ReconcileFailed), "reconciliation_errors_total", {"phase": "render"}, 1),
        (example_of(m.ConfigValidated), "validation_total", {"result": "valid"}, 1),
        (example_of(m.ConfigValidated), "phase_duration_seconds_count", {"phase": "check"}, 1),
        (example_of(m.ValidationFailed), "validation_total", {"result": "refused by render"}, 1),
        (deployed(operations=3), "haproxy_runtime_operations_total", {}, 3),
        (deployed(operations=3), "deployment_total", {"result": "ok"}, 1),
        (deployed(operations=3), "haproxy_reloads_total", {"reason": "backend added"}, None),
        (deployed(changed=False), "deployment_total", {"result": "unchanged"}, 1),
        (deployed(), "deployment_duration_seconds_sum", {}, 0.2),
        (deployed(reasons=("backend web added", "x")), "haproxy_reloads_total", {"reason": "backend added"}, 1),
        (deployed(reasons=("drift: server app/s1 removed",)), "haproxy_reloads_total", {"reason": "drift removed"}, 1),
        (deployed(reasons=("files changed by hand: x",)), "haproxy_reloads_total", {"reason": "files changed"}, 1),
        (deployed(reasons=("process: no haproxy runs",)), "haproxy_reloads_total", {"reason": "process"}, 1),
        (deployed(reasons=("repair refused: e: 'x'",)), "haproxy_reloads_total", {"reason": "repair refused"}, 1),
        (example_of(m.DriftRepaired), "haproxy_drift_total", {"kind": "server"}, 2),
        (example_of(m.DriftRepaired), "haproxy_drift_total", {"kind": "map"}, 1),
        (example_of(m.InstanceFailed), "deployment_total", {"result": "failed"}, 1),
        (example_of(m.Quarantined), "quarantined_objects", {}, 1),
        (example_of(m.EndpointsDiscovered), "endpoints", {}, 1),
        (example_of(m.IndexSynchronized), "resource_count", {"type": "services"}, 4),
        (example_of(m.IterationEnded), "iterations_total", {"reason": "configuration changed"}, 1),
        (example_of(m.ConfigInvalid), "config_invalid_total", {}, 1),
        (example_of(m.LeadershipChanged), "leader_election_is_leader", {}, 1),
        (example_of(m.LeadershipChanged), "leader_election_transitions_total", {}, 1),
    ],
)
def test_fact_is_counted(
    metrics: Metrics, fact: msgspec.Struct, name: str, labels: dict[str, str], expected: float | None
) -> None:
    count(fact, metrics)

    assert value(metrics, name, **labels) == expected


def test_gauges_follow_what_is_there_now(metrics: Metrics) -> None:
    two = tuple(MemoryEndpoint(name) for name in ("a", "b"))
    for fact in (
        m.EndpointsDiscovered(endpoints=two),
        m.EndpointsDiscovered(endpoints=two[:1]),
        m.Quarantined(correlation="c", ref=REF, version="1", problem=PROBLEM, has_fallback=False, held=2),
        m.Released(correlation="c", ref=REF, held=1),
        m.LeadershipChanged(is_leader=True, identity="x", transitions=1),
        m.LeadershipChanged(is_leader=False, identity="x", transitions=2),
    ):
        count(fact, metrics)

    assert value(metrics, "endpoints") == 1
    assert value(metrics, "quarantined_objects") == 1
    assert value(metrics, "leader_election_is_leader") == 0
    assert value(metrics, "leader_election_transitions_total") == 2


def test_next_iteration_begins_without_quarantine(metrics: Metrics) -> None:
    count(example_of(m.Quarantined), metrics)
    count(example_of(m.IterationEnded), metrics)

    assert value(metrics, "quarantined_objects") == 0


@pytest.mark.parametrize(
    ("reasons", "label"),
    [
        ((), "unknown"),
        (("backend web-80 added",), "backend added"),
        (("backend web: server 'added' moved", "backend api removed"), "backend moved"),
        (("map maps/host.map changed: key shop.example.org is there twice",), "map changed"),
        (("crt-list ssl/shop.txt changed",), "crt-list changed"),
        (("patch refused: local-1: no such backend shop",), "patch refused"),
        (("order of sections changed",), "order changed"),
    ],
)
def test_label_of_a_reload_holds_no_name_of_an_object(reasons: tuple[str, ...], label: str) -> None:
    assert reload_label(reasons) == label


def test_reasons_of_many_objects_share_one_label(metrics: Metrics) -> None:
    for number in range(50):
        count(deployed(reasons=(f"backend shop-{number} added",)), metrics)

    samples: list[Any] = [
        sample
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == "haptic_haproxy_reloads_total"
    ]
    assert [(sample.labels, sample.value) for sample in samples] == [({"reason": "backend added"}, 50)]


def test_generation_of_a_validated_fact_is_no_label(metrics: Metrics) -> None:
    for name in "ab":
        fact = msgspec.structs.replace(example_of(m.ConfigValidated), generation=generation(name))
        count(fact, metrics)

    assert value(metrics, "validation_total", result="valid") == 2
