"""Traces as a receiver gets them, and what happens when it does not."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

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


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HEADERS", "authorization=Bearer%20MARK7f3a9c"),
        ("HEADERS", "Bearer MARK7f3a9c"),
        ("HEADERS", 'authorization="Bearer MARK7f3a9c"'),
        ("HEADERS", "authorization: Bearer MARK7f3a9c"),
        ("TRACES_HEADERS", "authorization=Basic a,MARK7f3a9c"),
        ("TRACES_HEADERS", "authorization=Bearer MARK7f3a9c;x"),
        ("TRACES_ENDPOINT", "http://u:MARK7f3a9c@{host}/v1/traces"),
        ("ENDPOINT", "http://{host}?key=MARK7f3a9c"),
        ("TRACES_ENDPOINT", "http://127.0.0.1:1/v1/traces?key=MARK7f3a9c"),
    ],
)
async def test_no_warning_shows_a_credential(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], variable: str, text: str
) -> None:
    async with open_echo() as host:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://{host}")
        monkeypatch.setenv(f"OTEL_EXPORTER_OTLP_{variable}", text.format(host=host))
        with structlog.testing.capture_logs() as logs:
            async with exporting("", version="1", identity="me", flush_limit=0.5) as observe:
                for event in story():
                    observe(event)

    assert "traces cannot be sent" in {line["event"] for line in logs}
    shown = f"{logs} {capfd.readouterr()}"
    assert "MARK7f3a9c" not in shown
    assert base64.b64encode(b"u:MARK7f3a9c").decode() not in shown


@asynccontextmanager
async def open_echo() -> AsyncIterator[str]:
    """Listen for requests, each of which is repeated in the status line of its answer; yields host and port."""

    async def repeat(stream: trio.SocketStream) -> None:
        head = b""
        while b"\r\n\r\n" not in head:
            head += await stream.receive_some()
        line = b" ".join(head.partition(b"\r\n\r\n")[0].split(b"\r\n"))
        await stream.send_all(b"HTTP/1.1 400 " + line + b"\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await stream.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
        nursery.start_soon(partial(trio.serve_listeners, repeat, listeners))
        yield f"127.0.0.1:{listeners[0].socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()
