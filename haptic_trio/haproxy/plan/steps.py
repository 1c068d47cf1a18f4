"""Order of runtime operations: referenced objects are added first and removed last."""

from enum import IntEnum
from typing import TypeAlias

from haptic_trio.haproxy.plan.operations import Operation


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
    """New entries of maps, which refer to backends, and of ACL lists."""
    REROUTE = 9
    """Changed entries of maps, and whole maps and ACL lists: new paths have entries of their own by now."""
    UNROUTE = 10
    """Removed entries: what falls to a shorter path has the rules that this path is to have."""
    UNLIST = 11
    """Removed lines of crt-lists."""
    FORGET = 12
    """Certificates that are no longer referred to."""
    UNPUBLISH = 13
    REMOVE = 14
    """Servers, then backends."""


Step: TypeAlias = tuple[Phase, Operation]


def order_steps(steps: list[Step]) -> tuple[Operation, ...]:
    """Return the operations of *steps*, sorted by phase; the order within a phase is kept."""
    return tuple(operation for _, operation in sorted(steps, key=lambda step: step[0]))
