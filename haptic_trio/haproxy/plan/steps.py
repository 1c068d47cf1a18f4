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
    """Entries of maps, which refer to backends, and of ACL lists."""
    UNLIST = 9
    """Removed lines of crt-lists."""
    FORGET = 10
    """Certificates that are no longer referred to."""
    UNPUBLISH = 11
    REMOVE = 12
    """Servers, then backends."""


Step: TypeAlias = tuple[Phase, Operation]


def order_steps(steps: list[Step]) -> tuple[Operation, ...]:
    """Return the operations of *steps*, sorted by phase; the order within a phase is kept."""
    return tuple(operation for _, operation in sorted(steps, key=lambda step: step[0]))
