"""Leftovers: servers and backends that were removed from the files and that the process still uses.

A leftover server that is added again is revived: it gets its address and
weight, is made ready, and keeps its connections. That requires equal
settings. If they may differ, the name cannot be used before a reload.
"""

from collections.abc import Iterable, Sequence

import msgspec

from haptic_trio.haproxy.config.servers import ServerSettings, read_address
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.haproxy.grammar.options import walk_options
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import (
    AddBackend,
    AddServer,
    DeleteBackend,
    DeleteServer,
    Operation,
    Removal,
    SetServerAddress,
    SetServerWeight,
)
from haptic_trio.haproxy.plan.servers import add_arguments


class Leftover(msgspec.Struct, frozen=True):
    """A removed object that the process still has."""

    removal: Removal
    options: tuple[str, ...] | None = None
    """Options of `add server` for the server; None if they are unknown."""


def note_leftovers(
    removals: Iterable[Removal], former: Generation | None, capabilities: Capabilities
) -> tuple[Leftover, ...]:
    """Return the leftovers of *removals*, with their settings in *former*, the generation before the removal."""
    return tuple(Leftover(removal, _options(removal, former, capabilities)) for removal in removals)


def _options(removal: Removal, former: Generation | None, capabilities: Capabilities) -> tuple[str, ...] | None:
    if former is None or not isinstance(removal, DeleteServer):
        return None
    section = next((one for one in former.config.sections if _may_hold(one.kind, one.name, removal)), None)
    if section is None:
        return None
    members = ServerSettings(former.config.bases, section).members(section)
    found = [member for member in members if member.name == removal.server]
    arguments = add_arguments(found[0], capabilities) if len(found) == 1 else None
    return arguments.words if arguments is not None else None


def _may_hold(kind: str, name: str, removal: DeleteServer) -> bool:
    return name == removal.backend and kind in {"backend", "listen"}


def revive(
    operations: Sequence[Operation], leftovers: Sequence[Leftover]
) -> tuple[tuple[Operation, ...], tuple[Leftover, ...]]:
    """Return *operations*, with leftover servers revived instead of added where possible, and the other *leftovers*."""
    known = {one.removal: one for one in leftovers if one.options is not None}
    revived: set[Removal] = set()
    result: list[Operation] = []
    for operation in operations:
        removal = DeleteServer(operation.backend, operation.server) if isinstance(operation, AddServer) else None
        leftover = known.get(removal) if removal is not None else None
        if isinstance(operation, AddServer) and leftover is not None and (steps := _revive(operation, leftover)):
            result += steps
            revived.add(leftover.removal)
        else:
            result.append(operation)
    return tuple(result), tuple(one for one in leftovers if one.removal not in revived)


def find_taken(operations: Iterable[Operation], leftovers: Iterable[Leftover]) -> tuple[Removal, ...]:
    """Return those of *leftovers* whose names *operations* give to others."""
    added = {one for one in map(_removal_before, operations) if one is not None}
    return tuple(one.removal for one in leftovers if one.removal in added)


def split_replaced(operations: Sequence[Operation]) -> tuple[tuple[Operation, ...], tuple[Operation, ...]]:
    """Return the removals of servers and backends that *operations* add again, and the other operations."""
    added = {one for one in map(_removal_before, operations) if one is not None}
    replaced = tuple(one for one in operations if isinstance(one, Removal) and one in added)
    return replaced, tuple(one for one in operations if not (isinstance(one, Removal) and one in added))


def _removal_before(operation: Operation) -> Removal | None:
    """Return the removal that *operation* needs first, if the process has the name."""
    match operation:
        case AddServer(backend, server):
            return DeleteServer(backend, server)
        case AddBackend(backend):
            return DeleteBackend(backend)
        case _:
            return None


def _revive(operation: AddServer, leftover: Leftover) -> list[Operation] | None:
    address = read_address(operation.address)
    before, after = _by_name(leftover.options or ()), _by_name(operation.options)
    weight = after.pop("weight", ("1",))
    before.pop("weight", None)
    # A revived backup server keeps its position, which may differ from that of an added one.
    if address is None or before != after or "backup" in after:
        return None
    return [
        SetServerAddress(operation.backend, operation.server, *address),
        SetServerWeight(operation.backend, operation.server, int(weight[0])),
    ]


def _by_name(words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {option.name: option.values for option in walk_options(words, 0, shipped_keywords().server)}
