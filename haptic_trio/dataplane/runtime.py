"""Client of a worker's runtime socket: operations that need no reload."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import trio

from haptic_trio.dataplane.cli_socket import exchange
from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError, PatchRefusedError
from haptic_trio.haproxy.commands import (
    MAX_BATCH,
    MAX_COMMAND_BYTES,
    RuntimeCommandError,
    UnsendableError,
    abandon_map,
    check_reply,
    commit_map,
    count_replies,
    fill_map,
    format_operations,
    join_commands,
    prepare_map,
    read_prepared_version,
    split_replies,
)
from haptic_trio.haproxy.operations import Operation, ReplaceMap
from haptic_trio.haproxy.replies import parse_show_info

ANSWER_LIMIT = 5.0
"""Seconds for one batch."""
ABANDON_LIMIT = 1.0
"""Seconds for freeing a half-filled map, which the next load frees anyway."""


class RuntimeClient:
    """Talks to the runtime socket at *path*; *endpoint* is named in errors."""

    def __init__(self, path: Path, *, endpoint: str) -> None:
        self._path = path
        self._endpoint = endpoint

    async def ask(self, request: str) -> str:
        """Return the answer to *request*: one line, with a payload or without."""
        return await exchange(self._path, request, endpoint=self._endpoint, limit=ANSWER_LIMIT)

    async def ask_pid(self) -> int:
        """Return the pid of the worker that answers."""
        return _read_pid(await self.ask("show info\n"))

    async def apply(self, operations: Sequence[Operation], *, worker: int) -> None:
        """Apply *operations*, in order, to the process with pid *worker*.

        Raises PatchRefusedError when one is refused, or cannot be said at
        all; the others of its batch were applied all the same. Raises
        EndpointError when the worker does not answer.
        """
        try:
            # Before the first is sent: an operation that cannot be said shall not leave half of them done.
            for batch in make_batches(list(format_operations(operations))):
                if isinstance(batch, ReplaceMap):
                    await self._replace_map(batch, worker=worker)
                else:
                    await self._send(batch, worker=worker)
        except (RuntimeCommandError, UnsendableError) as exc:
            raise PatchRefusedError(self._endpoint, str(exc)) from exc

    async def _replace_map(self, operation: ReplaceMap, *, worker: int) -> None:
        """Fill a new version of the map beside the one in use, then switch to it."""
        prepare = prepare_map(operation.map)
        [reply] = await self._send([prepare], worker=worker)
        version = read_prepared_version(prepare, reply)
        try:
            for command in fill_map(operation.map, version, operation.entries):
                await self._send([command], worker=worker)
            await self._send([commit_map(operation.map, version)], worker=worker)
        except (RuntimeCommandError, UnsendableError):
            with trio.move_on_after(ABANDON_LIMIT, shield=True):
                await self._send([abandon_map(operation.map, version)], worker=worker)
            raise

    async def _send(self, commands: Sequence[str], *, worker: int) -> tuple[str, ...]:
        """Have *worker* run *commands* and return its replies; raises RuntimeCommandError for the first refusal."""
        request = join_commands(("show info", *commands))
        count = len(commands) + 1
        # Just after a reload a connection may still be accepted by the former worker. What that one is told is lost
        # with it, so saying it again to the right one is always correct.
        with trio.move_on_after(ANSWER_LIMIT):
            while True:
                answer = await self.ask(request)
                # The line feed after a payload counts as one more, empty command.
                if count_replies(answer) < count:
                    raise EndpointUnreachableError(self._endpoint, "the connection ended before all was answered")
                info, *replies = split_replies(answer, count)
                if _read_pid(info) == worker:
                    break
                await trio.lowlevel.checkpoint()
            for command, reply in zip(commands, replies, strict=True):
                if (error := check_reply(command, reply)) is not None:
                    raise error
            return tuple(replies)
        raise EndpointTimeoutError(self._endpoint, f"worker {worker} did not answer within {ANSWER_LIMIT:g} s")


def make_batches(commands: Sequence[str | ReplaceMap]) -> Iterator[list[str] | ReplaceMap]:
    """Yield *commands* in order: map replacements alone, others in batches.

    A batch must fit the buffers of both sides, since HAProxy reads no further
    while its answers are not read.
    """
    batch: list[str] = []
    size = 0
    for command in commands:
        length = 0 if isinstance(command, ReplaceMap) else len(command) + 1
        full = len(batch) == MAX_BATCH or size + length > MAX_COMMAND_BYTES
        if batch and (full or isinstance(command, ReplaceMap)):
            yield batch
            batch, size = [], 0
        if isinstance(command, ReplaceMap):
            yield command
        else:
            batch.append(command)
            size += length
    if batch:
        yield batch


def _read_pid(info: str) -> int:
    return int(parse_show_info(info).get("Pid", "0"))
