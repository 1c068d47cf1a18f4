"""The events of a reconciliation become the spans of one trace."""

from collections.abc import Iterable

import msgspec
import pytest

from haptic_trio import messages as m
from haptic_trio.config.credentials import Credentials
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.telemetry.traces import MOST_OPEN, Attributes, Piece, Traces
from tests.support.components.endpoints import MemoryEndpoint, generation
from tests.support.messages import PROBLEM, example_of, message_types

PHASES = m.Phases(render=0.2, parse=0.1, check=0.3)


class MemorySink:
    """Keeps what it gets, in words."""

    def __init__(self) -> None:
        self.began: dict[str, tuple[float, Attributes]] = {}
        self.ended: dict[str, tuple[float, str, str]] = {}
        self.pieces: list[tuple[str, Piece]] = []

    def begin(self, correlation: str, began: float, attributes: Attributes) -> None:
        self.began[correlation] = began, attributes

    def add(self, correlation: str, piece: Piece) -> None:
        self.pieces.append((correlation, piece))

    def end(self, correlation: str, ended: float, attributes: Attributes, failure: str = "") -> None:
        self.ended[correlation] = ended, str(attributes["haptic.outcome"]), failure

    @property
    def spans(self) -> list[tuple[str, float, float]]:
        """Name, begin and end of each part."""
        return [(one.name, round(one.began, 6), round(one.ended, 6)) for _, one in self.pieces]


@pytest.fixture
def sink() -> MemorySink:
    return MemorySink()


@pytest.fixture
def traces(sink: MemorySink) -> Traces:
    return Traces(sink)


def play(traces: Traces, story: Iterable[tuple[float, msgspec.Struct]]) -> None:
    """Record the events at their times."""
    for now, event in story:
        traces.take(event, now)


def triggered(correlation: str = "1-1", changes: int = 2, seen: float = 9.5) -> m.ReconcileTriggered:
    return m.ReconcileTriggered(correlation=correlation, reason=m.Reason.CHANGED, changes=changes, seen=seen)


STARTED = m.ReconcileStarted(correlation="1-1", reason=m.Reason.CHANGED, changes=2)
RENDERED = m.ConfigRendered(
    correlation="1-1", bytes=100, files=2, seconds=0.2, fragments_rendered=1, fragments_reused=9
)
PREPARED = m.ConfigPrepared(correlation="1-1", reason=m.Reason.CHANGED, generation=generation("a"), phases=PHASES)
VALIDATED = m.ConfigValidated(correlation="1-1", reason=m.Reason.CHANGED, generation=generation("a"), phases=PHASES)
SCHEDULED = m.DeploymentScheduled(
    correlation="1-1",
    generation=generation("a"),
    endpoints=(MemoryEndpoint("a"),),
    why=m.DeploymentReason.PREPARED,
    may_reload=False,
)


def deployed(name: str, **fields: object) -> m.InstanceDeployed:
    result = SyncResult(
        endpoint=name, changed=True, reloaded=False, operations=2, seconds=0.4, observed=0.1, planned=0.15
    )
    return m.InstanceDeployed(correlation="1-1", result=msgspec.structs.replace(result, **fields))


def test_change_is_followed_from_its_watch_to_each_instance(traces: Traces, sink: MemorySink) -> None:
    play(
        traces,
        [
            (10.0, triggered()),
            (10.5, STARTED),
            (10.75, RENDERED),
            (11.0, PREPARED),
            (11.25, SCHEDULED),
            (12.0, deployed("a")),
            (12.5, deployed("b", reloaded=True, reasons=("backend web added",))),
            (13.0, m.ReconcileCompleted(correlation="1-1", outcome=m.Outcome.DEPLOYED, seconds=3.0)),
            # Phase 2 runs beside, and may end last.
            (14.0, VALIDATED),
        ],
    )

    assert sink.began == {
        "1-1": (9.5, {"haptic.correlation": "1-1", "haptic.reason": "resources changed", "haptic.changes": 2})
    }
    assert sink.spans == [
        ("debounce", 9.5, 10.0),
        ("wait", 10.0, 10.5),
        ("render", 10.55, 10.75),
        ("validate", 10.9, 11.0),
        ("schedule", 11.0, 11.25),
        ("deploy", 11.6, 12.0),
        ("deploy", 12.1, 12.5),
        ("check", 13.7, 14.0),
    ]
    assert sink.ended == {"1-1": (13.0, "deployed", "")}
    deploys = [piece for _, piece in sink.pieces if piece.name == "deploy"]
    assert [(one.attributes["haptic.instance"], one.attributes["haptic.kind"]) for one in deploys] == [
        ("a", "runtime"), ("b", "reload"),
    ]  # fmt: skip
    assert [one.attributes.get("haptic.reload.reason") for one in deploys] == [None, "backend added"]
    (plan,) = deploys[0].parts
    assert (plan.name, round(plan.began, 6), round(plan.ended, 6)) == ("plan", 11.7, 11.75)


def test_cycle_that_waits_for_both_phases_has_the_same_parts(traces: Traces, sink: MemorySink) -> None:
    play(traces, [(10.0, triggered()), (10.5, STARTED), (11.0, RENDERED), (12.0, VALIDATED)])

    assert sink.spans[-2:] == [("validate", 11.6, 11.7), ("check", 11.7, 12.0)]


def test_cycle_that_renders_twice_has_two_parts_that_do_not_overlap(traces: Traces, sink: MemorySink) -> None:
    again = msgspec.structs.replace(RENDERED, seconds=0.5)
    play(traces, [(10.0, triggered()), (10.2, RENDERED), (10.6, again)])

    assert sink.spans[1:] == [("render", 10.0, 10.2), ("render", 10.3, 10.6)]


@pytest.mark.parametrize(
    ("phase", "span"),
    [("render", ("render", 10.8, 11.0)), ("parse", ("validate", 10.9, 11.0)), ("check", ("check", 10.7, 11.0))],
)
def test_rejection_ends_the_trace_at_its_phase(
    traces: Traces, sink: MemorySink, phase: str, span: tuple[str, float, float]
) -> None:
    rejection = m.ValidationFailed(correlation="1-1", reason=m.Reason.CHANGED, phase=phase, problems=(PROBLEM,))
    failed = m.ReconcileFailed(correlation="1-1", phase=phase, seconds=1.0, phases=PHASES)
    play(traces, [(10.0, triggered()), (11.0, rejection), (11.0, failed)])

    assert sink.spans[-1] == span
    assert sink.pieces[-1][1].failure == "rejected"
    assert sink.ended == {"1-1": (11.0, "failed", f"rejected in phase {phase}")}


def test_instance_that_fails_is_a_failed_part_without_its_message(traces: Traces, sink: MemorySink) -> None:
    failure = m.InstanceFailed(correlation="1-1", endpoint="a", error="password is hunter2", seconds=0.5)
    play(traces, [(10.0, triggered()), (11.0, failure)])

    (_, piece) = sink.pieces[-1]
    assert (piece.name, piece.began, piece.failure) == ("deploy", 10.5, "deployment to the instance failed")


def test_trigger_without_a_change_was_not_debounced(traces: Traces, sink: MemorySink) -> None:
    play(traces, [(10.0, triggered(changes=0, seen=3.0))])

    assert sink.began["1-1"][0] == 10.0
    assert sink.spans == []


def test_what_is_open_ends_with_the_iteration_or_the_process(traces: Traces, sink: MemorySink) -> None:
    play(traces, [(10.0, triggered("1-1")), (11.0, triggered("1-2")), (12.0, example_of(m.IterationEnded))])
    play(traces, [(13.0, triggered("2-1"))])
    traces.close(14.0)

    assert {name: (at, outcome) for name, (at, outcome, _) in sink.ended.items()} == {
        "1-1": (12.0, "iteration ended"), "1-2": (12.0, "iteration ended"), "2-1": (14.0, "process ended"),
    }  # fmt: skip


def test_number_of_open_traces_is_bounded(traces: Traces, sink: MemorySink) -> None:
    play(traces, [(float(number), triggered(f"1-{number}")) for number in range(MOST_OPEN + 3)])

    assert list(sink.ended) == ["1-0", "1-1", "1-2"]


def test_no_event_of_the_program_fails_and_no_word_of_others_becomes_an_attribute(
    traces: Traces, sink: MemorySink
) -> None:
    secret = "hunter2"
    loaded = msgspec.structs.replace(
        example_of(m.ConfigChanged).loaded,
        credentials=Credentials(dataplane_username="admin", dataplane_password=secret),
    )
    events = [example_of(kind) for kind in message_types()]
    events += [
        m.ConfigChanged(loaded=loaded),
        m.InstanceFailed(correlation="1-1", endpoint="a", error=secret, seconds=0.1),
        deployed("a", reloaded=True, reasons=(f"map a.map changed: key {secret} is there twice",), held=(secret,)),
        msgspec.structs.replace(
            example_of(m.ValidationFailed), problems=(msgspec.structs.replace(PROBLEM, message=secret),)
        ),
    ]
    play(traces, enumerate([triggered(), *events, triggered()]))
    traces.close(100.0)

    assert sink.pieces
    assert secret not in repr((sink.began, sink.ended, sink.pieces))
