"""The recorder keeps the newest events, and derives cycles and unsolved problems from them."""

import json
import sys

import msgspec
import pytest

from haptic_trio import messages as m
from haptic_trio.commentator import LOG_LINES
from haptic_trio.console.protocol import ReloadView
from haptic_trio.console.recorder import MOST_EVENTS, Recorder
from haptic_trio.console.timeline import cycles_of
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from tests.support.components.endpoints import generation
from tests.support.messages import example_of


class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def recorder(clock: Clock | None = None, secret: str = "hidden-word") -> Recorder:
    """Return one that knows one secret."""

    def clean(value: object) -> object:
        return json.loads(json.dumps(value).replace(secret, "***"))

    return Recorder(LOG_LINES.get, clean, clock=clock or Clock())


@pytest.mark.parametrize("kind", LOG_LINES, ids=lambda kind: kind.__name__)
def test_every_message_becomes_an_event_that_json_can_hold(kind: type[msgspec.Struct]) -> None:
    record = recorder()

    record.observe(example_of(kind))

    (event,) = record.events()
    assert (event.number, event.kind) == (1, kind.__name__)
    assert event.text
    assert json.loads(msgspec.json.encode(event))["fields"] is not None


@pytest.mark.parametrize("warnings", [(), (Problem(message="odd"),)])
def test_events_have_the_level_of_their_log_line(warnings: tuple[Problem, ...]) -> None:
    record = recorder()
    events = [msgspec.structs.replace(example_of(m.ConfigValidated), warnings=warnings), example_of(m.ConfigPrepared)]

    for event in events:
        record.observe(event)

    assert [event.level for event in record.events()] == [LOG_LINES[type(event)](event)[0] for event in events]


def test_only_the_newest_events_are_kept_and_numbers_count_all() -> None:
    record = recorder()
    for _ in range(MOST_EVENTS + 10):
        record.observe(m.DriftSuspected(idle=1.0))

    events = record.events()

    assert (len(events), events[0].number, record.last) == (MOST_EVENTS, 11, MOST_EVENTS + 10)
    assert [event.number for event in record.events(record.last - 2)] == [record.last - 1, record.last]


def test_words_of_others_are_cleaned_when_they_come() -> None:
    record = recorder()
    problem = Problem(message="bad value hidden-word", source="haproxy.cfg", line=3, excerpt="hidden-word")

    record.observe(m.ValidationFailed(correlation="1-1", reason=m.Reason.CHANGED, phase="check", problems=(problem,)))
    record.observe(m.InstanceFailed(correlation="1-1", endpoint="a", error="hidden-word", seconds=1.0))
    record.observe(m.ProblemsReported(source="x", problems=(problem,)))
    record.observe(m.HttpContentRejected(url="http://a", digest="d", problem=problem, has_former=True))

    reported = msgspec.json.encode([record.events(), record.instances, record.problems])
    assert b"hidden-word" not in reported
    assert b"haproxy.cfg:3: bad value ***" in reported


def test_configurations_are_not_kept_alive() -> None:
    record, made = recorder(), generation("a")
    references = sys.getrefcount(made)

    for _ in range(3):
        phases = m.Phases(render=0.5)
        record.observe(m.ConfigValidated(correlation="1-1", reason=m.Reason.CHANGED, generation=made, phases=phases))
        record.observe(
            m.DeploymentScheduled(correlation="1-1", generation=made, endpoints=(), why=m.DeploymentReason.VALIDATED)
        )

    assert sys.getrefcount(made) == references
    assert cycles_of(record.entries())[0].render == 0.5


def test_cycle_is_put_together_from_its_events() -> None:
    clock = Clock()
    record = recorder(clock)
    phases = m.Phases(render=0.2, parse=0.1, check=0.3)
    story: list[tuple[float, msgspec.Struct]] = [
        (0, m.ReconcileTriggered(correlation="1-2", reason=m.Reason.CHANGED, changes=3, seen=99.0)),
        (1, m.ReconcileStarted(correlation="1-2", reason=m.Reason.CHANGED, changes=3)),
        (
            2,
            m.ConfigRendered(
                correlation="1-2", bytes=1, files=1, seconds=0.2, fragments_rendered=1, fragments_reused=9
            ),
        ),
        (
            3,
            m.ConfigValidated(correlation="1-2", reason=m.Reason.CHANGED, generation=generation("a"), phases=phases),
        ),
        (4, m.DeploymentStarted(correlation="1-2", generation="abc", endpoints=("a",))),
        (6, m.DeploymentCompleted(correlation="1-2", generation="abc", results=(), failed=(), seconds=1.5)),
        (6.5, m.DeploymentStarted(correlation="1-2", generation="abc", endpoints=("a",))),
        (7, m.DeploymentCompleted(correlation="1-2", generation="abc", results=(), failed=(), seconds=0.5)),
        (7, m.ReconcileCompleted(correlation="1-2", outcome=m.Outcome.DEPLOYED, seconds=7.0)),
    ]
    for at, event in story:
        clock.now = 100.0 + at
        record.observe(event)

    (cycle,) = cycles_of(record.entries())

    assert (cycle.seen, cycle.triggered, cycle.started) == (99, 100, 101)
    assert (cycle.ended, cycle.outcome) == (107, "deployed")
    assert (cycle.render, cycle.parse, cycle.check, cycle.deploy_seconds) == (0.2, 0.1, 0.3, 2)
    assert (cycle.changes, cycle.rendered, cycle.reused) == (3, 1, 9)


def test_instance_keeps_its_last_reload_and_the_objects_that_caused_it() -> None:
    record = recorder(clock := Clock())
    web, more = ResourceRef("Ingress", "default", "web"), ResourceRef("Service", "default", "more")

    def trigger(correlation: str, *objects: ResourceRef) -> None:
        record.observe(
            m.ReconcileTriggered(correlation=correlation, reason=m.Reason.CHANGED, changes=1, objects=objects)
        )

    def deploy(correlation: str, *reasons: str) -> None:
        result = SyncResult(endpoint="local-1", changed=True, reloaded=bool(reasons), reasons=reasons)
        record.observe(m.InstanceDeployed(correlation=correlation, result=result))

    trigger("1-1", ResourceRef("Ingress", "default", "first"))
    record.observe(m.ReconcileStarted(correlation="1-1", reason=m.Reason.CHANGED, changes=1))
    # Both wait while the first cycle runs: one cycle covers them.
    trigger("1-2", web)
    trigger("1-3", more)
    record.observe(m.ReconcileStarted(correlation="1-3", reason=m.Reason.CHANGED, changes=1))
    trigger("1-4", ResourceRef("Ingress", "default", "later"))
    deploy("1-3", "frontend https added")
    clock.now += 5
    deploy("1-4")
    record.observe(m.InstanceFailed(correlation="1-5", endpoint="local-1", error="unreachable", seconds=1.0))

    instance = record.instances["local-1"]
    assert (instance.reloads, instance.reloaded) == (1, False)
    assert instance.last_reload == ReloadView(
        at=100.0,
        correlation="1-3",
        reasons=("frontend https added",),
        objects=("Ingress default/web", "Service default/more"),
    )


def test_reported_problems_go_when_they_are_solved() -> None:
    record = recorder()
    record.observe(m.ProblemsReported(source="x", problems=(Problem(message="broken"),)))
    assert record.problems == {"x": ("broken",)}

    record.observe(m.ProblemsReported(source="x", problems=()))

    assert record.problems == {}


def test_cycle_has_what_it_changed_in_haproxy_and_the_time_until_traffic() -> None:
    record = recorder(clock := Clock())

    def trigger(correlation: str, at: float) -> None:
        clock.now = at
        record.observe(m.ReconcileTriggered(correlation=correlation, reason=m.Reason.CHANGED, changes=1, seen=at - 0.5))

    def deploy(correlation: str, at: float, *results: SyncResult) -> None:
        clock.now = at
        for result in results:
            record.observe(m.InstanceDeployed(correlation=correlation, result=result))
        record.observe(
            m.DeploymentCompleted(correlation=correlation, generation="g", results=results, failed=(), seconds=0.1)
        )

    def result(endpoint: str, changes: dict[str, int], *reasons: str, held: tuple[str, ...] = ()) -> SyncResult:
        return SyncResult(
            endpoint=endpoint, changed=True, reloaded=bool(reasons), reasons=reasons, held=held, changes=changes
        )

    trigger("1-1", 10.0)
    deploy("1-1", 11.0, result("a", {"server added": 2}), result("b", {"server added": 1}))
    # A change that waits for a reload, one that is never deployed by itself, and the reload.
    trigger("1-2", 20.0)
    deploy("1-2", 21.0, result("a", {}, held=("backend x added",)), result("b", {}, held=("backend x added",)))
    waiting = cycles_of(record.entries())[1]
    trigger("1-3", 22.0)
    trigger("1-4", 23.0)
    deploy("1-4", 26.0, result("a", {}, "backend x added"), result("b", {"map entry added": 1}, "backend x added"))

    first, second, third, fourth = cycles_of(record.entries())

    assert (first.operations, first.reloaded, first.traffic, first.served_by) == ({"server added": 2}, 0, 1.5, "")
    assert (waiting.held, waiting.traffic) == (("backend x added",), None)
    assert (second.held, second.reloaded, second.traffic, second.served_by) == ((), 0, 6.5, "1-4")
    assert (third.traffic, third.served_by) == (4.5, "1-4")
    assert (fourth.operations, fourth.reloaded, fourth.reasons) == ({"map entry added": 1}, 2, ("backend x added",))
    assert (fourth.traffic, fourth.served_by) == (3.5, "")


def test_failed_deployment_brings_no_traffic() -> None:
    record = recorder(Clock())
    record.observe(m.ReconcileTriggered(correlation="1-1", reason=m.Reason.CHANGED, changes=1, seen=99.0))
    record.observe(m.DeploymentCompleted(correlation="1-1", generation="g", results=(), failed=("a",), seconds=0.1))

    assert cycles_of(record.entries())[0].traffic is None
