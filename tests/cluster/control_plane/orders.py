"""Orders to a running cluster: messages that the sender and the cluster share."""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

Action = Literal["start", "stop", "kill", "freeze", "thaw"]


class Execute(msgspec.Struct, frozen=True, kw_only=True):
    """Run a command in a container of a Pod, or, without a Pod, in the cluster's own network."""

    argv: Sequence[str]
    namespace: str = ""
    pod: str = ""
    container: str | None = None
    content: bytes = b""
    environment: Mapping[str, str] = {}


class Executed(msgspec.Struct, frozen=True):
    """How a command ended."""

    status: int
    output: bytes
    errors: bytes


class Signal(msgspec.Struct, frozen=True, kw_only=True):
    """Send a signal to the first process of a container."""

    namespace: str
    pod: str
    container: str | None = None
    number: int


class AddImage(msgspec.Struct, frozen=True, kw_only=True):
    """Let a program stand for images of that name."""

    repository: str
    entrypoint: Sequence[str]
    environment: Mapping[str, str] = {}


class PartState(msgspec.Struct, frozen=True):
    """A part of the control plane, or the kubelet's process."""

    running: bool
    resident: int
    """Bytes of memory."""
