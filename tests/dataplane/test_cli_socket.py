"""Exchanges with HAProxy's sockets, against a small server in its place."""

from collections.abc import Callable
from pathlib import Path

import pytest
import trio
import trio.testing

from haptic_trio.dataplane.cli_socket import connect, exchange
from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError, PatchRejectedError
from haptic_trio.dataplane.local import master, runtime
from haptic_trio.dataplane.local.master import MasterClient
from haptic_trio.dataplane.local.runtime import RuntimeClient
from haptic_trio.haproxy.plan.commands import count_replies
from haptic_trio.haproxy.plan.operations import SetServerWeight

WEIGHT = SetServerWeight("app", "one", 5)


async def serve_answers(
    path: Path, answer: Callable[[str], str], *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
) -> None:
    """Answer each connection's whole request."""
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(str(path))
    listening.listen()

    async def serve(stream: trio.SocketStream) -> None:
        async with stream:
            request = b"".join([chunk async for chunk in stream])
            await stream.send_all(answer(request.decode()).encode())

    task_status.started()
    await trio.serve_listeners(serve, [trio.SocketListener(listening)])


async def test_an_exchange_ends_our_side_and_returns_the_whole_answer(tmp_path: Path, nursery: trio.Nursery) -> None:
    path = tmp_path / "s"
    await nursery.start(serve_answers, path, lambda request: request * 50_000)
    assert await exchange(path, "show x\n", endpoint="local-1", limit=5) == "show x\n" * 50_000


async def test_missing_socket_is_unreachable(tmp_path: Path) -> None:
    with pytest.raises(EndpointUnreachableError, match="local-1"):
        await exchange(tmp_path / "nosuch", "x\n", endpoint="local-1", limit=5)


async def test_no_answer_is_a_timeout(tmp_path: Path) -> None:
    with trio.socket.socket(trio.socket.AF_UNIX) as silent:
        await silent.bind(str(tmp_path / "s"))
        silent.listen()
        with pytest.raises(EndpointTimeoutError, match="local-1"):
            await exchange(tmp_path / "s", "x\n", endpoint="local-1", limit=0.05)


@pytest.mark.parametrize("between", ["\n", "\n> "], ids=["3.2", "2.8"])
async def test_connection_gives_one_answer_to_each_request(tmp_path: Path, nursery: trio.Nursery, between: str) -> None:
    listening = trio.socket.socket(trio.socket.AF_UNIX)
    await listening.bind(str(tmp_path / "s"))
    listening.listen()

    async def serve(stream: trio.SocketStream) -> None:
        answers = iter([["\n> "], [f"one\n{between}", "two\n", "\n> "], ["three"]])
        async with stream:
            async for _request in stream:
                for part in next(answers):
                    await stream.send_all(part.encode())
                    await trio.testing.wait_all_tasks_blocked()
                if part == "three":
                    return

    nursery.start_soon(trio.serve_listeners, serve, [trio.SocketListener(listening)])
    async with connect(tmp_path / "s", endpoint="local-1", limit=5) as connection:
        answer = await connection.ask("show a;show b\n", lambda answer: count_replies(answer) >= 2)
        assert answer == "one\n\ntwo\n\n"
        with pytest.raises(EndpointUnreachableError, match="closed before the complete answer"):
            await connection.ask("show c\n", bool)


async def test_commands_to_a_former_worker_are_repeated_to_the_right_one(tmp_path: Path, nursery: trio.Nursery) -> None:
    pids = iter([7, 7, 8])
    asked: list[str] = []

    def answer(request: str) -> str:
        asked.append(request)
        return f"Pid: {next(pids)}\n\n\n"

    await nursery.start(serve_answers, tmp_path / "s", answer)
    await RuntimeClient(tmp_path / "s", endpoint="local-1").apply([WEIGHT], worker=8)
    assert asked == ["show info;set server app/one weight 5\n"] * 3


async def test_a_worker_that_is_never_met_is_a_timeout(
    tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "ANSWER_LIMIT", 0.1)
    await nursery.start(serve_answers, tmp_path / "s", lambda _: "Pid: 7\n\n\n")
    with pytest.raises(EndpointTimeoutError):
        await RuntimeClient(tmp_path / "s", endpoint="local-1").apply([WEIGHT], worker=8)


async def test_an_answer_that_breaks_off_is_not_success(tmp_path: Path, nursery: trio.Nursery) -> None:
    await nursery.start(serve_answers, tmp_path / "s", lambda _: "Pid: 8\n\n")
    with pytest.raises(EndpointUnreachableError):
        await RuntimeClient(tmp_path / "s", endpoint="local-1").apply([WEIGHT], worker=8)


async def test_rejection_has_the_message_of_haproxy(tmp_path: Path, nursery: trio.Nursery) -> None:
    await nursery.start(serve_answers, tmp_path / "s", lambda _: "Pid: 8\n\nNo such server.\n\n")
    with pytest.raises(PatchRejectedError, match="No such server"):
        await RuntimeClient(tmp_path / "s", endpoint="local-1").apply([WEIGHT], worker=8)


@pytest.mark.parametrize(("worker", "loaded"), [(9, True), (8, False)])
async def test_master_without_an_answer_to_a_reload_is_polled(
    tmp_path: Path, nursery: trio.Nursery, worker: int, loaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(master, "POLL_INTERVAL", 0.001)
    looks = iter([(0, 8), (0, 8), (1, worker)])

    def answer(request: str) -> str:
        if request == "reload\n":
            return ""
        reloads, pid = next(looks)
        return f"#<PID>\n5 master {reloads} 0d00h00m01s 2.6.12\n# workers\n{pid} worker 0 0d00h00m01s 2.6.12\n"

    await nursery.start(serve_answers, tmp_path / "s", answer)
    report = await MasterClient(tmp_path / "s", endpoint="local-1").reload(limit=5)
    assert report.loaded is loaded
