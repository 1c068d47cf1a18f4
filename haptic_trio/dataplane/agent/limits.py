"""Access control and limits of an agent: clients, rates, concurrency and time."""

import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import msgspec
import trio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haptic_trio.dataplane.agent.messages import JSON_TYPE, AgentLimits, ErrorAnswer, ErrorCode
from haptic_trio.dataplane.agent.tls import Client, current_client
from haptic_trio.dataplane.endpoint import UnboundAddress
from haptic_trio.errors import HapticError

BURST: Final = 3.0
"""Size of the token bucket, in seconds of the rate."""

AUTHORISE: Final = "haptic_trio.authorise"
"""Key in a websocket's scope: a function that raises RequestRejectedError if the client is no longer allowed."""


class RequestRejectedError(HapticError):
    """A request is answered with an error; its code says whether a retry helps."""

    def __init__(
        self,
        status: HTTPStatus,
        code: ErrorCode,
        message: str,
        *,
        hint: str = "",
        unbound: tuple[UnboundAddress, ...] = (),
    ) -> None:
        self.status = status
        self.answer = ErrorAnswer(code=code, message=message, hint=hint, unbound=unbound)
        super().__init__(message)


class TokenBucket:
    """Token bucket: *rate* tokens per second, at most *size*; *clock* returns seconds."""

    def __init__(self, rate: float, size: float, *, clock: Callable[[], float]) -> None:
        self._rate = rate
        self._size = size
        self._clock = clock
        self._tokens = size
        self._filled = clock()

    def take(self) -> bool:
        """Take a token; False if there is none."""
        now = self._clock()
        self._tokens = min(self._size, self._tokens + (now - self._filled) * self._rate)
        self._filled = now
        if self._tokens < 1.0:
            return False
        self._tokens -= 1.0
        return True


def check_client(client: Client | None, *, allowed: frozenset[str], trust: int, now: float) -> None:
    """Raise RequestRejectedError unless *client* is allowed; an empty *allowed* allows every trusted certificate.

    *trust* counts changes of the CA certificates, *now* is in seconds since
    1970: a connection may outlive the certificates it was opened with.
    """
    if client is None:
        raise RequestRejectedError(
            HTTPStatus.FORBIDDEN, ErrorCode.CLIENT_NOT_ALLOWED, "the connection has no client certificate"
        )
    if client.expires <= now or client.trust != trust:
        reason = "the client certificate has expired" if client.expires <= now else "the CA certificates have changed"
        raise RequestRejectedError(
            HTTPStatus.MISDIRECTED_REQUEST, ErrorCode.TRUST_CHANGED, reason, hint="open a new connection"
        )
    if allowed and not allowed & client.names:
        names = ", ".join(sorted(client.names)) or "no name"
        raise RequestRejectedError(
            HTTPStatus.FORBIDDEN,
            ErrorCode.CLIENT_NOT_ALLOWED,
            f"the client with the certificate of {names} is not allowed",
            hint="allow it with --allow-client",
        )


class Guard:
    """ASGI middleware: checks the client, rate and concurrency, and ends requests that take too long."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: AgentLimits,
        allowed: frozenset[str],
        trust: Callable[[], int],
        clock: Callable[[], float] = trio.current_time,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._app = app
        self._limits = limits
        self._allowed = allowed
        self._trust = trust
        self._wall_clock = wall_clock
        self._bucket = TokenBucket(limits.rate, limits.rate * BURST, clock=clock)
        self._running = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request (ASGI)."""
        if scope["type"] not in {"http", "websocket"}:
            await self._app(scope, receive, send)
            return
        try:
            self._admit(scope)
        except RequestRejectedError as exc:
            await send_rejection(scope, send, exc)
            return
        if scope["type"] == "websocket":
            # It may stay open for long, so the handler checks again.
            scope[AUTHORISE] = self._check_client
            await self._app(scope, receive, send)
            return
        self._running += 1
        try:
            await self._serve(scope, receive, send)
        finally:
            self._running -= 1

    def _check_client(self) -> None:
        check_client(current_client(), allowed=self._allowed, trust=self._trust(), now=self._wall_clock())

    def _admit(self, scope: Scope) -> None:
        self._check_client()
        if not self._bucket.take():
            raise RequestRejectedError(
                HTTPStatus.TOO_MANY_REQUESTS,
                ErrorCode.TOO_MANY_REQUESTS,
                f"more than {self._limits.rate:g} requests per second",
                hint="try again later",
            )
        if scope["type"] == "http" and self._running >= self._limits.concurrent:
            raise RequestRejectedError(
                HTTPStatus.SERVICE_UNAVAILABLE,
                ErrorCode.BUSY,
                f"{self._running} requests are in progress",
                hint="try again later",
            )

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        answering = False

        async def send_and_record(message: Message) -> None:
            nonlocal answering
            answering = True
            await send(message)

        with trio.move_on_after(self._limits.deadline) as limit:
            await self._app(scope, receive, send_and_record)
        if limit.cancelled_caught and not answering:
            await send_rejection(
                scope,
                send,
                RequestRejectedError(
                    HTTPStatus.GATEWAY_TIMEOUT,
                    ErrorCode.DEADLINE,
                    f"cancelled after {self._limits.deadline:g} s",
                    hint="read the running generation before a retry",
                ),
            )


async def send_rejection(scope: Scope, send: Send, rejection: RequestRejectedError) -> None:
    """Answer a request, or a websocket handshake, with an error."""
    body = msgspec.json.encode(rejection.answer)
    headers = [(b"content-type", JSON_TYPE.encode()), (b"content-length", str(len(body)).encode())]
    if rejection.answer.code in {ErrorCode.TRUST_CHANGED, ErrorCode.CLIENT_NOT_ALLOWED}:
        headers.append((b"connection", b"close"))
    kind = "websocket.http.response" if scope["type"] == "websocket" else "http.response"
    await send({"type": f"{kind}.start", "status": int(rejection.status), "headers": headers})
    await send({"type": f"{kind}.body", "body": body})
