"""An HAProxy beside an agent, as an endpoint: real HAProxy, real sockets."""

import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio

from haptic_trio.dataplane.agent.client import AgentAnswerError
from haptic_trio.dataplane.agent.endpoint import MOST_REASONS, OTHER, RemoteAgent
from haptic_trio.dataplane.agent.messages import AgentLimits
from haptic_trio.dataplane.agent.tls import RenewedContext
from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    DriftReport,
    EndpointError,
    EndpointTimeoutError,
    EndpointUnreachableError,
    PatchRejectedError,
)
from haptic_trio.dataplane.local.process import read_record
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from haptic_trio.haproxy.plan.operations import Plan, SetMapEntry
from haptic_trio.haproxy.runtime.replies import parse_servers_state
from tests.support.components.agents import Authority, remote_agent, serving, serving_haproxy, until
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.processes.haproxy import (
    BASE,
    answering,
    backend,
    build_generation,
    fetch,
    forwarding,
    mapping,
    wait_for_body,
)
from tests.support.processes.ports import free_port


@pytest.mark.haproxy
async def test_generations_reach_haproxy_and_one_server_is_a_patch(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with (
        serving_haproxy(instance_root, haproxy_binary) as served,
        served.remote() as remote,
        backend("a") as first,
        backend("b") as second,
    ):
        assert (await sync_endpoint(remote, forwarding(port, first))).reloaded
        assert await fetch(port) == (200, "a")
        result = await sync_endpoint(remote, forwarding(port, second))
        assert (result.endpoint, result.reloaded, result.operations) == ("edge-1", False, 1)
        assert await fetch(port) == (200, "b")
        info = await remote.describe()
        assert (info.name, info.generation, info.reloads) == ("edge-1", forwarding(port, second).id, 0)
        assert await remote.fetch_running() == forwarding(port, second)
        assert not (await sync_endpoint(remote, forwarding(port, second))).changed


@pytest.mark.haproxy
async def test_files_travel_and_are_patched(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with serving_haproxy(instance_root, haproxy_binary) as served, served.remote() as remote:
        await sync_endpoint(remote, mapping(port, {"a.example": "1"}))
        result = await sync_endpoint(remote, mapping(port, {"a.example": "2", "b.example": "3"}))
        assert not result.reloaded
        assert await fetch(port, host="a.example") == (200, "2")
        assert await fetch(port, host="b.example") == (200, "3")


@pytest.mark.haproxy
async def test_what_haproxy_rejects_is_rejected_with_its_words_and_changes_nothing(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    first = answering(port, "one")
    broken = build_generation(first.text + "    errorfile 503 general/missing.http\n")
    async with serving_haproxy(instance_root, haproxy_binary) as served, served.remote() as remote:
        await sync_endpoint(remote, first)
        with pytest.raises(DeploymentRejectedError, match=r"edge-1: haproxy\.cfg:\d+: "):
            await remote.activate(broken)
        assert await fetch(port) == (200, "one")
        assert await remote.fetch_running() == first
        with pytest.raises(PatchRejectedError, match="edge-1: "):
            await remote.patch(answering(port, "two"), Plan((SetMapEntry("maps/none.map", "a", "b"),)))
        assert await fetch(port) == (200, "one")
        assert (await sync_endpoint(remote, answering(port, "two"))).reloaded
        await wait_for_body(port, "two")


@pytest.mark.haproxy
async def test_a_controller_that_has_just_started_fetches_what_runs_and_patches_it(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with serving_haproxy(instance_root, haproxy_binary) as served, backend("b") as second:
        async with served.remote() as remote:
            await sync_endpoint(remote, forwarding(port, 1))
        async with served.remote() as remote:
            assert await remote.fetch_running() == forwarding(port, 1)
            assert not (await sync_endpoint(remote, forwarding(port, second))).reloaded
            assert await fetch(port) == (200, "b")


@pytest.mark.haproxy
async def test_a_patch_that_another_controller_has_overtaken_becomes_a_load(
    instance_root: Path, haproxy_binary: Path
) -> None:
    port = free_port()
    async with (
        serving_haproxy(instance_root, haproxy_binary) as served,
        backend("b") as second,
        served.remote() as one,
        served.remote() as other,
    ):
        await sync_endpoint(one, forwarding(port, 1))
        await sync_endpoint(other, answering(port, "other"))
        with pytest.raises(PatchRejectedError, match="the plan is for generation"):
            await one.patch(forwarding(port, second), Plan())
        await sync_endpoint(one, forwarding(port, second))
        await wait_for_body(port, "b")


@pytest.mark.haproxy
async def test_change_of_the_process_by_another_program_is_repaired(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with serving_haproxy(instance_root, haproxy_binary) as served, served.remote() as remote:
        await sync_endpoint(remote, forwarding(port, 1))
        assert await remote.repair() == DriftReport()
        record = read_record(instance_root / "agent/process.json")
        assert record is not None
        runtime = RuntimeClient(Path(record.sockets) / "admin.sock", endpoint="test")
        await runtime.ask("set server app/one addr 127.0.0.1 port 2\n")
        report = await remote.repair()
        assert report.found
        assert report.operations
        (server,) = parse_servers_state(await runtime.ask("show servers state\n"))
        assert server.port == 1
        assert await remote.repair() == DriftReport()


@pytest.mark.haproxy
async def test_haproxy_that_was_killed_is_reported_running_again(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with serving_haproxy(instance_root, haproxy_binary) as served, served.remote() as remote:
        await sync_endpoint(remote, answering(port, "one"))
        former = (await remote.describe()).pid
        os.kill(former, signal.SIGKILL)
        await wait_for_body(port, "one")

        async def is_another() -> bool:
            return (await remote.describe()).pid not in {0, former}

        await until(is_another)


@pytest.mark.slow
async def test_one_server_of_ten_thousand_costs_some_hundred_bytes(tmp_path: Path) -> None:
    def generation(port: int) -> Generation:
        servers = ((number, port if number == 5000 else 80) for number in range(10_000))
        return build_generation(
            BASE + "".join(f"\nbackend b{number}\n    server one 10.0.0.1:{port}\n" for number, port in servers)
        )

    endpoint = MemoryEndpoint("local")
    async with serving(endpoint, tmp_path) as served, served.remote() as remote:
        await remote.activate(generation(80))
        whole = remote.bytes_sent
        await remote.fetch_running()
        before = remote.bytes_sent
        await remote.patch(generation(81), Plan())
        assert endpoint.running == generation(81)
        assert whole > 500_000
        assert remote.bytes_sent - before < 700


async def test_many_blobs_are_uploaded_in_several_requests_within_the_agents_limit(tmp_path: Path) -> None:
    limits = AgentLimits(upload_bytes=100_000)
    files = [make_file(FileKind.FILE, f"general/{number}", os.urandom(50_000)) for number in range(8)]
    desired = build_generation(answering(1, "one").text, files)
    endpoint = MemoryEndpoint("local")
    async with serving(endpoint, tmp_path, limits=limits) as served, served.remote() as remote:
        await remote.activate(desired)
        assert endpoint.running == desired
    endpoint = MemoryEndpoint("local", running=desired)
    async with serving(endpoint, tmp_path / "again", limits=limits) as served, served.remote() as remote:
        assert await remote.fetch_running() == desired


async def test_an_agent_that_was_restarted_gets_only_what_it_lacks(tmp_path: Path) -> None:
    endpoint = MemoryEndpoint("local")
    one = build_generation(answering(1, "one").text, [make_file(FileKind.FILE, "general/x", os.urandom(200_000))])
    two = build_generation(answering(1, "two").text, one.files.values())
    async with serving(endpoint, tmp_path) as served:
        url, files = served.url, served.authority.issue("controller")
        authority = served.authority
        async with remote_agent(url, files) as remote:
            await remote.activate(one)
            link = remote._link
    # Nothing runs now that it would know: a whole manifest is needed, but no blob that is in the store.
    endpoint.running = None
    async with serving(endpoint, tmp_path, authority=authority) as served, served.remote(files) as remote:
        remote._link.running = link.running
        await remote.activate(two)
        assert endpoint.running == two


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nrubb", AgentAnswerError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", AgentAnswerError),
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\nrubb", AgentAnswerError),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 20005\r\n\r\n{"x":' + b"[" * 20000, AgentAnswerError),
        (b'HTTP/1.1 500 Oops\r\nContent-Length: 20005\r\n\r\n{"x":' + b"[" * 20000, AgentAnswerError),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", AgentAnswerError),
        (b"HTTP/1.1 421 Misdirected\r\nContent-Length: 2\r\n\r\n{}", AgentAnswerError),
        (b"\x00\x01\x02 nonsense\r\n\r\n", EndpointUnreachableError),
        (b"", EndpointUnreachableError),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 400\r\n\r\ncut off", EndpointUnreachableError),
        (
            b'HTTP/1.1 503 Busy\r\nContent-Length: 29\r\n\r\n{"code":"busy","message":"x"}',
            EndpointUnreachableError,
        ),
        (
            b'HTTP/1.1 500 New\r\nContent-Length: 40\r\n\r\n{"code":"from_the_future","message":"x"}',
            AgentAnswerError,
        ),
    ],
)
async def test_a_server_that_answers_rubbish_is_an_endpoint_error(
    tmp_path: Path, answer: bytes, kind: type[EndpointError]
) -> None:
    async with remote_at(tmp_path, answering_with(answer)) as remote:
        for ask in (remote.describe, remote.fetch_running, partial(remote.activate, answering(1, "one"))):
            with pytest.raises(kind):
                await ask()


def json_of(text: str) -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(text)}\r\n\r\n{text}".encode()


@pytest.mark.parametrize(
    "report",
    ['{"operations": -1}', '{"found": {"server": -1}}', f'{{"found": {{"server": 1{"0" * 400}}}}}'],
)
async def test_a_number_that_no_metric_can_count_is_an_endpoint_error(tmp_path: Path, report: str) -> None:
    async with remote_at(tmp_path, answering_with(json_of(report))) as remote:
        with pytest.raises(AgentAnswerError):
            await remote.repair()


async def test_texts_of_a_report_that_become_labels_are_limited(tmp_path: Path) -> None:
    kinds = ", ".join(f'"kind {number}": 2' for number in range(100))
    reasons = ", ".join('" "' for _ in range(1000))
    report = f'{{"found": {{"server": 1, {kinds}}}, "reasons": [{reasons}]}}'
    async with remote_at(tmp_path, answering_with(json_of(report))) as remote:
        found = await remote.repair()
    assert found.found == {"server": 1, OTHER: 200}
    assert found.reasons == (OTHER,) * MOST_REASONS


async def test_an_answer_in_tiny_parts_lets_other_tasks_run(tmp_path: Path) -> None:
    tiny = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * 2000 + b"0\r\n\r\n"
    passes = 0

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await trio.lowlevel.checkpoint()

    async with remote_at(tmp_path, answering_with(tiny)) as remote, trio.open_nursery() as nursery:
        nursery.start_soon(count)
        with pytest.raises(AgentAnswerError):
            await remote.describe()
        nursery.cancel_scope.cancel()
    assert passes > 2000


def answering_with(answer: bytes) -> Callable[[trio.SSLStream[trio.SocketStream]], Awaitable[None]]:
    async def handle(stream: trio.SSLStream[trio.SocketStream]) -> None:
        async with stream:
            await stream.receive_some()
            await stream.send_all(answer)

    return handle


async def test_blobs_that_are_others_than_were_asked_for_are_rejected(tmp_path: Path) -> None:
    class Lying(MemoryEndpoint):
        """Runs something else each time it is asked."""

        async def fetch_running(self) -> Generation | None:
            self.fails += 1
            return answering(1, f"number {self.fails}")

    async with serving(Lying("local"), tmp_path) as served, served.remote() as remote:
        # What is fetched is what the agent said at first, or an error; never a mixture.
        assert await remote.fetch_running() == answering(1, "number 1")


async def test_an_agent_that_does_not_answer_in_time_is_a_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("haptic_trio.dataplane.agent.client.QUERY_LIMIT", 0.1)

    async def sleep(stream: trio.SSLStream[trio.SocketStream]) -> None:
        async with stream:
            await stream.receive_some()
            await trio.sleep_forever()

    async with remote_at(tmp_path, sleep) as remote:
        with pytest.raises(EndpointTimeoutError):
            await remote.describe()


@asynccontextmanager
async def remote_at(
    root: Path, handle: Callable[[trio.SSLStream[trio.SocketStream]], Awaitable[None]]
) -> AsyncIterator[RemoteAgent]:
    """An endpoint whose agent is a server that does what the test says."""
    authority = Authority(root / "tls")
    context = RenewedContext(authority.issue("127.0.0.1"), server=True)
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(
            partial(trio.serve_ssl_over_tcp, handle, 0, context, host="127.0.0.1", https_compatible=True)
        )
        port = listeners[0].transport_listener.socket.getsockname()[1]
        async with remote_agent(f"https://127.0.0.1:{port}", authority.issue("controller")) as remote:
            yield remote
        nursery.cancel_scope.cancel()


@pytest.mark.haproxy
async def test_figures_of_haproxy_are_read_through_the_agent(instance_root: Path, haproxy_binary: Path) -> None:
    port = free_port()
    async with (
        serving_haproxy(instance_root, haproxy_binary) as served,
        served.remote() as remote,
        backend("a") as server,
    ):
        await sync_endpoint(remote, forwarding(port, server))
        assert await fetch(port) == (200, "a")

        figures = await remote.read_figures(["app", "no-such-backend", "x;help"])

        assert figures.process.version.startswith(("2.", "3."))
        (app,) = figures.backends
        assert (app.name, app.up, app.answers) == ("app", 1, 1)
        assert [one.is_up for one in app.servers] == [True]


async def test_agent_without_an_haproxy_of_its_own_has_no_figures(tmp_path: Path) -> None:
    async with serving(MemoryEndpoint("local"), tmp_path) as served, served.remote() as remote:
        with pytest.raises(EndpointError, match="no live figures"):
            await remote.read_figures(["web"])
