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
from haptic_trio.dataplane.endpoint import EndpointInfo, UnboundAddress
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import FileKind
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.delta import Delta
from haptic_trio.haproxy.plan.operations import Plan

FRAME_HEAD: Final = 24
"""Bytes before the content of a blob."""
JSON_TYPE: Final = "application/json"
FRAMES_TYPE: Final = "application/vnd.haptic-trio.blobs"

Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]
GenerationId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{40}$")]


class Recipe(msgspec.Struct, frozen=True):
    """How to put a content together."""

    digest: Digest
    """Of the recipe that the steps lead to: over the digests of its pieces."""
    steps: tuple[Step, ...]
    """Over the pieces that the base has for the same path; without a base, digests only."""


class FileRecipe(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file of a generation."""

    path: str
    kind: FileKind
    content: Recipe
    secret: bool = False


class Manifest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a generation is made of, on its own or on top of another one."""

    id: GenerationId
    config: Recipe
    """The text of haproxy.cfg."""
    base: GenerationId | None = None
    """The generation that this one is described by; None: by nothing."""
    files: tuple[FileRecipe, ...] = ()
    """With a base: those that are new or differ."""
    removed: tuple[str, ...] = ()
    """Paths that the base has and this one has not."""


class StageRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Say what a generation is made of: blobs that the agent says it lacks have to follow."""

    manifest: Manifest


class StageAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Which blobs the agent needs before it can put the generation together; none: it has done so."""

    generation: str
    missing: tuple[str, ...] = ()


class ActivateRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Check, switch, and load a generation."""

    generation: GenerationId
    delta: Delta | None = None
    """The way to it from a generation that the agent has: saves staging it first, when it is small."""


class PatchRequest(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Carry out a plan on the running process and make a generation the one on disk."""

    generation: GenerationId
    running: GenerationId
    """What the plan was made from; when something else runs, nothing is done."""
    plan: Plan
    delta: Delta | None = None
    """As in `ActivateRequest`."""


class RepairRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Compare the process with what was deployed last, and put right what differs; answered by a `DriftReport`."""


class DoneAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """A verb was carried out."""

    generation: str
    """What runs now."""
    seconds: float


class RunningAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What the process runs; empty when nobody knows."""

    generation: str
    capabilities: Capabilities = Capabilities()
    """What it can be told without a reload."""


class FetchRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Ask for blobs; the answer holds those that fit, from the first on."""

    blobs: tuple[Digest, ...]


class StoredAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How many blobs were taken."""

    stored: int


class Worker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process of HAProxy."""

    pid: int
    uptime: int
    """Seconds."""
    draining: bool
    """A reload has replaced it, and it still has connections."""


class AgentLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one request, and all of them together, may take."""

    blob_bytes: int = 1 << 20
    """Of one blob."""
    upload_bytes: int = 8 << 20
    """Of one upload, and of one answer with blobs."""
    manifest_bytes: int = 32 << 20
    """Of any other request: manifest, or delta and plan."""
    generation_bytes: int = 512 << 20
    """Of one generation, put together."""
    pieces: int = 1_000_000
    """Pieces of one content."""
    store_bytes: int = 256 << 20
    """Of uploaded blobs that no generation has yet."""
    concurrent: int = 16
    """Requests at a time."""
    rate: float = 200.0
    """Requests per second, on average; three seconds' worth may come at once."""
    deadline: float = 150.0
    """Seconds that one request may take: a check and a load may take 60 each."""


class AgentStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent says about itself and its HAProxy."""

    agent: str
    """Version of haptic-trio."""
    boot: str
    """Different after each start of the agent."""
    uptime: float
    """Seconds since then."""
    endpoint: EndpointInfo
    workers: tuple[Worker, ...] = ()
    sequence: int = 0
    """Number of the newest event."""
    limits: AgentLimits = AgentLimits()


class AgentHealth(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe wants to know."""

    ready: bool
    """A generation is applied and HAProxy answers."""
    live: bool
    generation: str = ""
    haproxy: str = ""
    """Version; empty when it does not answer."""


class EventKind(StrEnum):
    """What an event is about."""

    HELLO = "hello"
    """The first on each connection; tells the present state."""
    HEARTBEAT = "heartbeat"
    """Nothing happened."""
    RESYNC = "resync"
    """Events were dropped because they were not read in time."""
    STARTED = "started"
    """HAProxy was started, or adopted."""
    CRASHED = "crashed"
    """HAProxy is gone."""
    RELOADED = "reloaded"
    GENERATION = "generation"
    """Another generation runs because a controller wanted it."""
    DRIFT = "drift"
    """What runs has changed, or became unknown, and no controller wanted that."""


class AgentEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something happened to the HAProxy of an agent."""

    kind: EventKind
    sequence: int
    """Counts events since the agent's start; hello, heartbeat and resync repeat that of the last."""
    boot: str = ""
    generation: str = ""
    """What runs afterwards; empty when nobody knows."""
    pid: int = 0
    """HAProxy's master process; 0 when none runs."""
    reloads: int = 0
    deployed: bool = False
    """A controller's request was the cause."""
    detail: str = ""


class ErrorCode(StrEnum):
    """Why a request was refused."""

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
    CONFIGURATION_REFUSED = "configuration_refused"
    PATCH_REFUSED = "patch_refused"
    RUNNING_DIFFERS = "running_differs"
    STORAGE = "storage"
    HAPROXY_TIMEOUT = "haproxy_timeout"
    HAPROXY_UNREACHABLE = "haproxy_unreachable"
    INTERNAL = "internal"


class ErrorAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Why a request was refused, and what to do about it."""

    code: ErrorCode
    message: str
    hint: str = ""
    unbound: tuple[UnboundAddress, ...] = ()
    """Where HAProxy cannot listen, if that is the reason."""


class FrameError(HapticError):
    """Blobs in a row that cannot be read; `code` says why. Trying the same again is futile."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)


def encode_frames(blobs: Mapping[str, bytes]) -> bytes:
    """Return *blobs*, by digest, in a row."""
    parts: list[bytes] = []
    for digest, content in blobs.items():
        parts += (bytes.fromhex(digest), len(content).to_bytes(4, "big"), content)
    return b"".join(parts)


def decode_frames(data: bytes, *, largest: int) -> dict[str, bytes]:
    """Return the blobs in *data* by their digest, each of which was compared; raises FrameError."""
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
            raise FrameError(ErrorCode.TOO_LARGE, f"blob {digest} has {length} bytes; {largest} are allowed")
        position += FRAME_HEAD
        content = data[position : position + length]
        if len(content) < length:
            raise FrameError(
                ErrorCode.TRUNCATED,
                f"blob {digest} should have {length} bytes, and the upload ends after {len(content)}",
            )
        if hashlib.blake2b(content, digest_size=20).digest() != head[:20]:
            raise FrameError(ErrorCode.WRONG_DIGEST, f"the content of blob {digest} has another digest")
        position += length
        yield digest, content
