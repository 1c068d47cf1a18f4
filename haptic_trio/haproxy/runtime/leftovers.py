"""Servers and backends that were removed from the files and that the process still uses.

A server that is wanted again while it is left over is revived: it is given
its address and weight and made ready, with the connections that it has. That
takes that it is to have the settings that it had; what is not known to agree
is refused by the process, which knows the name, and a reload follows.
"""

from collections.abc import Iterable, Sequence

import msgspec

from haptic_trio.haproxy.config.servers import ServerSettings, read_address
from haptic_trio.haproxy.grammar.keywords import shipped_keywords
from haptic_trio.haproxy.grammar.options import walk_options
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import (
    AddServer,
    DeleteServer,
    Operation,
    Removal,
    SetServerAddress,
    SetServerWeight,
)
from haptic_trio.haproxy.plan.servers import spell_out


class Leftover(msgspec.Struct, frozen=True):
    """Something that the process still has."""

    removal: Removal
    options: tuple[str, ...] | None = None
    """What `add server` would have been told for a server; None where that is not known."""


def note_leftovers(
    removals: Iterable[Removal], former: Generation | None, capabilities: Capabilities
) -> tuple[Leftover, ...]:
    """Return what *removals* could not delete yet, with its settings in *former*, which ran before."""
    return tuple(Leftover(removal, _options(removal, former, capabilities)) for removal in removals)


def _options(removal: Removal, former: Generation | None, capabilities: Capabilities) -> tuple[str, ...] | None:
    if former is None or not isinstance(removal, DeleteServer):
        return None
    section = next((one for one in former.config.sections if _may_hold(one.kind, one.name, removal)), None)
    if section is None:
        return None
    members = ServerSettings(former.config.bases, section).members(section)
    found = [member for member in members if member.name == removal.server]
    spelled = spell_out(found[0], capabilities) if len(found) == 1 else None
    return spelled.words if spelled is not None else None


def _may_hold(kind: str, name: str, removal: DeleteServer) -> bool:
    return name == removal.backend and kind in {"backend", "listen"}


def revive(
    operations: Sequence[Operation], leftovers: Sequence[Leftover]
) -> tuple[tuple[Operation, ...], tuple[Leftover, ...]]:
    """Return *operations* with servers revived instead of added where that is possible, and the other *leftovers*."""
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


def _revive(operation: AddServer, leftover: Leftover) -> list[Operation] | None:
    address = read_address(operation.address)
    before, after = _by_name(leftover.options or ()), _by_name(operation.options)
    weight = after.pop("weight", ("1",))
    before.pop("weight", None)
    # A backup server keeps its place among the others, and may not be the one that it would be then.
    if address is None or before != after or "backup" in after:
        return None
    return [
        SetServerAddress(operation.backend, operation.server, *address),
        SetServerWeight(operation.backend, operation.server, int(weight[0])),
    ]


def _by_name(words: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    return {option.name: option.values for option in walk_options(words, 0, shipped_keywords().server)}
