"""Operations of the agent: stage, upload, activate, patch, and queries about the running process.

A request is rejected before anything changes, or executed by the endpoint,
which completes it or rolls it back. Every error becomes an `ErrorAnswer`.
"""

from collections.abc import Awaitable, Callable
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

import trio

from haptic_trio import __version__
from haptic_trio.dataplane.agent.blobs import BlobStore, StoreFullError
from haptic_trio.dataplane.agent.controllers import Controllers
from haptic_trio.dataplane.agent.events import Observer
from haptic_trio.dataplane.agent.generations import (
    KnownGenerations,
    MissingBlobsError,
    UnknownBaseError,
    WrongContentError,
    make_manifest,
)
from haptic_trio.dataplane.agent.limits import RequestRejectedError
from haptic_trio.dataplane.agent.messages import (
    FRAME_HEAD,
    ActivateRequest,
    AgentLimits,
    AgentStatus,
    DoneAnswer,
    ErrorCode,
    EventKind,
    FetchRequest,
    FiguresRequest,
    FrameError,
    Manifest,
    PatchRequest,
    RunningAnswer,
    StageAnswer,
    StageRequest,
    StoredAnswer,
    Worker,
    decode_frames,
    encode_frames,
)
from haptic_trio.dataplane.agent.pieces import OutsideBaseError, RecipeError
from haptic_trio.dataplane.disk import UnsafePathError, check_paths
from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    DriftReport,
    Endpoint,
    EndpointError,
    EndpointStorageError,
    EndpointTimeoutError,
    PatchRejectedError,
    PortsUnavailableError,
    ReplacesProcess,
)
from haptic_trio.dataplane.figures import InstanceFigures, ReadsFigures
from haptic_trio.dataplane.local.files.instance_directory import RESERVED
from haptic_trio.errors import ProblemsError
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.plan.delta import Delta
from haptic_trio.logs import get_logger

T = TypeVar("T")

log = get_logger("agent")

ListWorkers = Callable[[], Awaitable[tuple[Worker, ...]]]

_REJECTIONS: Final[tuple[tuple[type[Exception], HTTPStatus, ErrorCode, str], ...]] = (
    (UnsafePathError, HTTPStatus.UNPROCESSABLE_ENTITY, ErrorCode.UNSAFE_PATH, ""),
    (ProblemsError, HTTPStatus.UNPROCESSABLE_ENTITY, ErrorCode.CONFIGURATION_REJECTED, ""),
    (DeploymentRejectedError, HTTPStatus.UNPROCESSABLE_ENTITY, ErrorCode.CONFIGURATION_REJECTED, ""),
    (PatchRejectedError, HTTPStatus.CONFLICT, ErrorCode.PATCH_REJECTED, "activate instead"),
    (EndpointStorageError, HTTPStatus.INSUFFICIENT_STORAGE, ErrorCode.STORAGE, "check the disk of the agent"),
    (EndpointTimeoutError, HTTPStatus.GATEWAY_TIMEOUT, ErrorCode.HAPROXY_TIMEOUT, "try again later"),
    (EndpointError, HTTPStatus.BAD_GATEWAY, ErrorCode.HAPROXY_UNREACHABLE, "try again later"),
    (UnknownBaseError, HTTPStatus.CONFLICT, ErrorCode.BASE_UNKNOWN, "send the complete manifest"),
    (OutsideBaseError, HTTPStatus.CONFLICT, ErrorCode.BASE_UNKNOWN, "send the complete manifest"),
    (WrongContentError, HTTPStatus.UNPROCESSABLE_ENTITY, ErrorCode.WRONG_DIGEST, "send the complete manifest"),
    (RecipeError, HTTPStatus.BAD_REQUEST, ErrorCode.BAD_REQUEST, "send the complete manifest"),
    (StoreFullError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, ErrorCode.TOO_LARGE, "upload less at a time"),
    (OSError, HTTPStatus.INSUFFICIENT_STORAGE, ErrorCode.STORAGE, "check the disk of the agent"),
)


def reject(error: Exception) -> RequestRejectedError:
    """Return the answer to an expected *error*; raises *error* if it is not expected."""
    if isinstance(error, RequestRejectedError):
        return error
    if isinstance(error, FrameError):
        too_large = error.code is ErrorCode.TOO_LARGE
        status = HTTPStatus.REQUEST_ENTITY_TOO_LARGE if too_large else HTTPStatus.BAD_REQUEST
        return RequestRejectedError(status, error.code, str(error), hint="repeat the complete upload")
    text = str(error)
    if isinstance(error, EndpointError):
        text = text.removeprefix(f"{error.endpoint}: ")
    for kind, status, code, hint in _REJECTIONS:
        if isinstance(error, kind):
            unbound = error.addresses if isinstance(error, PortsUnavailableError) else ()
            return RequestRejectedError(status, code, text, hint=hint, unbound=unbound)
    raise error


class Agent:
    """The operations on *endpoint*; *store* must be open and *observer* running."""

    def __init__(
        self,
        endpoint: Endpoint,
        store: BlobStore,
        observer: Observer,
        *,
        limits: AgentLimits,
        list_workers: ListWorkers,
    ) -> None:
        self.limits = limits
        self.observer = observer
        self._endpoint = endpoint
        self._store = store
        self._list_workers = list_workers
        self._known = KnownGenerations(piece_limit=limits.pieces, byte_limit=limits.generation_bytes)
        # Held while known generations or stored blobs are used.
        self._store_lock = trio.Lock()
        self._began = trio.current_time()
        self._controllers = Controllers()
        self._rival = ""

    async def read_status(self) -> AgentStatus:
        """Return versions, workers, limits and the observed state of HAProxy."""
        return AgentStatus(
            agent=__version__,
            boot=self.observer.boot,
            uptime=trio.current_time() - self._began,
            endpoint=await self._endpoint.describe(),
            workers=await self._list_workers(),
            sequence=self.observer.sequence,
            limits=self.limits,
        )

    async def read_running(self) -> RunningAnswer:
        """Return the id of the running generation; empty if unknown."""
        state = await self._endpoint.observe()
        if state.running is None:
            return RunningAnswer(generation="")
        async with self._store_lock:
            self._known.learn(state.running)
        return RunningAnswer(generation=state.running.id, capabilities=state.capabilities)

    async def read_manifest(self, generation: str) -> Manifest:
        """Return the complete manifest of a known generation."""
        async with self._store_lock:
            known = self._require(generation)
            return await trio.to_thread.run_sync(lambda: make_manifest(self._known.cut(known)))

    def _require(self, generation: str) -> Generation:
        known = self._known.find(generation)
        if known is None:
            raise RequestRejectedError(
                HTTPStatus.CONFLICT,
                ErrorCode.GENERATION_UNKNOWN,
                f"the agent does not have generation {generation}",
                hint="send its manifest first",
            )
        return known

    async def fetch(self, request: FetchRequest) -> bytes:
        """Return frames with blobs of known generations: as many as fit, at least one.

        Raises `RequestRejectedError` for an unknown blob.
        """
        async with self._store_lock:
            pieces = await trio.to_thread.run_sync(self._known.pieces)
        found: dict[str, bytes] = {}
        size = 0
        for digest in request.blobs:
            content = pieces.get(digest) or self._store.find(digest)
            if content is None:
                raise RequestRejectedError(HTTPStatus.NOT_FOUND, ErrorCode.NOT_FOUND, f"blob {digest} does not exist")
            size += FRAME_HEAD + len(content)
            if found and size > self.limits.upload_bytes:
                break
            found[digest] = content
        return encode_frames(found)

    async def upload(self, data: bytes) -> StoredAnswer:
        """Store the blobs in the frames *data*: all of them, or none."""
        blobs = await trio.to_thread.run_sync(partial(decode_frames, data, largest=self.limits.blob_bytes))
        async with self._store_lock:
            await trio.to_thread.run_sync(self._store.add, blobs)
        return StoredAnswer(stored=len(blobs))

    async def stage(self, request: StageRequest) -> StageAnswer:
        """Check the paths, then assemble the generation, or return its missing blobs."""
        manifest = request.manifest
        check_paths((file.path for file in manifest.files), RESERVED)
        async with self._store_lock:
            await self._learn_base(manifest.base)
            try:
                await trio.to_thread.run_sync(self._known.assemble, manifest, self._store.find)
            except MissingBlobsError as exc:
                return StageAnswer(generation=manifest.id, missing=exc.missing)
        return StageAnswer(generation=manifest.id)

    async def _apply(self, delta: Delta | None) -> None:
        if delta is None:
            return
        check_paths((file.path for file in delta.files), RESERVED)
        async with self._store_lock:
            await self._learn_base(delta.base)
            await trio.to_thread.run_sync(self._known.apply, delta)

    async def _learn_base(self, base: str | None) -> None:
        if base is not None and self._known.find(base) is None:
            # After a start, the agent knows only the generation on disk.
            running = await self._endpoint.fetch_running()
            if running is not None:
                self._known.learn(running)

    async def activate(self, request: ActivateRequest, controller: str = "") -> DoneAnswer:
        """Check, switch, and load a generation for *controller*."""
        began = trio.current_time()
        await self._apply(request.delta)
        async with self.observer.turn:
            desired = self._require(request.generation)
            await self._deploy(partial(self._endpoint.activate, desired))
        return await self._done(desired.id, began, controller)

    async def patch(self, request: PatchRequest, controller: str = "") -> DoneAnswer:
        """Execute a plan of *controller*; raises `RequestRejectedError` if it is not for the running generation."""
        began = trio.current_time()
        await self._apply(request.delta)
        async with self.observer.turn:
            desired = self._require(request.generation)
            running = await self._endpoint.fetch_running()
            if running is None or running.id != request.running:
                raise RequestRejectedError(
                    HTTPStatus.CONFLICT,
                    ErrorCode.RUNNING_DIFFERS,
                    f"the plan is for generation {request.running}, but"
                    f" {running.id if running is not None else 'an unknown generation'} is running",
                    hint="read the running generation and plan again",
                )
            await self._deploy(partial(self._endpoint.patch, desired, request.plan))
        return await self._done(desired.id, began, controller)

    async def patch_former(self, request: PatchRequest, controller: str = "") -> DoneAnswer:
        """Execute a plan of *controller* on the process that an `activate` in progress replaces.

        Raises `PatchRejectedError` if the endpoint cannot change such a process.
        """
        began = trio.current_time()
        await self._apply(request.delta)
        await self._apply(request.successor)
        if not isinstance(self._endpoint, ReplacesProcess):
            raise PatchRejectedError(self._endpoint.name, "a process that is being replaced cannot be changed")
        # Without the turn: the activation holds it.
        running, desired = self._require(request.running), self._require(request.generation)
        successor = self._require(request.successor.id) if request.successor is not None else None
        await self._endpoint.patch_former(running, desired, request.plan, successor)
        return await self._done(desired.id, began, controller)

    async def repair(self) -> DriftReport:
        """Let the endpoint compare the process with the generation that was deployed last, and repair differences."""
        async with self.observer.turn:
            report = await self._endpoint.repair()
        if report.found:
            kinds = ", ".join(f"{kind} {count}" for kind, count in sorted(report.found.items()))
            self.observer.publish(EventKind.DRIFT, deployed=True, detail=kinds)
        return report

    async def read_figures(self, request: FiguresRequest) -> InstanceFigures:
        """Return the live figures; raises `RequestRejectedError` if the endpoint has none."""
        if not isinstance(self._endpoint, ReadsFigures):
            raise RequestRejectedError(HTTPStatus.NOT_FOUND, ErrorCode.NOT_FOUND, "the endpoint has no live figures")
        return await self._endpoint.read_figures(request.backends)

    async def _deploy(self, work: Callable[[], Awaitable[object]]) -> None:
        failure: EndpointError | None = None
        try:
            await work()
        except EndpointError as exc:
            failure = exc
        await self.observer.observe(deployed=True)
        if failure is not None:
            raise failure

    async def _done(self, generation: str, began: float, controller: str) -> DoneAnswer:
        if len(self._store):
            async with self._store_lock:
                known = await trio.to_thread.run_sync(self._known.pieces)
                await trio.to_thread.run_sync(self._store.release, known.keys())
        rival = self._controllers.note(controller, trio.current_time())
        if rival and rival != self._rival:
            log.warning("two controllers deploy to this agent in turns", controllers=sorted((controller, rival)))
        self._rival = rival
        return DoneAnswer(generation=generation, seconds=trio.current_time() - began, rival=rival)
