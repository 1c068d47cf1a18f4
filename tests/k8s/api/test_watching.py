"""A watch continues after each failure, with growing delays and without a gap in its events; on a virtual clock."""

from itertools import pairwise

import httpx
import msgspec
import pytest
import trio
from trio.testing import MockClock

from haptic_trio.k8s.client import Listed, Selection, Upserted
from tests.k8s.api.api_cluster import Reports
from tests.k8s.api.scripted_server import EMPTY, ScriptedServer, answer, is_watch, line, status, stream, watching
from tests.k8s.objects import SERVICES, service


def delays(times: list[float]) -> list[float]:
    return [later - earlier for earlier, later in pairwise(times)]


async def test_expiry_of_each_watch_is_answered_by_lists_at_growing_distance(autojump_clock: MockClock) -> None:
    expired = line("ERROR", {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old"})

    def respond(request: httpx.Request) -> httpx.Response:
        return stream(expired, seconds=0) if is_watch(request) else answer(EMPTY)

    server = ScriptedServer(respond)
    async with watching(server, Reports()) as seen:
        await trio.sleep(120)

    lists = delays(server.times("limit=500"))
    assert 0.1 <= lists[0] <= 0.2
    assert all(7.5 <= delay <= 15 for delay in lists[8:])
    assert len(lists) < 25
    assert all(event == Listed(()) for event in seen)


class Outage:
    """A server that is away from second *began* on, and restarts: it knows no version from before."""

    def __init__(self, *, began: float, until: float) -> None:
        self.began = began
        self.until = until
        self.version = "10"

    def __call__(self, request: httpx.Request) -> httpx.Response:
        now = trio.current_time()
        if self.began <= now < self.until:
            raise httpx.ConnectError("connection refused")
        if now >= self.until:
            self.version = "20"
        if request.url.path == "/readyz":
            return httpx.Response(200, text="ok")
        if not is_watch(request):
            return answer({"metadata": {"resourceVersion": self.version}, "items": []})
        if request.url.params["resourceVersion"] != self.version:
            expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
            return stream(line("ERROR", expired), seconds=0)
        return stream(seconds=self.began - now if now < self.began else 1000)


@pytest.mark.parametrize("until", [25.0, 33.0, 47.0, 80.0, 320.0])
async def test_list_after_an_outage_comes_within_two_seconds(autojump_clock: MockClock, until: float) -> None:
    server = ScriptedServer(Outage(began=20.0, until=until))
    async with watching(server, Reports()) as seen:
        await trio.sleep(until + 30)

    first, again = server.times("limit=500")
    assert first == 0
    assert until <= again <= until + 2
    assert seen == [Listed(()), Listed(())]
    # The new list is watched at once, too.
    assert next(at for at in server.times("watch=true") if at >= again) == again


async def test_server_that_forbids_everything_while_it_starts_is_listed_when_it_is_ready(
    autojump_clock: MockClock,
) -> None:
    away = Outage(began=20.0, until=80.0)
    ready = 110.0
    probes: list[float] = []

    def respond(request: httpx.Request) -> httpx.Response:
        response = away(request)
        if trio.current_time() < away.until or trio.current_time() >= ready:
            return response
        if request.url.path != "/readyz":
            return status(403, "Forbidden")
        probes.append(trio.current_time())
        # The first request to succeed is not the sign that all do.
        return response if len(probes) == 1 else status(500, "InternalError")

    server = ScriptedServer(respond)
    async with watching(server, Reports()):
        await trio.sleep(120)

    assert ready <= server.times("limit=500")[-1] <= ready + 2


async def test_cut_soon_after_an_outage_does_not_count_its_failures(autojump_clock: MockClock) -> None:
    away = Outage(began=20.0, until=80.0)
    cut_at: list[float] = []

    def respond(request: httpx.Request) -> httpx.Response:
        response = away(request)
        if is_watch(request) and away.version == "20" and len(cut_at) < 2 and server.times("limit=500")[-1] >= 80:
            cut_at.append(trio.current_time())
            raise httpx.ReadError("connection reset")
        return response

    server = ScriptedServer(respond)
    async with watching(server, Reports()):
        await trio.sleep(200)

    first, second = cut_at
    opened = next(at for at in server.times("watch=true") if at > second)
    assert second - first <= 0.2
    assert opened - second <= 0.4


async def test_throttled_server_is_asked_again_when_it_said_whatever_failed_before(autojump_clock: MockClock) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        now = trio.current_time()
        if now < 60 and request.url.path != "/readyz":
            return status(500, "InternalError")
        if now < 90:
            return status(429, "TooManyRequests", retry_after="1")
        return stream(seconds=1000) if is_watch(request) else answer(EMPTY)

    server = ScriptedServer(respond)
    async with watching(server, Reports()) as seen:
        await trio.sleep(92)

        assert seen == [Listed(())]
    throttled = [at for at in server.times("limit=500") if at >= 76]
    assert max(delays(throttled)) == 1


async def test_forbidden_list_is_requested_with_growing_delays_and_never_reported_as_empty(
    autojump_clock: MockClock,
) -> None:
    server = ScriptedServer(lambda _request: status(403, "Forbidden"))
    reports = Reports()
    async with watching(server, reports) as seen:
        await trio.sleep(600)
        assert "told 403" in reports.messages

    assert seen == []
    assert 40 < len(server.times("limit=500")) < 100
    # Reported once, and resolved when no watch is left.
    assert reports.reported == 2


async def test_retry_after_is_kept(autojump_clock: MockClock) -> None:
    rejections = [status(429, "TooManyRequests", retry_after="7")] * 2

    def respond(request: httpx.Request) -> httpx.Response:
        if is_watch(request):
            return stream(seconds=1000)
        return rejections.pop() if rejections else answer(EMPTY)

    server = ScriptedServer(respond)
    async with watching(server, Reports()) as seen:
        await trio.sleep(30)

    assert delays(server.times("limit=500")) == [7, 7]
    assert seen == [Listed(())]


async def test_throttled_watch_waits_as_long_as_the_server_demands(autojump_clock: MockClock) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        return status(429, "TooManyRequests", retry_after="20") if is_watch(request) else answer(EMPTY)

    server = ScriptedServer(respond)
    async with watching(server, Reports()):
        await trio.sleep(100)

    assert delays(server.times("watch=true")) == [20, 20, 20, 20]
    assert len(server.times("limit=500")) == 1


async def test_quiet_kind_costs_a_request_in_five_to_ten_minutes(autojump_clock: MockClock) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        if not is_watch(request):
            return answer(EMPTY)
        return stream(seconds=float(request.url.params["timeoutSeconds"]))

    server = ScriptedServer(respond)
    async with watching(server, Reports()) as seen:
        await trio.sleep(3600)

    watches = [request for _at, request in server.requests if is_watch(request)]
    assert 6 <= len(watches) <= 13
    assert len({request.url.params["timeoutSeconds"] for request in watches}) > 2
    # Without other requests, a probe shows at intervals that the server does not hang.
    probes = server.times("/readyz")
    assert len(server.requests) == len(watches) + len(probes) + 2
    assert all(delay >= 15 for delay in delays(probes))
    assert seen == [Listed(())]


class HangingServer:
    """A server with a quiet kind that from second *began* to *until* accepts requests and does not answer."""

    def __init__(self, *, began: float, until: float) -> None:
        self.began = began
        self.until = until

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        if self.began <= trio.current_time() < self.until:
            await trio.sleep_forever()
        if not is_watch(request):
            return answer({"metadata": {"resourceVersion": "10"}, "items": []})
        return stream(seconds=1000)


@pytest.mark.parametrize("began", [1.0, 14.0, 16.0, 29.0, 31.0, 50.0])
async def test_server_that_hangs_is_noticed_within_40_seconds_without_a_list_afterwards(
    autojump_clock: MockClock, began: float
) -> None:
    server, reports = ScriptedServer(HangingServer(began=began, until=began + 100)), Reports()
    async with watching(server, reports) as seen:
        await trio.sleep_until(began - 0.5)
        assert len(server.times("watch=true")) == 1
        await trio.sleep_until(began + 40)
        # The watch is given up, reported, and requested again.
        assert len(server.times("watch=true")) >= 2
        assert "answers no request" in reports.messages
        await trio.sleep_until(began + 135)
        assert began + 100 <= server.times("watch=true")[-1]
        assert not reports.messages

    assert len(server.times("limit=500")) == 1
    assert seen == [Listed(())]


async def test_failing_probes_do_not_end_a_watch_of_a_server_that_answers(autojump_clock: MockClock) -> None:
    def respond(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/readyz":
            return status(500, "InternalError")
        return stream(seconds=1000) if is_watch(request) else answer(EMPTY)

    server = ScriptedServer(respond)
    async with watching(server, Reports()):
        await trio.sleep(85)

    assert len(server.times("watch=true")) == 1


async def test_watches_that_end_at_once_are_slowed_down(autojump_clock: MockClock) -> None:
    server = ScriptedServer(lambda request: stream(seconds=0) if is_watch(request) else answer(EMPTY))
    async with watching(server, Reports()):
        await trio.sleep(120)

    assert len(server.times("watch=true")) < 25


async def test_absent_kind_is_empty_and_looked_for_each_half_minute(autojump_clock: MockClock) -> None:
    server = ScriptedServer(lambda _request: status(404, "NotFound"))
    widgets = Selection(type=msgspec.structs.replace(SERVICES, plural="widgets"))
    reports = Reports()
    async with server.connected(reports) as cluster, cluster.watch(widgets) as events:
        with trio.fail_after(1):
            assert await anext(events) == Listed(())
        await trio.sleep(600)
        assert "widgets.v1" in reports.messages

    assert 20 <= len(server.requests) <= 45


@pytest.mark.parametrize("cut", [1, 40, -1])
async def test_event_that_was_cut_off_is_written_once_and_completely(autojump_clock: MockClock, cut: int) -> None:
    first, second = service("a", version="11"), service("b", version="12")
    whole = line("ADDED", first) + line("ADDED", second)
    watches: list[str] = []

    def respond(request: httpx.Request) -> httpx.Response:
        if not is_watch(request):
            return answer(EMPTY)
        watches.append(request.url.params["resourceVersion"])
        if len(watches) == 1:
            return stream(whole[: len(line("ADDED", first)) + cut], seconds=0)
        return stream(whole if watches[-1] == "10" else line("ADDED", second), seconds=1000)

    server = ScriptedServer(respond)
    async with watching(server, Reports()) as seen:
        await trio.sleep(10)

    assert watches == ["10", "11" if cut > 0 else "10"]
    assert seen == [Listed(()), Upserted(first), Upserted(second)]


@pytest.mark.parametrize("size", [1, 7, 100])
async def test_events_are_the_same_however_they_are_cut_into_chunks(autojump_clock: MockClock, size: int) -> None:
    objects = [service(f"s{number}", version=str(11 + number), note="ü€") for number in range(20)]
    whole = b"".join(line("ADDED", each) for each in objects)
    chunks = [whole[start : start + size] for start in range(0, len(whole), size)]

    def respond(request: httpx.Request) -> httpx.Response:
        return stream(*chunks, seconds=1000) if is_watch(request) else answer(EMPTY)

    async with watching(ScriptedServer(respond), Reports()) as seen:
        await trio.sleep(10)

    assert seen == [Listed(()), *(Upserted(each) for each in objects)]


async def test_changes_while_a_list_is_streamed_are_part_of_it(autojump_clock: MockClock) -> None:
    end = {"metadata": {"resourceVersion": "9", "annotations": {"k8s.io/initial-events-end": "true"}}}
    events = [
        ("ADDED", service("gone", version="3")),
        ("ADDED", service("kept", version="4")),
        ("MODIFIED", service("kept", version="7", spec={"type": "ExternalName"})),
        ("DELETED", service("gone", version="8")),
        ("BOOKMARK", end),
    ]
    chunks = b"".join(line(*event) for event in events)
    server = ScriptedServer(lambda _request: stream(chunks, seconds=1000))
    async with watching(server, Reports(), stream_lists=True) as seen:
        await trio.sleep(10)
    assert seen == [Listed((service("kept", version="7", spec={"type": "ExternalName"}),))]


async def test_a_kind_that_is_forbidden_does_not_end_streaming_for_all(autojump_clock: MockClock) -> None:
    server = ScriptedServer(lambda _request: status(403, "Forbidden"))
    async with watching(server, Reports(), stream_lists=True):
        await trio.sleep(60)
    assert len(server.times("limit=500")) == len(server.times("sendInitialEvents")) > 3
