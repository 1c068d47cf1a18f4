"""Order of runtime operations: referenced objects are added first and removed last."""

from enum import IntEnum
from itertools import groupby
from typing import TypeAlias

from haptic_trio.haproxy.plan.operations import AddMapEntry, DeleteMapEntry, Operation, ReplaceMap


class Phase(IntEnum):
    """Position of an operation in the order of a plan."""

    STORE = 1
    """Content of certificates and authorities."""
    LIST = 2
    """New lines of crt-lists, which refer to certificates."""
    ADD = 3
    """Backends, then servers."""
    REPLACE = 4
    """Servers that are deleted and added again under their name."""
    ENABLE = 5
    """State of added servers."""
    ALTER = 6
    """Changed settings of existing servers."""
    PUBLISH = 7
    """Backends that are complete."""
    ROUTE = 8
    """New entries of maps, which refer to backends, and of ACL lists: the most specific keys first."""
    REROUTE = 9
    """Changed entries of maps, and whole ACL lists: new paths have entries of their own by now."""
    GUARD = 10
    """Changed guards: what leaves their backends has left by a new path, and what falls to them still has its own."""
    UNROUTE = 11
    """Removed entries, the most specific keys last: what falls to a shorter path has the rules that it is to have."""
    UNLIST = 12
    """Removed lines of crt-lists."""
    FORGET = 13
    """Certificates that are no longer referred to."""
    UNPUBLISH = 14
    REMOVE = 15
    """Servers, then backends."""


Step: TypeAlias = tuple[Phase, Operation]


_Rank: TypeAlias = tuple[bool, str, bool, int, int, str]


def order_steps(steps: list[Step]) -> tuple[Operation, ...]:
    """Return the operations of *steps*, sorted by phase.

    New entries of maps come in the order of their keys, the most specific one
    first, and removed ones in reverse: meanwhile no request meets an entry
    that is less specific than those before and after. Other operations keep
    their order within a phase.
    """
    found: list[Operation] = []
    for phase, group in groupby(sorted(steps, key=lambda step: step[0]), key=lambda step: step[0]):
        operations = [operation for _, operation in group]
        if phase in {Phase.ROUTE, Phase.UNROUTE}:
            # A whole map cannot come between the entries of another one.
            by_file = any(isinstance(one, ReplaceMap) for one in operations)
            ranked = [(_rank(one, by_file=by_file), one) for one in operations]
            ranked.sort(key=lambda item: item[0], reverse=phase is Phase.UNROUTE)
            operations = [operation for _, operation in ranked]
        found += operations
    return tuple(found)


def _rank(operation: Operation, *, by_file: bool) -> _Rank:
    """Return the place among new entries.

    A key is `<scope>|<path>`, where a scope ends in a host, which may begin with `*`, or a path alone. Keys without a
    scope come first: entries of others refer to them. Of equal paths, that of the file with the first name is used.
    """
    match operation:
        case AddMapEntry(path, key, _) | DeleteMapEntry(path, key):
            file = path if by_file else ""
            scope, separator, rest = key.partition("|/")
            if not separator and "|" not in key:
                return False, file, "*" in key, 0, -len(key), path
            scope, is_wild = scope.rstrip("|"), "*" in scope
            length = len(rest.rstrip("/")) + 1 if separator else 0
            return True, file, is_wild, -len(scope) if is_wild else 0, -length, path
        case ReplaceMap(path, entries):
            return any("|" in key for key, _ in entries[:1]), path, False, 0, 0, path
        case _:
            return False, "", False, 0, 0, ""
