"""Traces as a receiver gets them, and what happens when it does not."""

from collections.abc import AsyncIterator

import msgspec
import pytest
import structlog
import trio

from haptic_trio import messages as m
from haptic_trio.telemetry.otlp import exporting
from tests.support.traffic.otlp import Receiver, receiving
from tests.telemetry.test_traces import PREPARED, RENDERED, STARTED, deployed

END = m.ReconcileCompleted(correlation="1-1", outcome=m.Outcome.DEPLOYED, seconds=3.0)


@pytest.fixture(autouse=True)
def quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the environment, and nothing sent before the end unless it is asked for."""
    for name in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with receiving() as receiver:
        yield receiver


def story() -> list[msgspec.Struct]:
    """Return the events of one cycle, now."""
    seen = trio.current_time() - 0.5
    trigger = m.ReconcileTriggered(correlation="1-1", reason=m.Reason.CHANGED, changes=1, seen=seen)
    return [trigger, STARTED, RENDERED, PREPARED, deployed("a"), END]


async def test_trace_arrives_whole_before_the_end(receiver: Receiver) -> None:
    async with exporting(receiver.address, version="1.2", identity="me") as observe:
        for event in story():
            observe(event)

    (root,) = [one for one in receiver.spans if not one.parent]
    assert root.name == "reconciliation"
    assert root.attributes["haptic.outcome"] == "deployed"
    assert {one.trace for one in receiver.spans} == {root.trace}
    by_name = {one.name: one for one in receiver.spans}
    assert by_name.keys() == {"reconciliation", "debounce", "wait", "render", "validate", "deploy", "plan"}
    assert by_name["plan"].parent == by_name["deploy"].id
    assert {one.parent for name, one in by_name.items() if name not in {"plan", "reconciliation"}} == {root.id}
    assert {one.attributes["haptic.correlation"] for one in receiver.spans} == {"1-1"}
    assert 0.5e9 <= by_name["debounce"].ended - by_name["debounce"].began < 1.5e9
    assert receiver.resource.items() >= {"service.name": "haptic-trio", "service.version": "1.2"}.items()
    assert receiver.resource["service.instance.id"] == "me"


async def test_variables_of_the_environment_describe_the_service(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_SERVICE_NAME", "edge")
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment=test,service.version=9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.address)
    async with exporting("", version="1.2", identity="me") as observe:
        for event in story():
            observe(event)

    expected = {"service.name": "edge", "service.version": "9", "deployment.environment": "test"}
    assert receiver.resource.items() >= expected.items()


async def test_end_does_not_wait_for_a_receiver_that_hangs(receiver: Receiver) -> None:
    receiver.hangs = True
    began = trio.current_time()
    with trio.fail_after(5), structlog.testing.capture_logs() as logs:
        async with exporting(receiver.address, version="1", identity="me", flush_limit=0.05) as observe:
            for event in story():
                observe(event)

    assert trio.current_time() - began < 3
    assert [line["event"] for line in logs] == ["traces lost: the receiver did not accept them in time"]


async def test_failed_export_is_logged_once(receiver: Receiver) -> None:
    receiver.rejects = True
    with structlog.testing.capture_logs() as logs:
        async with exporting(receiver.address, version="1", identity="me") as observe:
            for event in story():
                observe(event)

    assert [(line["event"], line["component"]) for line in logs] == [("traces cannot be sent", "tracing")]


async def test_cancellation_from_outside_still_flushes(receiver: Receiver) -> None:
    with trio.CancelScope() as scope:
        async with exporting(receiver.address, version="1", identity="me") as observe:
            for event in story():
                observe(event)
            scope.cancel()
            await trio.lowlevel.checkpoint()

    assert {one.name for one in receiver.spans} >= {"reconciliation", "deploy"}
