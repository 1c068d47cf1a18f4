"""The log: every event is logged or omitted on purpose, with the correlation of its cycle."""

import io
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import msgspec
import pytest
import structlog
import trio
from prometheus_client import CollectorRegistry
from structlog.testing import CapturingLogger
from trio.testing import wait_all_tasks_blocked

from haptic_trio import messages as m
from haptic_trio.channels import EventBuffer
from haptic_trio.commentator import LOG_LINES, run_commentator
from haptic_trio.config.credentials import Credentials
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.model import Config
from haptic_trio.dataplane.endpoint import SyncResult
from haptic_trio.haproxy.plan.plan import UNKNOWN_GENERATION
from haptic_trio.logs import configure_logs, get_logger
from haptic_trio.metrics import Metrics
from tests.support.messages import PROBLEM, REF, example_of, message_types

SILENT = {
    # One line for each changed object would be noise; the consequences of the changes are logged.
    m.ResourceChanged,
}


def name_of(kind: object) -> str:
    """Return the name of a type of message."""
    return str(getattr(kind, "__name__", kind))


class Narration:
    """A commentator at work, what it logs, and what it shows."""

    def __init__(self) -> None:
        self.events = EventBuffer(size=50)
        self.metrics = Metrics(CollectorRegistry())
        self.log = CapturingLogger()
        self.observed: list[msgspec.Struct] = []

    async def start(self, nursery: trio.Nursery) -> None:
        log: Any = self.log
        await nursery.start(
            partial(run_commentator, self.events, log=log, metrics=self.metrics, observe=self.observed.append)
        )

    async def report(self, *events: msgspec.Struct) -> list[tuple[str, str, dict[str, Any]]]:
        """Record *events* and return the lines that follow: level, message, key-values."""
        self.log.calls.clear()
        for event in events:
            self.events.record(event)
        await wait_all_tasks_blocked()
        return [(call.method_name, call.args[0], call.kwargs) for call in self.log.calls]


@pytest.fixture
async def narration(nursery: trio.Nursery) -> AsyncIterator[Narration]:
    narration = Narration()
    await narration.start(nursery)
    yield narration
    nursery.cancel_scope.cancel()


def test_every_message_has_a_story_or_is_silent_on_purpose() -> None:
    assert set(message_types()) == set(LOG_LINES) | SILENT
    assert not set(LOG_LINES) & SILENT


def test_stages_of_the_start_and_missing_endpoints_are_no_news() -> None:
    started = m.StageReached(name="reconcile", stage=5, iteration=1, seconds=1.0)

    assert LOG_LINES[m.StageReached](started)[0] == "debug"
    assert LOG_LINES[m.StageReached](msgspec.structs.replace(started, iteration=2))[0] == "info"
    assert LOG_LINES[m.EndpointsDiscovered](m.EndpointsDiscovered(endpoints=()))[0] == "debug"


def test_each_object_is_counted_once() -> None:
    counts = {"ingresses": 1, "ingressesByHost": 1, "services": 2, "gateways": 3, "gatewayClasses": 1}

    _, _, values = LOG_LINES[m.IndexSynchronized](m.IndexSynchronized(counts=counts))

    assert values["objects"] == {"ingresses": 1, "services": 2, "gateways": 3, "gatewayClasses": 1}


@pytest.mark.parametrize("kind", sorted(LOG_LINES, key=name_of), ids=name_of)
async def test_story_is_one_line_with_plain_values_and_the_correlation_of_its_cycle(
    narration: Narration, kind: type[msgspec.Struct]
) -> None:
    event = example_of(kind)

    [(level, message, values)] = await narration.report(event)

    assert level in {"debug", "info", "warning", "error"}
    assert message == message.lower()
    assert json.loads(json.dumps(values)) == values
    assert values.get("correlation") == getattr(event, "correlation", None)
    assert narration.observed == [event]


@pytest.mark.parametrize("kind", sorted(SILENT, key=name_of), ids=name_of)
async def test_silent_event_is_shown_to_observers_all_the_same(
    narration: Narration, kind: type[msgspec.Struct]
) -> None:
    assert await narration.report(example_of(kind)) == []
    assert narration.observed == [example_of(kind)]


async def test_lost_events_are_reported_with_their_number(nursery: trio.Nursery) -> None:
    narration = Narration()
    for _ in range(53):
        narration.events.record(example_of(m.EndpointLost))

    await narration.start(nursery)
    await wait_all_tasks_blocked()

    lines = [(call.args[0], call.kwargs) for call in narration.log.calls]
    assert [line for line in lines if line[0] == "events lost"] == [("events lost", {"count": 3})]
    assert len(narration.observed) == 50
    assert narration.metrics.registry.get_sample_value("haptic_events_lost_total") == 3
    nursery.cancel_scope.cancel()


async def test_rejection_is_an_error_that_names_every_place(narration: Narration) -> None:
    other = msgspec.structs.replace(PROBLEM, line=9, subject="Ingress default/web", hint="quote it")
    event = msgspec.structs.replace(example_of(m.ValidationFailed), problems=(PROBLEM, other))

    [(level, _message, values)] = await narration.report(event)

    assert level == "error"
    assert values["problems"] == [
        "haproxy.cfg:3: broken", "haproxy.cfg:9: broken [Ingress default/web] (quote it)",
    ]  # fmt: skip


async def test_quarantine_names_what_is_served(narration: Narration) -> None:
    event = example_of(m.Quarantined)

    lines = await narration.report(event, msgspec.structs.replace(event, has_fallback=False))

    assert [values["serving"] for _level, _message, values in lines] == ["its last good version", "nothing"]
    assert {values["object"] for _level, _message, values in lines} == {str(REF)}


async def test_drift_that_was_repaired_is_a_warning_with_its_kinds(narration: Narration) -> None:
    [(level, message, values)] = await narration.report(example_of(m.DriftRepaired))

    assert (level, message) == ("warning", "drift repaired")
    assert values["found"] == {"server": 2, "map": 1}


@pytest.mark.parametrize(
    ("result", "level", "message", "reported"),
    [
        (SyncResult(endpoint="e", changed=False, reloaded=False), "debug", "instance up to date", {}),
        (
            SyncResult(endpoint="e", changed=True, reloaded=False, operations=3),
            "info",
            "instance updated without reload",
            {"operations": 3},
        ),
        (
            SyncResult(endpoint="e", changed=True, reloaded=True, reasons=("backend web added",)),
            "info",
            "instance reloaded",
            {"reasons": ["backend web added"]},
        ),
        (
            SyncResult(endpoint="e", changed=True, reloaded=True, reasons=("backend web added",), operations=2),
            "info",
            "instance reloaded",
            {"reasons": ["backend web added"], "operations": 2},
        ),
        (
            SyncResult(endpoint="e", changed=True, reloaded=False, held=("backend web added",), operations=2),
            "info",
            "instance updated without reload",
            {"operations": 2, "held": ["backend web added"]},
        ),
        (
            SyncResult(endpoint="e", changed=True, reloaded=False, is_partial=True, operations=250),
            "info",
            "instance updated without reload",
            {"operations": 250, "partial": True},
        ),
        (
            SyncResult(endpoint="e", changed=True, reloaded=True, reasons=(UNKNOWN_GENERATION,)),
            "info",
            "instance configured",
            {"reasons": [UNKNOWN_GENERATION]},
        ),
    ],
)
async def test_deployment_to_an_instance_has_reload_and_reasons(
    narration: Narration, result: SyncResult, level: str, message: str, reported: dict[str, Any]
) -> None:
    lines = await narration.report(m.InstanceDeployed(correlation="1-1", result=result))

    assert lines == [(level, message, {"correlation": "1-1", "endpoint": "e", "ms": 0.0, **reported})]


async def test_deployment_that_failed_somewhere_is_a_warning(narration: Narration) -> None:
    event = example_of(m.DeploymentCompleted)

    lines = await narration.report(event, msgspec.structs.replace(event, failed=("local-2",)))

    assert [(level, values["failed"]) for level, _message, values in lines] == [("debug", []), ("warning", ["local-2"])]


async def test_resolved_problems_are_logged_as_info(narration: Narration) -> None:
    event = example_of(m.ProblemsReported)

    lines = await narration.report(event, msgspec.structs.replace(event, problems=()))

    assert [(level, message) for level, message, _values in lines] == [
        ("warning", "problems reported"), ("info", "problems resolved"),
    ]  # fmt: skip


async def test_warnings_of_a_valid_configuration_are_logged_up_to_a_limit(narration: Narration) -> None:
    event = msgspec.structs.replace(example_of(m.ConfigValidated), warnings=(PROBLEM,) * 40)

    [(level, _message, values)] = await narration.report(event)

    assert level == "info"
    assert len(values["warnings"]) == 5


async def test_cycles_that_change_nothing_are_logged_at_debug(narration: Narration) -> None:
    """Such as the drift checks of each minute."""
    completed = example_of(m.ReconcileCompleted)
    lines = await narration.report(
        example_of(m.DriftSuspected),
        msgspec.structs.replace(example_of(m.ConfigValidated), warnings=()),
        *(msgspec.structs.replace(completed, outcome=outcome) for outcome in m.Outcome),
    )

    assert [(level, message, values.get("outcome")) for level, message, values in lines] == [
        ("debug", "drift suspected", None),
        ("debug", "configuration validated", None),
        ("info", "reconciliation completed", "deployed"),
        ("info", "reconciliation completed", "validated"),
        ("debug", "reconciliation completed", "unchanged"),
        ("info", "reconciliation completed", "incomplete"),
        ("info", "reconciliation completed", "superseded"),
    ]


async def test_changed_credentials_are_logged_by_version_only(narration: Narration) -> None:
    credentials = Credentials(dataplane_username="admin", dataplane_password="hunter2")
    loaded = LoadedConfig(config=Config(), version="1/2", credentials=credentials, config_map_source="x")

    lines = await narration.report(m.ConfigChanged(loaded=loaded))

    assert lines == [("info", "configuration changed", {"version": "1/2"})]


async def test_commentator_ends_with_its_events_and_reads_no_more_when_cancelled() -> None:
    narration = Narration()
    async with trio.open_nursery() as nursery:
        await narration.start(nursery)
        nursery.cancel_scope.cancel()

    narration.events.record(example_of(m.EndpointLost))

    assert narration.events.take_lost() == 0
    assert narration.log.calls == []


async def test_lines_of_a_cycle_can_be_found_by_their_correlation(nursery: trio.Nursery) -> None:
    stream = io.StringIO()
    configure_logs("json", "debug", stream=stream)
    events = EventBuffer()
    try:
        await nursery.start(
            partial(run_commentator, events, log=get_logger("haptic-trio"), metrics=Metrics(CollectorRegistry()))
        )
        for kind in LOG_LINES:
            events.record(example_of(kind))
        await wait_all_tasks_blocked()
    finally:
        structlog.reset_defaults()
    nursery.cancel_scope.cancel()

    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    of_cycle = [line["event"] for line in lines if line.get("correlation") == "1-1"]
    assert len(lines) == len(LOG_LINES)
    assert of_cycle[0] == "reconciliation triggered"
    assert {"configuration validated", "deployment completed", "reconciliation completed"} <= set(of_cycle)


async def test_same_failure_of_an_instance_is_an_error_once_until_it_is_deployed(narration: Narration) -> None:
    failed = msgspec.structs.replace(example_of(m.InstanceFailed), endpoint="local-1")
    other = msgspec.structs.replace(failed, endpoint="local-2")
    deployed = msgspec.structs.replace(
        example_of(m.InstanceDeployed), result=SyncResult(endpoint="local-1", changed=True, reloaded=True)
    )

    lines = await narration.report(failed, failed, other, deployed, failed)

    levels = [level for level, message, _ in lines if message == "instance failed"]
    assert levels == ["error", "debug", "error", "error"]


async def test_version_without_a_secret_is_that_of_the_config_map(narration: Narration) -> None:
    invalid = msgspec.structs.replace(example_of(m.ConfigInvalid), version="7/")
    absent = msgspec.structs.replace(invalid, version="/")

    first, second = await narration.report(invalid, absent)

    assert first[2]["version"] == "7"
    assert "version" not in second[2]
