"""Endpoint for an HAProxy beside an agent.

A deployment is mostly one request: the operation with the delta from the
running generation. A large change is staged first: a manifest based on the
running generation, and the pieces that the agent misses. If the agent does
not know the base (it was restarted, or another controller deployed to it),
it gets a complete manifest, and again only the pieces that it misses.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import msgspec
import trio

from haptic_trio.dataplane.agent.client import (
    MESSAGE_LENGTH,
    OPERATION_LIMIT,
    AgentAnswerError,
    AgentClient,
    AgentConflictError,
)
from haptic_trio.dataplane.agent.generations import (
    CutGeneration,
    KnownGenerations,
    MissingBlobsError,
    UnknownBaseError,
    WrongContentError,
    make_manifest,
    pieces_of,
)
from haptic_trio.dataplane.agent.messages import (
    FRAME_HEAD,
    NAME_LENGTH,
    ActivateRequest,
    AgentLimits,
    AgentStatus,
    DoneAnswer,
    FetchRequest,
    FiguresRequest,
    Manifest,
    PatchRequest,
    RepairRequest,
    RunningAnswer,
    StageAnswer,
    StageRequest,
    StoredAnswer,
    encode_frames,
)
from haptic_trio.dataplane.agent.pieces import RecipeError, TooLargeError
from haptic_trio.dataplane.endpoint import DriftReport, EndpointInfo, ObservedState, PatchRejectedError
from haptic_trio.dataplane.figures import MOST_BACKENDS, InstanceFigures
from haptic_trio.errors import ProblemsError
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.delta import Delta, encode_delta, make_delta
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.runtime.differences import Kind

LARGEST_DELTA: Final = 256 << 10
"""Bytes of a delta that is sent with the operation; a larger change is staged first, in pieces."""
ROUNDS: Final = 4
"""Uploads after which the agent must have all pieces."""
FETCHED: Final = 4096
"""Blobs in one request."""
FETCHED_BYTES: Final = 64 << 20
"""Of a generation that is fetched: an agent that was broken into must not fill the controller's memory."""
FETCHED_TEXT: Final = 16 << 20
"""Of its haproxy.cfg, whose sections may take 30 times as much memory."""
FETCHED_PIECES: Final = 250_000
MOST_FETCHES: Final = 128
"""Requests for blobs of one generation; an agent answers each with as many blobs as fit."""

MOST_REASONS: Final = 100
"""Limit of the reasons in one report of an agent."""
OTHER: Final = "other"
"""Kind of a difference that this version does not know."""
_KINDS: Final = frozenset(map(str, Kind))

SendOperation = Callable[[Delta | None], Awaitable[DoneAnswer]]


class Cuts:
    """Generations and their pieces, cut once for all agents."""

    def __init__(self) -> None:
        self._known = KnownGenerations(piece_limit=FETCHED_PIECES, byte_limit=FETCHED_BYTES, text_limit=FETCHED_TEXT)
        self._fetched: Generation | None = None
        """The newest one of an agent: others mostly run the same one."""
        self._lock = trio.Lock()

    async def cut(self, generation: Generation) -> CutGeneration:
        """Return *generation* with its pieces."""
        async with self._lock:
            return await trio.to_thread.run_sync(self._known.cut, generation)

    async def assemble(self, manifest: Manifest, pieces: dict[str, bytes]) -> Generation:
        """Return the generation of *manifest*; raises as `KnownGenerations.assemble` does."""
        async with self._lock:
            if self._fetched is None or self._fetched.id != manifest.id:
                # Only what this process has made is the base of others.
                assemble = partial(self._known.assemble, manifest, pieces.get, keep=False)
                self._fetched = await trio.to_thread.run_sync(assemble)
            return self._fetched


class AgentLink:
    """State of the connection to one agent; lives as long as its follower."""

    def __init__(self, client: AgentClient, cuts: Cuts) -> None:
        self.client = client
        self.cuts = cuts
        self.running: Generation | None = None
        """The generation that the agent ran at its last answer; None if unknown."""
        self.loading: Generation | None = None
        """The generation of the `activate` in progress, if there is one."""
        self.successors: dict[str, Generation] = {}
        """By id: what the process may run after the last `activate`; see `ReplacesProcess.patch_former`."""
        self.limits: AgentLimits | None = None
        self.rival = ""
        """Name of another controller that deploys to the agent, according to its last answer; empty: none."""
        self.old_workers: int | None = None
        """Old workers of HAProxy according to the last event; None while the agent does not answer."""


class RemoteAgent:
    """The endpoint behind *link*; a renewed endpoint is a new object with the same link."""

    def __init__(self, link: AgentLink) -> None:
        self._link = link
        self._client = link.client

    @property
    def name(self) -> str:
        """The name that the controller gives the agent."""
        return self._client.address.name

    @property
    def bytes_sent(self) -> int:
        """Bytes of all requests to this agent so far."""
        return self._client.bytes_sent

    @property
    def old_workers(self) -> int | None:
        """See `CountsOldWorkers`; at most one interval of heartbeats ago."""
        return self._link.old_workers

    async def fetch_status(self) -> AgentStatus:
        """Return the status of the agent; records its limits."""
        status = await self._client.get(AgentStatus, "/v1/status")
        self._link.limits = status.limits
        return status

    async def describe(self) -> EndpointInfo:
        """Return the observed state of the agent's HAProxy."""
        return msgspec.structs.replace((await self.fetch_status()).endpoint, name=self.name)

    async def read_figures(self, backends: Sequence[str]) -> InstanceFigures:
        """See `ReadsFigures.read_figures`; raises `AgentAnswerError` for an agent of a version without figures."""
        request = FiguresRequest(backends=tuple(backends)[:MOST_BACKENDS])
        return await self._client.post(InstanceFigures, "/v1/figures", request)

    async def fetch_running(self) -> Generation | None:
        """Return the running generation; it is transferred only if it is not known already."""
        return (await self.observe()).running

    async def observe(self) -> ObservedState:
        """Return the running generation and the capabilities of the process."""
        answer = await self._client.get(RunningAnswer, "/v1/running")
        if not answer.generation:
            self._link.running = None
            return ObservedState(running=None)
        known = self._link.running
        if known is None or known.id != answer.generation:
            known = self._link.successors.get(answer.generation) or await self._fetch(answer.generation)
            self._link.running, self._link.successors = known, {}
        return ObservedState(running=known, capabilities=answer.capabilities)

    async def _fetch(self, generation: str) -> Generation | None:
        """Return the generation that the agent has; None if it is too large: it counts as unknown."""
        manifest = await self._client.get(Manifest, f"/v1/generations/{generation}")
        pieces: dict[str, bytes] = {}
        size = 0
        try:
            for _turn in range(MOST_FETCHES):
                try:
                    return await self._link.cuts.assemble(manifest, pieces)
                except MissingBlobsError as exc:
                    wanted = exc.missing[:FETCHED]
                found = await self._client.download("/v1/blobs/fetch", FetchRequest(blobs=wanted))
                new = {digest: found[digest] for digest in wanted if digest in found}
                if not new:
                    raise AgentAnswerError(self.name, "it has no blobs of its own generation")
                size += sum(map(len, new.values()))
                if size > FETCHED_BYTES:
                    return None
                pieces |= new
            raise AgentAnswerError(self.name, f"it has sent its generation in more than {MOST_FETCHES} parts")
        except TooLargeError:
            return None
        except (UnknownBaseError, WrongContentError, RecipeError, ProblemsError) as exc:
            raise AgentAnswerError(self.name, f"generation {generation}: {exc}") from exc

    async def activate(self, generation: Generation) -> None:
        """Let the agent check, switch, and load; if that is rejected, everything is as before."""

        async def send(delta: Delta | None) -> DoneAnswer:
            request = ActivateRequest(generation=generation.id, delta=delta)
            return await self._client.post(DoneAnswer, "/v1/activate", request, limit=OPERATION_LIMIT)

        self._link.loading, self._link.successors = generation, {}
        try:
            await self._execute(generation, send)
        finally:
            self._link.loading = None

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Let the agent execute *plan*, which must be based on the last result of `fetch_running`.

        Raises `PatchRejectedError` if the running generation is not known.
        """
        running = self._link.running
        if running is None:
            raise PatchRejectedError(self.name, "the running generation is not known")

        async def send(delta: Delta | None) -> DoneAnswer:
            request = PatchRequest(generation=generation.id, running=running.id, plan=plan, delta=delta)
            return await self._client.post(DoneAnswer, "/v1/patch", request, limit=OPERATION_LIMIT)

        await self._execute(generation, send)

    async def patch_former(
        self, running: Generation, generation: Generation, plan: Plan, successor: Generation | None = None
    ) -> None:
        """See `ReplacesProcess.patch_former`; raises `PatchRejectedError` also for a change that is too large."""
        base, loading = self._link.running, self._link.loading
        delta = await trio.to_thread.run_sync(_make_small_delta, base, generation)
        if base is None or base.id != running.id or delta is None:
            raise PatchRejectedError(self.name, "the former process has been replaced, or the change is too large")
        further = await trio.to_thread.run_sync(_make_small_delta, loading, successor)
        if successor is not None and further is not None:
            self._link.successors[successor.id] = successor
        request = PatchRequest(generation=generation.id, running=running.id, plan=plan, delta=delta, successor=further)
        await self._client.post(DoneAnswer, "/v1/patch-former", request, limit=OPERATION_LIMIT)
        # The answer to `activate` may have come first.
        if self._link.running is base:
            self._link.running = generation

    async def repair(self) -> DriftReport:
        """Let the agent compare the process with the generation that was deployed last, and repair differences."""
        report = await self._client.post(DriftReport, "/v1/repair", RepairRequest(), limit=OPERATION_LIMIT)
        found = Counter[str]()
        for kind, number in report.found.items():
            # Each kind becomes a label of a metric.
            found[kind if kind in _KINDS else OTHER] += number
        reasons = tuple(reason[:MESSAGE_LENGTH].strip() or OTHER for reason in report.reasons[:MOST_REASONS])
        return msgspec.structs.replace(report, found=dict(found), reasons=reasons)

    async def _execute(self, generation: Generation, send: SendOperation) -> None:
        delta = await trio.to_thread.run_sync(_make_small_delta, self._link.running, generation)
        try:
            if delta is None:
                await self._stage(generation)
            done = await send(delta)
        except AgentConflictError:
            # The agent was restarted, or has dropped the base.
            await self._stage(generation)
            done = await send(None)
        self._link.running = generation
        self._link.rival = done.rival[:NAME_LENGTH]

    async def _stage(self, generation: Generation) -> None:
        desired = await self._link.cuts.cut(generation)
        running = self._link.running
        base = await self._link.cuts.cut(running) if running is not None else None
        for _round in range(ROUNDS):
            manifest = await trio.to_thread.run_sync(partial(make_manifest, desired, base))
            try:
                answer = await self._client.post(StageAnswer, "/v1/generations", StageRequest(manifest=manifest))
            except AgentConflictError as exc:
                # A base that another process cut differently gives a wrong digest.
                if base is None:
                    raise AgentAnswerError(self.name, f"it rejects a complete manifest: {exc}") from exc
                base = None
                continue
            if not answer.missing:
                return
            await self._upload(desired, answer.missing)
        raise AgentAnswerError(self.name, f"blobs are still missing after {ROUNDS} uploads")

    async def _upload(self, desired: CutGeneration, missing: tuple[str, ...]) -> None:
        pieces = await trio.to_thread.run_sync(pieces_of, desired)
        limits = self._link.limits or (await self.fetch_status()).limits
        batch: dict[str, bytes] = {}
        size = 0
        for digest in missing:
            piece = pieces.get(digest)
            if piece is None:
                raise AgentAnswerError(self.name, f"it asks for a blob that is not in the manifest: {digest}")
            if batch and size + FRAME_HEAD + len(piece) > limits.upload_bytes:
                await self._send_blobs(batch)
                batch, size = {}, 0
            batch[digest] = piece
            size += FRAME_HEAD + len(piece)
        await self._send_blobs(batch)

    async def _send_blobs(self, blobs: dict[str, bytes]) -> None:
        await self._client.upload(StoredAnswer, "/v1/blobs", encode_frames(blobs))


def _make_small_delta(base: Generation | None, generation: Generation | None) -> Delta | None:
    """Return the delta that is sent with an operation; None without one, or if it is too large."""
    if base is None or generation is None or base.id == generation.id:
        return None
    delta = make_delta(base, generation)
    return delta if len(encode_delta(delta)) <= LARGEST_DELTA else None
