"""Differences between a running process and its generation."""

from collections import Counter
from collections.abc import Iterable
from enum import StrEnum

import msgspec

from haptic_trio.haproxy.plan.operations import Operation
from haptic_trio.haproxy.plan.steps import Step, order_steps


class Kind(StrEnum):
    """Kind of an object that differs."""

    SERVER = "server"
    MAP = "map"
    ACL = "acl"
    """The list of an ACL."""
    CERTIFICATE = "certificate"
    CRT_LIST = "crt-list"
    BACKEND = "backend"
    PROCESS = "process"
    """No process runs."""
    FILES = "files"
    """The files that the process would load at its next start are not those that were deployed."""


class Finding(msgspec.Struct, frozen=True):
    """One difference."""

    kind: Kind
    what: str
    """Description, such as `server app/s1 changed`."""
    steps: tuple[Step, ...] | None = None
    """Steps that repair it at runtime; empty if those of another finding do; None if a reload is needed."""


def count_kinds(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of *findings* by kind."""
    return dict(Counter(finding.kind.value for finding in findings))


def repair_operations(findings: Iterable[Finding]) -> tuple[Operation, ...]:
    """Return the operations that repair *findings* at runtime, in order."""
    return order_steps([step for finding in findings for step in finding.steps or ()])


def reload_reasons(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the reasons for a reload: the *findings* that cannot be repaired at runtime."""
    return tuple(f"drift: {finding.what}" for finding in findings if finding.steps is None)
