"""Conversation with a runtime socket: sends operations, and continues depending on the replies.

A conversation is a generator without I/O. It yields commands for one
connection and receives their replies, or yields a pause and receives nothing.
The caller does the I/O.

A server or backend to be deleted may still be in use, for example by a
download or a websocket. The deletion is repeated for a short time. After that
the object becomes a leftover: a server in maintenance, or a backend that no
rule can select, which gets no new connections. Files and plans no longer
contain it. The process drops it when the caller retries the removals that the
conversation returns, or at the next reload.
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
"""Maximum number of attempts to delete an object that is in use."""
REMOVAL_INTERVAL: Final = 0.02
"""Seconds between two attempts."""
MOVE_ATTEMPTS: Final = 100
"""Maximum number of checks whether a server has its new address."""
MOVE_INTERVAL: Final = 0.005
"""Seconds between two checks."""

_IN_USE: Final = re.compile(r"\bstill\b|Only a backend without server can be deleted")
# Additions are sent in batches of their own: if one is rejected, the commands that depend on it are not sent.
_ADDITIONS: Final = re.compile(r"add (?:server|backend) ")


class Pause(msgspec.Struct, frozen=True):
    """A pause between commands."""

    seconds: float


Turn: TypeAlias = list[str] | Pause
"""Commands to send, or a pause."""

Conversation: TypeAlias = Generator[Turn, tuple[str, ...], tuple[Removal, ...]]
"""Returns the removals of objects that are still in use."""

_Exchange: TypeAlias = Generator[Turn, tuple[str, ...], None]

_Transaction: TypeAlias = ReplaceMap | ReplaceAcl | StoreCertificate | StoreTrust | AddCrtListEntry | DeleteCrtListEntry
"""Operations that need several commands, or a payload."""


def converse(operations: Sequence[Operation]) -> Conversation:
    """Carry out *operations*, in order; at the end, moved servers have their new addresses.

    Raises UnsendableError before the first command if an operation cannot be
    sent, and RuntimeCommandError for the first rejected command; the other
    commands of its batch were carried out nevertheless.
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
                    yield from _send(batch)
    yield from _await_moves([one for one in operations if isinstance(one, SetServerAddress)])
    return tuple(leftovers)


def retry_removals(removals: Sequence[Removal]) -> Conversation:
    """Retry the *removals* that an earlier conversation has returned; returns those of objects still in use."""
    by_command = {_delete_command(removal): removal for removal in removals}
    leftovers: list[Removal] = []
    for batch in make_batches(list(by_command)):
        replies = yield batch
        leftovers += [by_command[sent] for sent, reply in zip(batch, replies, strict=True) if _IN_USE.search(reply)]
    return tuple(leftovers)


def make_batches(commands: Sequence[str]) -> Iterator[list[str]]:
    """Yield *commands* in order, in batches.

    A batch must fit into the buffers of both sides, since HAProxy stops
    reading while its replies are not read.
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
    """Raise UnsendableError if *operation* cannot be sent; entries of maps and lists are not checked, for speed."""
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


def _carry_out(operation: Operation) -> _Exchange:
    match operation:
        case ReplaceMap() | ReplaceAcl():
            yield from _replace(operation)
        case StoreCertificate() | StoreTrust():
            yield from _store(operation)
        case AddCrtListEntry():
            yield from _send([list_command(operation)])
        case DeleteCrtListEntry():
            yield from _unlist(operation)


def _send(commands: list[str]) -> _Exchange:
    replies = yield commands
    for command, reply in zip(commands, replies, strict=True):
        if (error := check_reply(command, reply)) is not None:
            raise error


def _replace(operation: Replacement) -> _Exchange:
    """Fill a new version of the map or list beside the one in use, then switch to it."""
    prepare = prepare_version(operation)
    [reply] = yield [prepare]
    version = read_prepared_version(prepare, reply)
    try:
        commands = fill_version(operation, version)
        batches = ([one] for one in commands) if isinstance(operation, ReplaceMap) else make_batches(list(commands))
        for batch in batches:
            yield from _send(batch)
        yield from _send([commit_version(operation, version)])
    except (RuntimeCommandError, UnsendableError):
        yield [abandon_version(operation, version)]
        raise


def _await_moves(moves: Sequence[SetServerAddress]) -> _Exchange:
    """Wait until the servers of *moves* have their new addresses, for a limited time.

    HAProxy 3.2 sometimes replies before it moves the server.
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
    # Do not wait for a backend that was removed meanwhile.
    with suppress(UnreadableReplyError):
        for one in parse_servers_state(reply):
            yield (one.backend, one.server), (_canonical(one.address), one.port)


def _canonical(address: str) -> str:
    try:
        return str(ip_address(address))
    except ValueError:
        return address


def _store(operation: StoreCertificate | StoreTrust) -> _Exchange:
    try:
        for command in store_commands(operation):
            yield from _send([command])
    except RuntimeCommandError:
        # The process allows one such transaction at a time: an open one would block others.
        yield [abort_command(operation)]
        raise


def _unlist(operation: DeleteCrtListEntry) -> _Exchange:
    command = unlist_command(operation)
    [reply] = yield [command]
    if (line := read_oldest_line(reply)) is not None:
        yield from _send([unlist_command(operation, line=line)])
    elif (error := check_reply(command, reply)) is not None:
        raise error


def _delete(removals: Sequence[Removal]) -> Generator[Turn, tuple[str, ...], list[Removal]]:
    retire = [
        " ".join(map(escape_word, ("set", "server", f"{one.backend}/{one.server}", "state", "maint")))
        for one in removals
        if isinstance(one, DeleteServer)
    ]
    by_command = {_delete_command(removal): removal for removal in removals}
    waiting = list(by_command)
    for attempt in range(REMOVAL_ATTEMPTS):
        if attempt:
            yield Pause(REMOVAL_INTERVAL)
        busy: list[str] = []
        # Servers go into maintenance in the batch of the first attempt: another one would take a connection of its own.
        for batch in make_batches(waiting if attempt else [*retire, *waiting]):
            replies = yield batch
            for command, reply in zip(batch, replies, strict=True):
                error = check_reply(command, reply)
                if error is None:
                    continue
                if command not in by_command or not _IN_USE.search(reply):
                    raise error
                busy.append(command)
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
