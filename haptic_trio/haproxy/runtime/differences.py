"""Differences between a running process and its generation."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from haptic_trio.haproxy.plan.operations import Operation
from haptic_trio.haproxy.plan.steps import Step, order_steps


class Kind(StrEnum):
    """What differs."""

    SERVER = "server"
    MAP = "map"
    ACL = "acl"
    """The list of one."""
    CERTIFICATE = "certificate"
    CRT_LIST = "crt-list"
    BACKEND = "backend"
    PROCESS = "process"
    """None runs."""
    FILES = "files"
    """What the process would load at its next start is not what was deployed."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that differs."""

    kind: Kind
    what: str
    """Such as `server app/s1 changed`."""
    steps: tuple[Step, ...] | None = None
    """What puts it right at runtime, perhaps along with another finding; None if a reload has to."""


def count_kinds(findings: Iterable[Finding]) -> dict[str, int]:
    """Return how many of *findings* there are of each kind."""
    return dict(Counter(finding.kind.value for finding in findings))


def repair_operations(findings: Iterable[Finding]) -> tuple[Operation, ...]:
    """Return what puts *findings* right at runtime, in order."""
    return order_steps([step for finding in findings for step in finding.steps or ()])


def reload_reasons(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return which of *findings* need a reload, in words."""
    return tuple(f"drift: {finding.what}" for finding in findings if finding.steps is None)
