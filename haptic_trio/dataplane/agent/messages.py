"""Messages between controller and agent: requests, answers, errors, events and blobs.

JSON throughout, bytes in it as base64. Blobs travel in *frames*: for each,
the 20 bytes of its digest, four bytes of length (big-endian), the content.
"""

import hashlib
from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Annotated, Final

import msgspec

from haptic_trio.dataplane.agent.pieces import Step
from haptic_trio.dataplane.endpoint import Count, EndpointInfo, UnboundAddress
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import FileKind
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.delta import Delta
from haptic_trio.haproxy.plan.operations import Plan

FRAME_HEAD: Final = 24
"""Bytes before the content of a blob."""
CONTROLLER_HEADER: Final = "Haptic-Controller"
"""Header with the name of the calling controller."""
NAME_LENGTH: Final = 100
"""Characters of a controller's name that are kept."""
JSON_TYPE: Final = "application/json"
FRAMES_TYPE: Final = "application/vnd.haptic-trio.blobs"

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]
GenerationId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class Recipe(msgspec.Struct, frozen=True):
    """Assembly of a content from pieces."""

    digest: Digest
    """Digest over the digests of the resulting pieces."""
    steps: tuple[Step, ...]
    """Relative to the pieces of the same path in the base; without a base, digests only."""


class FileRecipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a generation."""

    path: str
    kind: FileKind
    content: Recipe
    secret: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Content of a generation, complete or relative to a base."""

    id: GenerationId
    config: Recipe
    """The text of haproxy.cfg."""
    base: GenerationId | None = None
    """Base of the steps; None: the manifest is complete."""
    files: tuple[FileRecipe, ...] = ()
    """With a base: new and changed files."""
    removed: tuple[str, ...] = ()
    """Paths in the base that this generation does not have."""


class StageRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Stage a generation; the blobs in `StageAnswer.missing` must be uploaded next."""

    manifest: Manifest


class StageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Blobs that the agent needs to assemble the generation; none: it is staged."""

    generation: str
    missing: tuple[str, ...] = ()


class ActivateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Check, switch, and load a generation."""

    generation: GenerationId
    delta: Delta | None = None
    """A small delta from a generation that the agent has makes staging unnecessary."""


class PatchRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Execute a plan on the running process and write the generation to disk."""

    generation: GenerationId
    running: GenerationId
    """The generation that the plan is based on; nothing is done if another one is running."""
    plan: Plan
    delta: Delta | None = None
    """As in `ActivateRequest`."""
    successor: Delta | None = None
    """For `/v1/patch-former`: the same change, based on the generation that is being activated, for its process."""


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Compare the process with the last deployment and repair differences; answered by a `DriftReport`."""


class DoneAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An operation was executed."""

    generation: str
    """The running generation."""
    seconds: float
    rival: str = ""
    """Name of another controller that deploys to this agent in turns with the caller; empty: none."""


class RunningAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The running generation; empty if unknown."""

    generation: str
    capabilities: Capabilities = Capabilities()
    """Runtime changes that the process supports."""


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request blobs; the answer has as many as fit, from the first on."""

    blobs: tuple[Digest, ...]


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Number of stored blobs."""

    stored: int


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process of HAProxy."""

    pid: Count
    uptime: Count
    """Seconds."""
    draining: bool
    """It was replaced by a reload and still has connections."""


class FiguresRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Read live figures of HAProxy and of the first 100 of *backends*; answered by `InstanceFigures`."""

    backends: tuple[str, ...] = ()


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one request, and of all requests together."""

    blob_bytes: int = 1 << 20
    """Of one blob."""
    upload_bytes: int = 8 << 20
    """Of one upload, and of one answer with blobs."""
    manifest_bytes: int = 32 << 20
    """Of any other request: manifest, or delta and plan."""
    generation_bytes: int = 512 << 20
    """Of one assembled generation."""
    pieces: int = 1_000_000
    """Pieces of one content."""
    store_bytes: int = 256 << 20
    """Of uploaded blobs that no generation uses yet."""
    concurrent: int = 16
    """Concurrent requests."""
    rate: float = 200.0
    """Requests per second on average; a burst may have those of three seconds."""
    deadline: float = 150.0
    """Seconds for one request: a check and a load may take 60 each."""


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """State of an agent and its HAProxy."""

    agent: str
    """Version of haptic-trio."""
    boot: str
    """Different after each start of the agent."""
    uptime: float
    """Seconds since then."""
    endpoint: EndpointInfo
    workers: tuple[Worker, ...] = ()
    sequence: Count = 0
    """Number of the newest event."""
    limits: AgentLimits = AgentLimits()


class AgentHealth(msgspec.Struct, frozen=True, kw_only=True):
    """Answer to a health probe."""

    ready: bool
    """A generation is applied and HAProxy answers."""
    live: bool
    generation: str = ""
    haproxy: str = ""
    """Version; empty if HAProxy does not answer."""


class EventKind(StrEnum):
    """Kind of an event."""

    HELLO = "hello"
    """First event of each connection, with the present state."""
    HEARTBEAT = "heartbeat"
    """Sign of life without a change."""
    RESYNC = "resync"
    """Events were dropped because they were not read in time."""
    STARTED = "started"
    """HAProxy was started, or adopted."""
    CRASHED = "crashed"
    """HAProxy has ended."""
    RELOADED = "reloaded"
    GENERATION = "generation"
    """Another generation runs, deployed by a controller."""
    DRIFT = "drift"
    """The running generation changed or became unknown without a deployment."""


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change of an agent's HAProxy."""

    kind: EventKind
    sequence: Count
    """Counts events since the agent's start; hello, heartbeat and resync repeat that of the last."""
    boot: str = ""
    generation: str = ""
    """The running generation after the event; empty if unknown."""
    pid: Count = 0
    """HAProxy's master process; 0 when none runs."""
    reloads: Count = 0
    old_workers: Count = 0
    """Workers that finish their connections after a reload."""
    deployed: bool = False
    """A controller's request was the cause."""
    detail: str = ""


class ErrorCode(StrEnum):
    """Reason why a request failed."""

    BAD_REQUEST = "bad_request"
    TRUNCATED = "truncated"
    WRONG_DIGEST = "wrong_digest"
    TOO_LARGE = "too_large"
    NOT_FOUND = "not_found"
    CLIENT_NOT_ALLOWED = "client_not_allowed"
    TRUST_CHANGED = "trust_changed"
    BUSY = "busy"
    TOO_MANY_REQUESTS = "too_many_requests"
    DEADLINE = "deadline"
    BASE_UNKNOWN = "base_unknown"
    GENERATION_UNKNOWN = "generation_unknown"
    UNSAFE_PATH = "unsafe_path"
    CONFIGURATION_REJECTED = "configuration_rejected"
    PATCH_REJECTED = "patch_rejected"
    RUNNING_DIFFERS = "running_differs"
    STORAGE = "storage"
    HAPROXY_TIMEOUT = "haproxy_timeout"
    HAPROXY_UNREACHABLE = "haproxy_unreachable"
    INTERNAL = "internal"


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Reason why a request failed, and a hint."""

    code: ErrorCode
    message: str
    hint: str = ""
    unbound: tuple[UnboundAddress, ...] = ()
    """Addresses that HAProxy cannot bind, if that is the reason."""


class FrameError(HapticError):
    """Frames cannot be decoded; `code` has the reason. Permanent."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)


def encode_frames(blobs: Mapping[str, bytes]) -> bytes:
    """Return the frames of *blobs* (by digest)."""
    parts: list[bytes] = []
    for digest, content in blobs.items():
        parts += (bytes.fromhex(digest), len(content).to_bytes(4, "big"), content)
    return b"".join(parts)


def decode_frames(data: bytes, *, largest: int) -> dict[str, bytes]:
    """Return the blobs in *data* by digest, each verified; raises FrameError."""
    return dict(_read_frames(data, largest))


def _read_frames(data: bytes, largest: int) -> Iterator[tuple[str, bytes]]:
    position = 0
    while position < len(data):
        head = data[position : position + FRAME_HEAD]
        if len(head) < FRAME_HEAD:
            raise FrameError(ErrorCode.TRUNCATED, f"the upload ends inside the head of a blob, at byte {len(data)}")
        digest = head[:20].hex()
        length = int.from_bytes(head[20:], "big")
        if length > largest:
            raise FrameError(ErrorCode.TOO_LARGE, f"blob {digest} has {length} bytes; at most {largest} are allowed")
        position += FRAME_HEAD
        content = data[position : position + length]
        if len(content) < length:
            raise FrameError(
                ErrorCode.TRUNCATED,
                f"blob {digest} has {length} bytes, but the upload ends after {len(content)}",
            )
        if hashlib.blake2b(content, digest_size=20).digest() != head[:20]:
            raise FrameError(ErrorCode.WRONG_DIGEST, f"the content of blob {digest} does not match its digest")
        position += length
        yield digest, content
