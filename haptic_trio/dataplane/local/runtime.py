"""Client of a worker's runtime socket, for operations that need no reload."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import trio

from haptic_trio.dataplane.cli_socket import CliConnection, connect, exchange
from haptic_trio.dataplane.endpoint import (
    EndpointError,
    EndpointTimeoutError,
    EndpointUnreachableError,
    PatchRejectedError,
)
from haptic_trio.haproxy.plan.capabilities import Capabilities, read_capabilities
from haptic_trio.haproxy.plan.commands import (
    RuntimeCommandError,
    UnsendableError,
    count_replies,
    join_commands,
    split_replies,
)
from haptic_trio.haproxy.plan.operations import Operation, Removal
from haptic_trio.haproxy.runtime.conversation import Conversation, Pause, converse, retry_removals

ANSWER_LIMIT = 5.0
"""Seconds for one batch."""
_PID: Final = re.compile(r"^Pid: (\d+)$", re.MULTILINE)


class OtherWorkerError(EndpointError):
    """Another worker than the expected one answered and applied the commands, if there were any."""


class RuntimeClient:
    """Client of the runtime socket at *path*; errors name *endpoint*."""

    def __init__(self, path: Path, *, endpoint: str) -> None:
        self._path = path
        self._endpoint = endpoint

    async def ask(self, request: str) -> str:
        """Return the answer to *request*: one line, with a payload or without."""
        return await exchange(self._path, request, endpoint=self._endpoint, limit=ANSWER_LIMIT)

    async def ask_pid(self) -> int:
        """Return the pid of the worker that answers."""
        return _read_pid(await self.ask("show info\n"))

    async def ask_capabilities(self, version: tuple[int, ...]) -> Capabilities:
        """Return the capabilities of the worker, whose version is *version*."""
        # An unknown command is harmless: its answer is the list of all commands.
        return read_capabilities(version, await self.ask("help\n"), await self.ask("add server help\n"))

    async def apply(self, operations: Sequence[Operation], *, worker: int, patient: bool = True) -> tuple[Removal, ...]:
        """Apply *operations*, in order, to the process with pid *worker*.

        Just after a reload the former worker may still answer. With *patient*
        the commands are then repeated until the right worker answers; else an
        answer by another worker raises OtherWorkerError.

        Returns removals of unused objects that could not be deleted yet, for
        `retry`. Raises PatchRejectedError if an operation is rejected or has
        no command; the others of its batch were applied. Raises EndpointError
        if the worker does not answer.
        """
        try:
            return await self._hold(converse(operations), worker=worker, patient=patient)
        except (RuntimeCommandError, UnsendableError) as exc:
            raise PatchRejectedError(self._endpoint, str(exc)) from exc

    async def retry(self, removals: Sequence[Removal], *, worker: int, patient: bool = True) -> tuple[Removal, ...]:
        """Retry *removals*, a result of `apply`, on *worker*; returns those that still fail."""
        return await self._hold(retry_removals(removals), worker=worker, patient=patient)

    @asynccontextmanager
    async def connected(self, *, worker: int) -> AsyncIterator["RuntimeClient"]:
        """Return a client whose changes reach the process with pid *worker*, also after a reload.

        It is usable during the block. Raises OtherWorkerError if another
        worker answers, which gets no changes, and EndpointError if none does.
        """
        async with connect(self._path, endpoint=self._endpoint, limit=ANSWER_LIMIT) as connection:
            found = _read_pid(await connection.ask("show info\n", lambda answer: count_replies(answer) > 0))
            if found != worker:
                raise _other_worker(self._endpoint, found, worker)
            yield _ConnectedClient(self._path, connection, endpoint=self._endpoint)

    async def read(self, questions: Sequence[str], *, worker: int) -> list[str]:
        """Return the answers of *worker* to *questions*, each one line of commands without payload."""
        answers = []
        for question in questions:
            with trio.move_on_after(ANSWER_LIMIT) as limit:
                while True:
                    info, _, answer = (await self.ask(f"show info;{question}\n")).partition("\n\n")
                    if _read_pid(info) == worker:
                        answers.append(answer)
                        break
                    await trio.lowlevel.checkpoint()
            if limit.cancelled_caught:
                raise self._unanswered(worker)
        return answers

    def _unanswered(self, worker: int) -> EndpointTimeoutError:
        return EndpointTimeoutError(self._endpoint, f"worker {worker} did not answer within {ANSWER_LIMIT:g} s")

    async def _hold(self, conversation: Conversation, *, worker: int, patient: bool) -> tuple[Removal, ...]:
        replies: tuple[str, ...] | None = None
        while True:
            try:
                turn = next(conversation) if replies is None else conversation.send(replies)
            except StopIteration as stop:
                leftovers: tuple[Removal, ...] = stop.value
                return leftovers
            if isinstance(turn, Pause):
                await trio.sleep(turn.seconds)
                replies = ()
            else:
                replies = await self._send(turn, worker=worker, patient=patient)

    async def _send(self, commands: Sequence[str], *, worker: int, patient: bool) -> tuple[str, ...]:
        """Run *commands* on *worker* and return its replies."""
        with trio.move_on_after(ANSWER_LIMIT):
            while True:
                found, replies = await self._ask_anyone(commands)
                if found == worker:
                    return replies
                if not patient:
                    raise _other_worker(self._endpoint, found, worker)
                await trio.lowlevel.checkpoint()
        raise self._unanswered(worker)

    async def _ask_anyone(self, commands: Sequence[str]) -> tuple[int, tuple[str, ...]]:
        """Run *commands* on the worker that answers, and return its pid and its replies."""
        count = len(commands) + 1
        answer = await self.ask(join_commands(("show info", *commands)))
        # The line feed after a payload counts as one more, empty command.
        if count_replies(answer) < count:
            raise EndpointUnreachableError(self._endpoint, "the connection was closed before the complete answer")
        info, *replies = split_replies(answer, count)
        return _read_pid(info), tuple(replies)


class OwnSocketClient(RuntimeClient):
    """Client of a socket that one worker alone should have; *worker* is one that does not have it."""

    pid = 0
    """Pid of the worker, after an answer."""

    async def _send(self, commands: Sequence[str], *, worker: int, patient: bool) -> tuple[str, ...]:  # noqa: ARG002  only one worker answers
        # Sent with the first line, so that the worker need not be asked before it serves.
        self.pid, replies = await self._ask_anyone(commands)
        if self.pid == worker:
            raise OtherWorkerError(self._endpoint, f"worker {worker} still has this socket")
        return replies


class _ConnectedClient(RuntimeClient):
    """Client of the worker that has accepted *connection*."""

    def __init__(self, path: Path, connection: CliConnection, *, endpoint: str) -> None:
        super().__init__(path, endpoint=endpoint)
        self._connection = connection

    async def _send(self, commands: Sequence[str], *, worker: int, patient: bool) -> tuple[str, ...]:  # noqa: ARG002  the connection leads to one worker
        if any("\n" in command for command in commands):
            raise UnsendableError("a command with a payload needs a connection of its own")
        count = len(commands)
        answer = await self._connection.ask(join_commands(commands), lambda answer: count_replies(answer) >= count)
        return split_replies(answer, count)


def _other_worker(endpoint: str, found: int, worker: int) -> OtherWorkerError:
    return OtherWorkerError(endpoint, f"worker {found} answers, not {worker}")


def _read_pid(info: str) -> int:
    found = _PID.search(info)
    return int(found[1]) if found is not None else 0
