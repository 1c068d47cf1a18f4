"""Answers of an API server that make no sense are reported, and never taken for an empty cluster."""

import httpx
import pytest
import trio
from trio.testing import MockClock

from haptic_trio.k8s.client import Listed, Upserted
from tests.k8s.api.api_cluster import Reports
from tests.k8s.api.scripted_server import EMPTY, ScriptedServer, answer, is_watch, line, stream, watching
from tests.k8s.objects import service

DEEP = b'{"metadata":{"resourceVersion":"1"},"items":[],"x":' + b"[" * 50_000
"""Python 3.12 and later decode 10,000 levels. Without an end it is not JSON, whatever is left out of it."""
NO_WATCH = b'<html>\n|{"type":"ADDED"}\n|[]\n|{"type":"ADDED","object":1}\n|{"type":"ADDED","object":{"a":\xff}}\n'


@pytest.mark.parametrize("body", [*NO_WATCH.split(b"|"), b'{"type":"ADDED","object":' + DEEP + b"}\n"], ids=range(6))
async def test_answer_that_is_not_a_watch_is_reported_and_retried(autojump_clock: MockClock, body: bytes) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        return stream(body, seconds=0) if is_watch(request) else answer(EMPTY)

    reports, server = Reports(), ScriptedServer(respond)
    async with watching(server, reports):
        await trio.sleep(10)
        assert "not a stream of events" in reports.messages
    assert len(server.times("watch=true")) > 2


async def test_a_server_that_sends_the_same_event_at_each_request_is_not_asked_in_a_loop(
    autojump_clock: MockClock,
) -> None:
    same = service("a", version="10")

    def respond(request: httpx.Request) -> httpx.Response:
        if not is_watch(request):
            return answer(EMPTY)
        # A loop without a pause would never let the time pass.
        is_many = len(server.times("watch=true")) > 50
        return stream(line("ADDED", same), seconds=1000 if is_many else 0)

    server = ScriptedServer(respond)
    async with watching(server, Reports()) as seen:
        await trio.sleep(10)

    assert len(server.times("watch=true")) < 20
    assert seen[:2] == [Listed(()), Upserted(same)]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"items":[1]}', b"", pytest.param(DEEP, id="deep")])
async def test_answer_that_is_not_a_list_is_never_taken_for_empty(autojump_clock: MockClock, body: bytes) -> None:
    server = ScriptedServer(lambda _request: httpx.Response(200, content=body))
    reports = Reports()
    async with watching(server, reports) as seen:
        await trio.sleep(10)
        assert ("the answer is not a list" in reports.messages, seen) == (True, [])


@pytest.mark.parametrize("text", ["<html>", pytest.param(DEEP.decode(), id="deep")])
async def test_an_answer_about_kinds_that_makes_no_sense_is_reported(autojump_clock: MockClock, text: str) -> None:
    server = ScriptedServer(lambda request: stream(seconds=1000) if is_watch(request) else answer(EMPTY))
    server.discovery = [httpx.Response(200, text=text) for _ in range(3)]
    reports = Reports()
    async with watching(server, reports) as seen:
        await reports.wait(lambda reports: "the answer is not a list of resources" in reports.messages)
        await trio.sleep(10)
        assert seen == [Listed(())]
        assert reports.messages == ""
