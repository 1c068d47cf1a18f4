"""The connection of the terminal UI is opened again, with its subscription, and answers reach their requests."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Any

import pytest
import trio
from trio_websocket import ConnectionClosed, WebSocketConnection, WebSocketRequest, serve_websocket

from haptic_trio.cli.console_client import ConsoleRejectedError, NoConsoleError
from haptic_trio.cli.terminal import session as module
from haptic_trio.cli.terminal.session import Session
from haptic_trio.errors import leaves_of

TOKEN = "t" * 16
Talk = Callable[[WebSocketConnection], Any]


class Receiver:
    """Notes what arrives."""

    def __init__(self) -> None:
        self.into, self.messages = trio.open_memory_channel[tuple[str, Any]](100)

    def welcome(self, message: dict[str, Any]) -> None:
        """Note it."""
        self.into.send_nowait(("welcome", message["version"]))

    def take(self, message: dict[str, Any]) -> None:
        """Note it."""
        self.into.send_nowait(("take", message))

    def lost(self, reason: str) -> None:
        """Note it."""
        self.into.send_nowait(("lost", reason))


@asynccontextmanager
async def console(talk: Talk) -> AsyncIterator[str]:
    """Serve a console that welcomes viewers and leaves the rest to *talk*; yields its URL."""

    async def serve(request: WebSocketRequest) -> None:
        socket = await request.accept()
        assert json.loads(await socket.get_message())["token"] == TOKEN
        await socket.send_message(json.dumps({"kind": "welcome", "version": "9", "now": {"clock": 1, "unix": 2}}))
        with suppress(ConnectionClosed):
            await talk(socket)

    async with trio.open_nursery() as nursery:
        server = await nursery.start(partial(serve_websocket, serve, "127.0.0.1", 0, None))
        yield f"http://127.0.0.1:{server.port}"
        nursery.cancel_scope.cancel()


@pytest.fixture(autouse=True)
def _no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_DELAY", 0.0)
    monkeypatch.setattr(module, "RENDER_DELAY", 0.0)


async def test_it_connects_again_with_the_subscription_after_a_loss() -> None:
    subscriptions = []

    async def talk(socket: WebSocketConnection) -> None:
        subscriptions.append(json.loads(await socket.get_message()))
        await socket.send_message(json.dumps({"kind": "state", "value": len(subscriptions)}))
        if len(subscriptions) == 1:
            await socket.aclose(1012, "restart")
        await socket.get_message()

    receiver = Receiver()
    with trio.fail_after(60):
        async with console(talk) as url, trio.open_nursery() as nursery:
            session = Session(lambda: (url, TOKEN))
            seen = iter((3, 7))
            session.follow(lambda: {"topics": ["state"], "since": next(seen)})
            await nursery.start(session.run, receiver)
            arrived = [await receiver.messages.receive() for _ in range(5)]
            nursery.cancel_scope.cancel()

    assert [kind for kind, _value in arrived] == ["welcome", "take", "lost", "welcome", "take"]
    assert "restart" in arrived[2][1]
    assert [one["since"] for one in subscriptions] == [3, 7]


async def test_answers_reach_their_requests_and_unrendered_ones_are_repeated() -> None:
    async def talk(socket: WebSocketConnection) -> None:
        first, second = [json.loads(await socket.get_message()) for _ in range(2)]
        await socket.send_message(json.dumps({"kind": "answer", "id": second["id"], "value": second["target"]}))
        await socket.send_message(json.dumps({"kind": "state", "value": 1}))
        await socket.send_message(json.dumps({"kind": "rejected", "id": first["id"], "message": "busy; retry soon"}))
        again = json.loads(await socket.get_message())
        await socket.send_message(json.dumps({"kind": "answer", "id": again["id"], "value": again["target"]}))
        wrong = json.loads(await socket.get_message())
        await socket.send_message(json.dumps({"kind": "rejected", "id": wrong["id"], "message": "no such line"}))
        await socket.get_message()

    answers: dict[str, Any] = {}
    with trio.fail_after(60):
        async with console(talk) as url, trio.open_nursery() as nursery:
            session = Session(lambda: (url, TOKEN))
            await nursery.start(session.run, Receiver())

            async def ask(target: str) -> None:
                answers[target] = await session.ask("explain", target=target)

            async with trio.open_nursery() as asking:
                asking.start_soon(ask, "a")
                asking.start_soon(ask, "b")
            with pytest.raises(ConsoleRejectedError, match="no such line"):
                await session.ask("explain", target="c")
            nursery.cancel_scope.cancel()

    assert answers == {"a": "a", "b": "b"}


async def test_a_request_fails_when_the_connection_is_lost() -> None:
    async def talk(socket: WebSocketConnection) -> None:
        await socket.get_message()
        await socket.aclose()

    with trio.fail_after(60):
        async with console(talk) as url, trio.open_nursery() as nursery:
            session = Session(lambda: (url, TOKEN))
            await nursery.start(session.run, Receiver())
            with pytest.raises(ConsoleRejectedError, match="the connection was lost"):
                await session.ask("explain", target="a")
            nursery.cancel_scope.cancel()


async def test_the_first_connection_must_succeed() -> None:
    session = Session(lambda: ("http://127.0.0.1:9", TOKEN))

    with pytest.RaisesGroup(NoConsoleError, flatten_subgroups=True) as caught:
        await session.run(Receiver())

    assert "no console answers at http://127.0.0.1:9" in str(next(leaves_of(caught.value)))
    with pytest.raises(NoConsoleError, match="not connected"):
        await session.ask("state")


async def test_a_silent_console_is_a_lost_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SILENCE_LIMIT", 0.05)
    receiver = Receiver()

    async def talk(socket: WebSocketConnection) -> None:
        await socket.get_message()

    with trio.fail_after(60):
        async with console(talk) as url, trio.open_nursery() as nursery:
            await nursery.start(Session(lambda: (url, TOKEN)).run, receiver)
            await receiver.messages.receive()
            assert await receiver.messages.receive() == ("lost", "no message for 0.05 s")
            nursery.cancel_scope.cancel()
