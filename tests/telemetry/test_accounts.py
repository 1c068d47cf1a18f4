"""Events are counted in the exported metrics, with a bounded number of series."""

from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import pytest
from prometheus_client import CollectorRegistry

from haptic_trio import messages as m
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.metrics import Metrics
from haptic_trio.telemetry.accounts import MOST_INSTANCES, MOST_RELOAD_LABELS, Accounts, reload_label
from tests.support.components.endpoints import MemoryEndpoint, generation
from tests.support.messages import PROBLEM, example_of

REF = ResourceRef("Ingress", "default", "web")


@pytest.fixture
def metrics() -> Metrics:
    return Metrics(CollectorRegistry())


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"haptic_{name}", labels)


_ACCOUNTS = WeakKeyDictionary[Metrics, Accounts]()


def count(event: msgspec.Struct, metrics: Metrics) -> None:
    """Account for one event."""
    if metrics not in _ACCOUNTS:
        _ACCOUNTS[metrics] = Accounts(metrics, clock=lambda: 0.0)
    _ACCOUNTS[metrics].take(event)


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
    ("event", "name", "labels", "expected"),
    [
        (example_of(m.ReconcileCompleted), "reconciliation_total", {"outcome": "deployed"}, 1),
        (example_of(m.HttpFetched), "http_fetches_total", {"outcome": "changed"}, 1),
        (example_of(m.HttpFetched), "http_fetch_duration_seconds_count", {}, 1),
        (example_of(m.HttpFetched), "http_received_bytes_total", {}, 90),
        (example_of(m.HttpContentAccepted), "http_content_validations_total", {"result": "accepted"}, 1),
        (example_of(m.HttpContentRejected), "http_content_validations_total", {"result": "rejected"}, 1),
        (example_of(m.ReconcileCompleted), "reconciliation_duration_seconds_count", {}, 1),
        (example_of(m.ReconcileFailed), "reconciliation_total", {"outcome": "failed"}, 1),
        (example_of(m.ReconcileFailed), "reconciliation_errors_total", {"phase": "render"}, 1),
        (example_of(m.ConfigValidated), "validation_total", {"result": "valid"}, 1),
        (example_of(m.ConfigValidated), "phase_duration_seconds_count", {"phase": "check"}, 1),
        (example_of(m.ValidationFailed), "validation_total", {"result": "rejected by render"}, 1),
        (
            msgspec.structs.replace(example_of(m.ValidationFailed), phase="check", is_verdict=False),
            "validation_total",
            {"result": "undecided"},
            1,
        ),
        (deployed(operations=3), "haproxy_runtime_operations_total", {}, 3),
        (deployed(operations=3), "deployment_total", {"result": "ok"}, 1),
        (deployed(operations=3), "haproxy_reloads_total", {"reason": "backend added"}, None),
        (deployed(changed=False), "deployment_total", {"result": "unchanged"}, 1),
        (deployed(), "deployment_duration_seconds_sum", {}, 0.2),
        (deployed(reasons=("backend web added", "x")), "haproxy_reloads_total", {"reason": "backend added"}, 1),
        (deployed(reasons=("drift: server app/s1 removed",)), "haproxy_reloads_total", {"reason": "drift removed"}, 1),
        (deployed(reasons=("files changed by hand: x",)), "haproxy_reloads_total", {"reason": "files changed"}, 1),
        (deployed(reasons=("process: no haproxy runs",)), "haproxy_reloads_total", {"reason": "process"}, 1),
        (deployed(reasons=("repair rejected: e: 'x'",)), "haproxy_reloads_total", {"reason": "repair rejected"}, 1),
        (example_of(m.DriftRepaired), "haproxy_drift_total", {"kind": "server"}, 2),
        (example_of(m.DriftRepaired), "haproxy_drift_total", {"kind": "map"}, 1),
        (example_of(m.InstanceFailed), "deployment_total", {"result": "failed"}, 1),
        (example_of(m.Quarantined), "quarantined_objects", {}, 1),
        (example_of(m.EndpointsDiscovered), "endpoints", {}, 1),
        (example_of(m.IterationEnded), "iterations_total", {"reason": "configuration changed"}, 1),
        (example_of(m.ConfigInvalid), "config_invalid_total", {}, 1),
        (example_of(m.LeadershipChanged), "leader_election_is_leader", {}, 1),
        (example_of(m.LeadershipChanged), "leader_election_transitions_total", {}, 1),
    ],
)
def test_event_is_counted(
    metrics: Metrics, event: msgspec.Struct, name: str, labels: dict[str, str], expected: float | None
) -> None:
    count(event, metrics)

    assert value(metrics, name, **labels) == expected


def test_gauges_follow_what_is_there_now(metrics: Metrics) -> None:
    two = tuple(MemoryEndpoint(name) for name in ("a", "b"))
    for event in (
        m.EndpointsDiscovered(endpoints=two),
        m.EndpointsDiscovered(endpoints=two[:1]),
        m.Quarantined(correlation="c", ref=REF, version="1", problem=PROBLEM, has_fallback=False, quarantined=2),
        m.Released(correlation="c", ref=REF, quarantined=1),
        m.LeadershipChanged(is_leader=True, identity="x", transitions=1),
        m.LeadershipChanged(is_leader=False, identity="x", transitions=2),
    ):
        count(event, metrics)

    assert value(metrics, "endpoints") == 1
    assert value(metrics, "quarantined_objects") == 1
    assert value(metrics, "leader_election_is_leader") == 0
    assert value(metrics, "leader_election_transitions_total") == 2


def test_problems_are_counted_by_source_until_they_are_solved(metrics: Metrics) -> None:
    for source, problems in (("a", (PROBLEM, PROBLEM)), ("b", (PROBLEM,)), ("a", (PROBLEM,))):
        count(m.ProblemsReported(source=source, problems=problems), metrics)
    assert value(metrics, "problems") == 2
    count(m.ProblemsReported(source="b", problems=()), metrics)
    assert value(metrics, "problems") == 1


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
        (("patch rejected: local-1: no such backend shop",), "patch rejected"),
        (("order of sections changed",), "order changed"),
        (("", "backend web added"), "unknown"),
    ],
)
def test_label_of_a_reload_holds_no_name_of_an_object(reasons: tuple[str, ...], label: str) -> None:
    assert reload_label(reasons) == label


def test_reasons_of_agents_do_not_become_any_number_of_labels(metrics: Metrics) -> None:
    accounts = Accounts(metrics, clock=lambda: 0.0)
    for number in range(MOST_RELOAD_LABELS + 10):
        accounts.take(deployed(reasons=(f"reason-{number}",)))

    assert value(metrics, "haproxy_reloads_total", reason="reason-0") == 1
    assert value(metrics, "haproxy_reloads_total", reason="other") == 10


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


def test_generation_of_a_validated_event_is_not_a_label(metrics: Metrics) -> None:
    for name in "ab":
        event = msgspec.structs.replace(example_of(m.ConfigValidated), generation=generation(name))
        count(event, metrics)

    assert value(metrics, "validation_total", result="valid") == 2


class Clock:
    """A clock that stands still."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def accounts(metrics: Metrics, clock: Clock) -> Accounts:
    accounts = Accounts(metrics, clock=clock, wall_clock=lambda: 1_900_000_000.0)
    accounts.take(m.LeadershipChanged(is_leader=True, identity="x", transitions=1))
    return accounts


def discovered(*names: str) -> m.EndpointsDiscovered:
    """Return that these instances are there, and no others."""
    return m.EndpointsDiscovered(endpoints=tuple(MemoryEndpoint(name) for name in names))


def series(metrics: Metrics, name: str) -> list[dict[str, str]]:
    """Return the labels of all samples of a metric."""
    return [
        sample.labels
        for metric in metrics.registry.collect()
        for sample in metric.samples
        if sample.name == f"haptic_{name}"
    ]


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        (deployed(operations=1), "runtime"),
        (deployed(changed=False), "unchanged"),
        (deployed(reasons=("backend web added",)), "reload"),
        (deployed(reasons=("unknown generation",)), "start"),
        (m.InstanceFailed(correlation="c", endpoint="e", error="x", seconds=0.1), "failed"),
    ],
)
def test_deployments_to_an_instance_are_counted_by_kind(
    metrics: Metrics, accounts: Accounts, event: msgspec.Struct, kind: str
) -> None:
    accounts.take(discovered("e"))
    accounts.take(event)

    counts = {
        one["kind"]: value(metrics, "instance_deployments_total", **one)
        for one in series(metrics, "instance_deployments_total")
    }
    assert counts == {**dict.fromkeys(("start", "reload", "runtime", "unchanged", "failed"), 0), kind: 1}
    assert value(metrics, "instance_failing", haproxy="e") == int(kind == "failed")
    succeeded = value(metrics, "instance_last_success_timestamp_seconds", haproxy="e")
    assert succeeded == (None if kind == "failed" else 1_900_000_000)


def test_series_of_an_instance_vanish_with_it_and_late_answers_do_not_bring_them_back(
    metrics: Metrics, accounts: Accounts
) -> None:
    accounts.take(discovered("e", "other"))
    accounts.take(deployed())
    accounts.take(discovered("other"))
    accounts.take(deployed())

    for name in ("instance_deployments_total", "instance_failing", "instance_holding_back"):
        assert {labels["haproxy"] for labels in series(metrics, name)} == {"other"}
    assert series(metrics, "instance_last_success_timestamp_seconds") == []
    assert value(metrics, "deployment_total", result="ok") == 2


def test_number_of_instances_with_series_is_bounded(metrics: Metrics, accounts: Accounts) -> None:
    accounts.take(discovered(*(f"e{number}" for number in range(MOST_INSTANCES + 20))))

    assert len(series(metrics, "instance_failing")) == MOST_INSTANCES
    assert value(metrics, "endpoints") == MOST_INSTANCES + 20


def test_instance_that_holds_back_does_not_count_as_reached(metrics: Metrics, accounts: Accounts, clock: Clock) -> None:
    accounts.take(discovered("e"))
    clock.now = 10.0
    accounts.take(m.ReconcileTriggered(correlation="c", reason=m.Reason.CHANGED, changes=1, seen=9.0))
    holding = SyncResult(endpoint="e", changed=True, reloaded=False, held=("backend web added",))
    accounts.take(m.InstanceDeployed(correlation="c", result=holding))

    assert value(metrics, "instance_holding_back", haproxy="e") == 1
    assert value(metrics, "unpropagated_changes") == 1
    clock.now = 11.0
    assert value(metrics, "oldest_unpropagated_change_seconds") == 2.0
    accounts.take(deployed())
    assert value(metrics, "oldest_unpropagated_change_seconds") == 0
    assert value(metrics, "instance_holding_back", haproxy="e") == 0
    assert value(metrics, "unpropagated_changes") == 0
    assert value(metrics, "propagation_duration_seconds_sum") == 2.0


def test_slowed_namespaces_count_until_their_holds_end(metrics: Metrics, accounts: Accounts, clock: Clock) -> None:
    state = m.DeploymentState(slowed=(("one", 5.0), ("two", 20.0)))
    accounts.take(msgspec.structs.replace(example_of(m.DeploymentCompleted), state=state))

    assert value(metrics, "slowed_namespaces") == 2
    clock.now = 10.0
    assert value(metrics, "slowed_namespaces") == 1
    accounts.take(m.LeadershipChanged(is_leader=False, identity="x", transitions=2))
    assert value(metrics, "slowed_namespaces") == 0


@pytest.mark.parametrize(
    "other", [m.LeadershipChanged(is_leader=False, identity="x", transitions=2), example_of(m.IterationEnded)]
)
def test_what_another_replica_or_iteration_deploys_is_not_measured(
    metrics: Metrics, accounts: Accounts, other: msgspec.Struct
) -> None:
    accounts.take(m.ReconcileTriggered(correlation="c", reason=m.Reason.CHANGED, changes=1, seen=0.0))
    accounts.take(other)
    accounts.take(deployed())

    assert value(metrics, "unpropagated_changes") == 0
    assert value(metrics, "propagation_duration_seconds_count") == 0


def test_replica_that_no_longer_deploys_has_no_series_of_instances(metrics: Metrics, accounts: Accounts) -> None:
    accounts.take(discovered("e"))
    accounts.take(deployed())
    accounts.take(m.InstanceFailed(correlation="c", endpoint="e", error="x", seconds=0.1))
    accounts.take(m.LeadershipChanged(is_leader=False, identity="x", transitions=2))

    assert value(metrics, "instance_failing", haproxy="e") == 0
    assert series(metrics, "instance_last_success_timestamp_seconds") == []
    assert value(metrics, "instance_deployments_total", haproxy="e", kind="failed") == 1


def test_follower_does_not_wait_for_deployments(metrics: Metrics, clock: Clock) -> None:
    accounts = Accounts(metrics, clock=clock)
    accounts.take(m.ReconcileTriggered(correlation="c", reason=m.Reason.CHANGED, changes=1, seen=0.0))

    assert value(metrics, "unpropagated_changes") == 0


PHASES = m.Phases(render=0.5, parse=0.25, check=2.0)


def prepared(correlation: str) -> m.ConfigPrepared:
    return msgspec.structs.replace(example_of(m.ConfigPrepared), correlation=correlation, phases=PHASES)


def validated(correlation: str) -> m.ConfigValidated:
    return msgspec.structs.replace(example_of(m.ConfigValidated), correlation=correlation, phases=PHASES)


@pytest.mark.parametrize(
    ("events", "counts"),
    [
        ([validated("1-1"), validated("1-2")], {"render": 2, "parse": 2, "check": 2}),
        # Phase 2 runs beside, and what is newer may have been prepared meanwhile.
        ([prepared("1-1"), prepared("1-2"), validated("1-1")], {"render": 2, "parse": 2, "check": 1}),
        # A configuration of another mode.
        ([prepared("1-1"), example_of(m.IterationEnded), validated("2-1")], {"render": 2, "parse": 2, "check": 1}),
    ],
)
def test_phases_of_each_cycle_are_counted_once_though_it_may_be_published_twice(
    metrics: Metrics, accounts: Accounts, events: list[msgspec.Struct], counts: dict[str, int]
) -> None:
    for event in events:
        accounts.take(event)

    assert {phase: value(metrics, "phase_duration_seconds_count", phase=phase) for phase in counts} == counts
    assert value(metrics, "phase_duration_seconds_sum", phase="check") == 2.0 * counts["check"]
