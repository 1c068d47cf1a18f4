"""Conversation with a runtime socket: sends operations, and continues by the replies.

A conversation is a generator without I/O: it yields commands to be sent on
one connection and is sent their replies, or yields a pause and is sent
nothing. Whoever drives it does the I/O.

A server or backend that is to be deleted may still be in use: by a download,
a websocket. It is asked for again for a short while. After that it is left
as it is, a server in maintenance or a backend that no rule can choose: its
connections end when they end, and nothing new comes to it. To the files and
to plans it is gone; the process forgets it when it is told once more, by
what the conversation returns, or at the next reload.
"""

import re
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from ipaddress import ip_address
from itertools import groupby
from typing import Final, TypeAlias

import msgspec

from haptic_trio.haproxy.plan.commands import (
    MAX_BATCH,
    MAX_COMMAND_BYTES,
    Replacement,
    RuntimeCommandError,
    UnsendableError,
    abandon_version,
    check_reply,
    commit_version,
    escape_word,
    fill_version,
    format_command,
    prepare_version,
    read_prepared_version,
)
from haptic_trio.haproxy.plan.operations import (
    AddCrtListEntry,
    DeleteBackend,
    DeleteCrtListEntry,
    DeleteServer,
    Operation,
    Removal,
    ReplaceAcl,
    ReplaceMap,
    SetServerAddress,
    StoreCertificate,
    StoreTrust,
)
from haptic_trio.haproxy.plan.store_commands import (
    abort_command,
    list_command,
    read_oldest_line,
    store_commands,
    unlist_command,
)
from haptic_trio.haproxy.runtime.replies import UnreadableReplyError, parse_servers_state

REMOVAL_ATTEMPTS: Final = 25
"""How often in all the process is asked to delete what is still in use."""
REMOVAL_INTERVAL: Final = 0.02
"""Seconds between two attempts."""
MOVE_ATTEMPTS: Final = 100
"""How often in all the process is asked whether a server is where it was sent."""
MOVE_INTERVAL: Final = 0.005
"""Seconds between two of these questions."""

_IN_USE: Final = re.compile(r"\bstill\b|Only a backend without server can be deleted")
# Said before anything of another kind: should one of them be refused, what would follow is not said.
_ADDITIONS: Final = re.compile(r"add (?:server|backend) ")


class Pause(msgspec.Struct, frozen=True):
    """Nothing to say for some time."""

    seconds: float


Turn: TypeAlias = list[str] | Pause
"""Commands to send, or a pause."""

Conversation: TypeAlias = Generator[Turn, tuple[str, ...], tuple[Removal, ...]]
"""Returns the removals of what was still in use."""

_Talk: TypeAlias = Generator[Turn, tuple[str, ...], None]

_Transaction: TypeAlias = ReplaceMap | ReplaceAcl | StoreCertificate | StoreTrust | AddCrtListEntry | DeleteCrtListEntry
"""Operations that take more than a command, or a payload."""


def converse(operations: Sequence[Operation]) -> Conversation:
    """Carry out *operations*, in order; in the end, servers that were sent elsewhere are there.

    Raises UnsendableError before the first command, when one of them cannot
    be said, and RuntimeCommandError for the first that is refused; the
    others of its batch were carried out all the same.
    """
    parts = [list(part) for _, part in groupby(operations, key=_kind)]
    for operation in operations:
        _check(operation)
    leftovers: list[Removal] = []
    for part in parts:
        match part[0]:
            case DeleteServer() | DeleteBackend():
                leftovers += yield from _delete([one for one in part if isinstance(one, Removal)])
            case one if isinstance(one, _Transaction):
                for operation in part:
                    yield from _carry_out(operation)
            case _:
                for batch in make_batches([_simple_command(operation) for operation in part]):
                    yield from _say(batch)
    yield from _await_moves([one for one in operations if isinstance(one, SetServerAddress)])
    return tuple(leftovers)


def retry_removals(removals: Sequence[Removal]) -> Conversation:
    """Try once more the *removals* that an earlier conversation has returned; returns those that are still in vain."""
    by_command = {_delete_command(removal): removal for removal in removals}
    leftovers: list[Removal] = []
    for batch in make_batches(list(by_command)):
        replies = yield batch
        leftovers += [by_command[said] for said, reply in zip(batch, replies, strict=True) if _IN_USE.search(reply)]
    return tuple(leftovers)


def make_batches(commands: Sequence[str]) -> Iterator[list[str]]:
    """Yield *commands* in order, in batches.

    A batch must fit the buffers of both sides, since HAProxy reads no further
    while its answers are not read.
    """
    batch: list[str] = []
    size = 0
    for command in commands:
        mixed = bool(batch) and bool(_ADDITIONS.match(batch[-1])) != bool(_ADDITIONS.match(command))
        length = len(command.encode(errors="surrogateescape")) + 1
        if batch and (mixed or len(batch) == MAX_BATCH or size + length > MAX_COMMAND_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(command)
        size += length
    if batch:
        yield batch


def _kind(operation: Operation) -> str:
    match operation:
        case DeleteServer() | DeleteBackend():
            return "removal"
        case _ if isinstance(operation, _Transaction):
            return "transaction"
        case _:
            return "command"


def _check(operation: Operation) -> None:
    """Raise UnsendableError for what cannot be said, except within a map or list, which would take long."""
    match operation:
        case DeleteServer() | DeleteBackend():
            _delete_command(operation)
        case StoreCertificate() | StoreTrust():
            store_commands(operation)
        case AddCrtListEntry():
            list_command(operation)
        case DeleteCrtListEntry():
            unlist_command(operation)
        case ReplaceMap() | ReplaceAcl():
            prepare_version(operation)
        case _:
            format_command(operation)


def _simple_command(operation: Operation) -> str:
    assert not isinstance(operation, Removal | _Transaction)
    return format_command(operation)


def _carry_out(operation: Operation) -> _Talk:
    match operation:
        case ReplaceMap() | ReplaceAcl():
            yield from _replace(operation)
        case StoreCertificate() | StoreTrust():
            yield from _store(operation)
        case AddCrtListEntry():
            yield from _say([list_command(operation)])
        case DeleteCrtListEntry():
            yield from _unlist(operation)


def _say(commands: list[str]) -> _Talk:
    replies = yield commands
    for command, reply in zip(commands, replies, strict=True):
        if (error := check_reply(command, reply)) is not None:
            raise error


def _replace(operation: Replacement) -> _Talk:
    """Fill a new version of the map or list beside the one in use, then switch to it."""
    prepare = prepare_version(operation)
    [reply] = yield [prepare]
    version = read_prepared_version(prepare, reply)
    try:
        commands = fill_version(operation, version)
        batches = ([one] for one in commands) if isinstance(operation, ReplaceMap) else make_batches(list(commands))
        for batch in batches:
            yield from _say(batch)
        yield from _say([commit_version(operation, version)])
    except (RuntimeCommandError, UnsendableError):
        yield [abandon_version(operation, version)]
        raise


def _await_moves(moves: Sequence[SetServerAddress]) -> _Talk:
    """Ask until the servers of *moves* are where they were sent; not for ever, since HAProxy has said that it does it.

    HAProxy 3.2 was seen to answer first and to move the server a moment later.
    """
    wanted = {(one.backend, one.server): (_canonical(one.address), one.port) for one in moves}
    for attempt in range(MOVE_ATTEMPTS):
        if attempt:
            yield Pause(MOVE_INTERVAL)
        late: set[str] = set()
        for batch in make_batches([_state_command(backend) for backend in sorted({key[0] for key in wanted})]):
            replies = yield batch
            late |= {key[0] for reply in replies for key, place in _places(reply) if wanted.get(key, place) != place}
        wanted = {key: place for key, place in wanted.items() if key[0] in late}
        if not wanted:
            return


def _state_command(backend: str) -> str:
    return " ".join(map(escape_word, ("show", "servers", "state", backend)))


def _places(reply: str) -> Iterator[tuple[tuple[str, str], tuple[str, int]]]:
    # A backend that has gone meanwhile is not waited for.
    with suppress(UnreadableReplyError):
        for one in parse_servers_state(reply):
            yield (one.backend, one.server), (_canonical(one.address), one.port)


def _canonical(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def _store(operation: StoreCertificate | StoreTrust) -> _Talk:
    try:
        for command in store_commands(operation):
            yield from _say([command])
    except RuntimeCommandError:
        # The process has one such transaction at a time: left open it would keep others from beginning.
        yield [abort_command(operation)]
        raise


def _unlist(operation: DeleteCrtListEntry) -> _Talk:
    command = unlist_command(operation)
    [reply] = yield [command]
    if (line := read_oldest_line(reply)) is not None:
        yield from _say([unlist_command(operation, line=line)])
    elif (error := check_reply(command, reply)) is not None:
        raise error


def _delete(removals: Sequence[Removal]) -> Generator[Turn, tuple[str, ...], list[Removal]]:
    retire = [
        " ".join(map(escape_word, ("set", "server", f"{one.backend}/{one.server}", "state", "maint")))
        for one in removals
        if isinstance(one, DeleteServer)
    ]
    for batch in make_batches(retire):
        yield from _say(batch)
    by_command = {_delete_command(removal): removal for removal in removals}
    waiting = list(by_command)
    for attempt in range(REMOVAL_ATTEMPTS):
        if attempt:
            yield Pause(REMOVAL_INTERVAL)
        busy: list[str] = []
        for batch in make_batches(waiting):
            replies = yield batch
            for command, reply in zip(batch, replies, strict=True):
                error = check_reply(command, reply)
                if error is not None and not _IN_USE.search(reply):
                    raise error
                busy += [command] if error is not None else []
        waiting = busy
        if not waiting:
            break
    return [by_command[command] for command in waiting]


def _delete_command(removal: Removal) -> str:
    match removal:
        case DeleteServer(backend, server):
            words = ["del", "server", f"{backend}/{server}"]
        case DeleteBackend(backend):
            words = ["del", "backend", backend]
    return " ".join(map(escape_word, words))
