"""Order of runtime operations: referenced objects are added first and removed last."""

from enum import IntEnum
from typing import TypeAlias

from haptic_trio.haproxy.plan.operations import Operation


class Phase(IntEnum):
    """When an operation is due."""

    STORE = 1
    """Content of certificates and authorities."""
    LIST = 2
    """New lines of crt-lists, which refer to certificates."""
    ADD = 3
    """Backends, then servers."""
    REPLACE = 4
    """Servers that make room for another of their name."""
    ENABLE = 5
    """Servers get ready."""
    ALTER = 6
    """Servers that stay."""
    PUBLISH = 7
    """Backends that are complete."""
    ROUTE = 8
    """Entries of maps, which refer to backends, and of lists."""
    UNLIST = 9
    FORGET = 10
    """Certificates that nothing refers to any more."""
    UNPUBLISH = 11
    REMOVE = 12
    """Servers, then backends."""


Step: TypeAlias = tuple[Phase, Operation]


def order_steps(steps: list[Step]) -> tuple[Operation, ...]:
    """Return the operations of *steps* by phase, and as given within one."""
    return tuple(operation for _, operation in sorted(steps, key=lambda step: step[0]))
