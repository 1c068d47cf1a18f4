"""HTTP routes of the agent's operations, and the websocket of its events."""

from collections.abc import Awaitable, Callable
from contextlib import aclosing, suppress
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

import msgspec
import trio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from haptic_trio.dataplane.agent.api import Agent, reject
from haptic_trio.dataplane.agent.events import Observer
from haptic_trio.dataplane.agent.limits import AUTHORISE, RequestRejectedError
from haptic_trio.dataplane.agent.messages import (
    CONTROLLER_HEADER,
    FRAMES_TYPE,
    JSON_TYPE,
    NAME_LENGTH,
    ActivateRequest,
    ErrorCode,
    EventKind,
    FetchRequest,
    FiguresRequest,
    PatchRequest,
    StageRequest,
)
from haptic_trio.errors import INVALID_JSON, HapticError

HEARTBEAT: Final = 15.0
"""Seconds without an event after which a heartbeat is sent."""
DRAINED: Final = 32 << 20
"""Bytes that are read of a request that is too large: a client that is still sending does not read the answer."""
MOST_SUBSCRIBERS: Final = 16
CLOSE_LATER: Final = 1013
CLOSE_FORBIDDEN: Final = 1008
"""Close codes of websockets: try again later, and not allowed."""

T = TypeVar("T")
Handler = Callable[[Request], Awaitable[Response]]


def make_agent_app(agent: Agent, *, heartbeat: float = HEARTBEAT) -> Starlette:
    """Return the ASGI application with the routes below `/v1/`."""
    limits = agent.limits

    async def status(_request: Request) -> Response:
        return _json(await agent.read_status())

    async def running(_request: Request) -> Response:
        return _json(await agent.read_running())

    async def manifest(request: Request) -> Response:
        return _json(await agent.read_manifest(request.path_params["generation"]))

    async def upload(request: Request) -> Response:
        return _json(await agent.upload(await _read_body(request, limits.upload_bytes)))

    async def fetch(request: Request) -> Response:
        wanted = await _read_json(request, FetchRequest, limits.manifest_bytes)
        return Response(await agent.fetch(wanted), media_type=FRAMES_TYPE)

    async def stage(request: Request) -> Response:
        return _json(await agent.stage(await _read_json(request, StageRequest, limits.manifest_bytes)))

    async def activate(request: Request) -> Response:
        return _json(
            await agent.activate(
                await _read_json(request, ActivateRequest, limits.manifest_bytes), _controller_of(request)
            )
        )

    async def patch(request: Request) -> Response:
        return _json(
            await agent.patch(await _read_json(request, PatchRequest, limits.manifest_bytes), _controller_of(request))
        )

    async def patch_former(request: Request) -> Response:
        wanted = await _read_json(request, PatchRequest, limits.manifest_bytes)
        return _json(await agent.patch_former(wanted, _controller_of(request)))

    async def repair(_request: Request) -> Response:
        return _json(await agent.repair())

    async def events(socket: WebSocket) -> None:
        await _send_events(socket, agent.observer, heartbeat)

    return Starlette(
        routes=[
            Route("/v1/status", status),
            Route("/v1/running", running),
            Route("/v1/generations", stage, methods=["POST"]),
            Route("/v1/generations/{generation}", manifest),
            Route("/v1/blobs", upload, methods=["POST"]),
            Route("/v1/blobs/fetch", fetch, methods=["POST"]),
            Route("/v1/activate", activate, methods=["POST"]),
            Route("/v1/patch", patch, methods=["POST"]),
            Route("/v1/patch-former", patch_former, methods=["POST"]),
            Route("/v1/repair", repair, methods=["POST"]),
            Route("/v1/figures", _figures_of(agent), methods=["POST"]),
            WebSocketRoute("/v1/events", events),
        ],
        exception_handlers={
            HapticError: _answer_error,
            OSError: _answer_error,
            HTTPException: _answer_unknown,
            ClientDisconnect: _answer_disconnected,
            Exception: _answer_bug,
        },
    )


def _figures_of(agent: Agent) -> Handler:
    async def figures(request: Request) -> Response:
        wanted = await _read_json(request, FiguresRequest, agent.limits.manifest_bytes)
        return _json(await agent.read_figures(wanted))

    return figures


def _controller_of(request: Request) -> str:
    return request.headers.get(CONTROLLER_HEADER, "")[:NAME_LENGTH]


async def _read_body(request: Request, limit: int) -> bytes:
    body = bytearray()
    size = 0
    async with aclosing(request.stream()) as stream:
        async for chunk in stream:
            size += len(chunk)
            if size <= limit:
                body += chunk
            elif size > limit + DRAINED:
                break
    if size > limit:
        raise _too_large(limit)
    return bytes(body)


def _too_large(limit: int) -> RequestRejectedError:
    return RequestRejectedError(
        HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
        ErrorCode.TOO_LARGE,
        f"the request has more than {limit} bytes",
        hint="upload blobs in several requests",
    )


async def _read_json(request: Request, kind: type[T], limit: int) -> T:
    body = await _read_body(request, limit)
    try:
        # A complete manifest has hundreds of kilobytes.
        return await trio.to_thread.run_sync(partial(msgspec.json.decode, body, type=kind))
    except INVALID_JSON as exc:
        code = ErrorCode.TRUNCATED if "truncated" in str(exc) else ErrorCode.BAD_REQUEST
        raise RequestRejectedError(HTTPStatus.BAD_REQUEST, code, str(exc), hint="see docs/agent.md") from exc


def _json(content: msgspec.Struct, status: HTTPStatus = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(content), status_code=int(status), media_type=JSON_TYPE)


async def _answer_error(_request: Request, error: Exception) -> Response:
    rejection = reject(error)
    return _json(rejection.answer, rejection.status)


async def _answer_unknown(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    rejection = RequestRejectedError(
        HTTPStatus(error.status_code),
        ErrorCode.NOT_FOUND if error.status_code == HTTPStatus.NOT_FOUND else ErrorCode.BAD_REQUEST,
        f"{request.method} {request.url.path}: {error.detail}",
        hint="see docs/agent.md",
    )
    return _json(rejection.answer, rejection.status)


async def _answer_disconnected(_request: Request, _error: Exception) -> Response:
    return Response(status_code=int(HTTPStatus.BAD_REQUEST))


async def _answer_bug(_request: Request, error: Exception) -> Response:
    # The server logs it with its traceback.
    message = f"the agent failed: {type(error).__name__}"
    rejection = RequestRejectedError(HTTPStatus.INTERNAL_SERVER_ERROR, ErrorCode.INTERNAL, message)
    return _json(rejection.answer, rejection.status)


async def _send_events(socket: WebSocket, observer: Observer, heartbeat: float) -> None:
    await socket.accept()
    if observer.subscribers >= MOST_SUBSCRIBERS:
        await socket.close(CLOSE_LATER, f"there are {MOST_SUBSCRIBERS} subscribers already")
        return
    with observer.subscribe() as subscription, suppress(WebSocketDisconnect):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_cancel_when_closed, socket, nursery.cancel_scope)
            rejection = ""
            while not rejection:
                event = observer.present(EventKind.HEARTBEAT)
                with trio.move_on_after(heartbeat):
                    event = await subscription.receive()
                rejection = _check_client(socket)
                if not rejection:
                    await socket.send_text(msgspec.json.encode(event).decode())
            await socket.close(CLOSE_FORBIDDEN, rejection)
            nursery.cancel_scope.cancel(reason="the client is no longer allowed")


def _check_client(socket: WebSocket) -> str:
    try:
        socket.scope[AUTHORISE]()
    except RequestRejectedError as exc:
        return str(exc)
    return ""


async def _cancel_when_closed(socket: WebSocket, scope: trio.CancelScope) -> None:
    while (await socket.receive())["type"] != "websocket.disconnect":
        # Messages of subscribers are ignored.
        continue
    scope.cancel(reason="the subscriber has disconnected")
