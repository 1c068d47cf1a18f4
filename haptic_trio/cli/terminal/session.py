"""Connection to the console that is opened again after a loss, with requests and one subscription."""

import math
from collections.abc import Callable
from typing import Any, Protocol

import trio

from haptic_trio.cli.console_client import ConsoleClient, ConsoleRejectedError, NoConsoleError, open_console
from haptic_trio.errors import leaves_of

RETRY_DELAY = 1.0
SILENCE_LIMIT = 30.0
"""Seconds without a message after which the connection is lost; the console sends one every 10 seconds."""
ANSWER_LIMIT = 30.0
RENDER_DELAY = 0.25
"""Seconds until a request is repeated that the console rejects because changes are not rendered yet."""
RETRIES = 20


class Answer:
    """An answer that is awaited."""

    def __init__(self) -> None:
        self.arrived = trio.Event()
        self.message: dict[str, Any] = {}


class Receiver(Protocol):
    """Receiver of the messages of a session."""

    def welcome(self, message: dict[str, Any]) -> None:
        """Take the first message of a connection."""

    def take(self, message: dict[str, Any]) -> None:
        """Take a message of the subscription."""

    def lost(self, reason: str) -> None:
        """Take the reason of a loss."""


class Session:
    """The connection to one console.

    *find* returns URL and token, and is called for each connection: a
    controller that was started again may have others.
    """

    def __init__(self, find: Callable[[], tuple[str, str]]) -> None:
        self._find = find
        self._client: ConsoleClient | None = None
        self._awaited: dict[int, Answer] = {}
        self._subscription: Callable[[], dict[str, Any]] | None = None
        self._changed = trio.Event()

    def follow(self, subscription: Callable[[], dict[str, Any]]) -> None:
        """Replace the subscription by the one that *subscription* returns, now and after each loss."""
        self._subscription = subscription
        self._changed.set()

    async def ask(self, topic: str, **arguments: Any) -> Any:
        """Return the answer about *topic*; repeats the request while the newest changes are not rendered yet.

        Raises `ConsoleRejectedError`, and `NoConsoleError` without a connection.
        """
        for tries in range(RETRIES + 1):
            message = await self._ask_once(topic, arguments)
            if message.get("kind") == "answer":
                return message["value"]
            text = message.get("message", "the console does not answer in time")
            if tries == RETRIES or "retry soon" not in text:
                break
            await trio.sleep(RENDER_DELAY)
        raise ConsoleRejectedError(text)

    async def _ask_once(self, topic: str, arguments: dict[str, Any]) -> dict[str, Any]:
        if self._client is None:
            raise NoConsoleError("not connected")
        number = await self._client.request(topic, **arguments)
        answer = self._awaited[number] = Answer()
        try:
            with trio.move_on_after(ANSWER_LIMIT):
                await answer.arrived.wait()
        finally:
            self._awaited.pop(number, None)
        return answer.message

    async def run(self, receiver: Receiver, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Connect, and connect again after each loss, until cancelled; *receiver* gets what arrives.

        started() means the first connection; raises `NoConsoleError` if that one fails.
        """
        is_first = True
        while True:
            reason = "it ended"
            try:
                # It reads files.
                address, token = await trio.to_thread.run_sync(self._find)
                async with open_console(address, token) as client:
                    self._client = client
                    receiver.welcome(client.welcome)
                    if is_first:
                        task_status.started()
                        is_first = False
                    await self._talk(client, receiver)
            except* (NoConsoleError, OSError, trio.BrokenResourceError) as group:
                if is_first:
                    raise
                reason = "; ".join(str(error) or type(error).__name__ for error in leaves_of(group))
            self._client = None
            for answer in self._awaited.values():
                answer.message = {"kind": "rejected", "message": "the connection was lost"}
                answer.arrived.set()
            receiver.lost(reason)
            await trio.sleep(RETRY_DELAY)

    async def _talk(self, client: ConsoleClient, receiver: Receiver) -> None:
        async with trio.open_nursery() as nursery:
            self._changed.set()
            nursery.start_soon(self._subscribe, client)
            while True:
                message: dict[str, Any] | None = None
                with trio.move_on_after(SILENCE_LIMIT):
                    message = await client.receive()
                if message is None:
                    raise NoConsoleError(f"no message for {SILENCE_LIMIT:g} s")
                answer = self._awaited.get(message.get("id", math.nan))
                if answer is not None:
                    answer.message = message
                    answer.arrived.set()
                elif "id" not in message:
                    receiver.take(message)

    async def _subscribe(self, client: ConsoleClient) -> None:
        while True:
            await self._changed.wait()
            self._changed = trio.Event()
            if self._subscription is not None:
                await client.follow(**self._subscription())
