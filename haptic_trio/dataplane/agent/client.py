"""HTTPS client for one agent: client certificate, limits, and errors mapped once at this edge."""

import re
import secrets
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec
import trio

from haptic_trio.dataplane.agent.messages import (
    CONTROLLER_HEADER,
    FRAMES_TYPE,
    JSON_TYPE,
    ErrorAnswer,
    ErrorCode,
    FrameError,
    decode_frames,
)
from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    EndpointError,
    EndpointStorageError,
    EndpointTimeoutError,
    EndpointUnreachableError,
    PatchRejectedError,
    PortsUnavailableError,
)
from haptic_trio.errors import INVALID_JSON
from haptic_trio.http1 import HttpTransport

CONNECT_LIMIT: Final = 5.0
"""Seconds for a connection, TLS included."""
QUERY_LIMIT: Final = 30.0
"""Seconds for a request without an effect on HAProxy."""
OPERATION_LIMIT: Final = 180.0
"""Seconds for a deployment; the agent's own limit is shorter."""
ANSWER_BYTES: Final = 64 << 20
"""Bytes of one answer that are accepted."""
IDLE_LIMIT: Final = 20.0
"""Seconds that an idle connection is kept: less than the agent keeps it, so that no closing one is used."""
MESSAGE_LENGTH: Final = 4000
"""Characters of an error message that are kept."""
MOST_ADDRESSES: Final = 1000
"""Addresses in one answer that HAProxy cannot bind; the others are in the next one."""
TRUST_RETRIES: Final = 3
CONTROLLER: Final = re.sub(r"[^\w.-]", "", socket.gethostname(), flags=re.ASCII) + f"-{secrets.token_hex(3)}"
"""Name of this process for agents, which notice when two controllers deploy in turns."""

T = TypeVar("T")


class AgentAccessError(EndpointError):
    """Agent or controller rejects the other's certificate; a retry helps once the certificates are repaired."""


class AgentAnswerError(EndpointError):
    """The answer does not follow the agent's protocol, or the agent does not understand the request; permanent."""


class AgentConflictError(EndpointError):
    """The agent misses data that the controller can send (`code`); nothing was done, and a retry with it helps."""

    def __init__(self, endpoint: str, answer: ErrorAnswer) -> None:
        self.code = answer.code
        super().__init__(endpoint, answer.message)


_ERRORS: Final[dict[ErrorCode, type[EndpointError]]] = {
    ErrorCode.CONFIGURATION_REJECTED: DeploymentRejectedError,
    ErrorCode.UNSAFE_PATH: DeploymentRejectedError,
    ErrorCode.PATCH_REJECTED: PatchRejectedError,
    ErrorCode.RUNNING_DIFFERS: PatchRejectedError,
    ErrorCode.CLIENT_NOT_ALLOWED: AgentAccessError,
    ErrorCode.STORAGE: EndpointStorageError,
    ErrorCode.HAPROXY_TIMEOUT: EndpointTimeoutError,
    ErrorCode.DEADLINE: EndpointTimeoutError,
    ErrorCode.HAPROXY_UNREACHABLE: EndpointUnreachableError,
    ErrorCode.BUSY: EndpointUnreachableError,
    ErrorCode.TOO_MANY_REQUESTS: EndpointUnreachableError,
    ErrorCode.TRUST_CHANGED: EndpointUnreachableError,
    ErrorCode.INTERNAL: EndpointUnreachableError,
}
_CONFLICTS: Final = frozenset({ErrorCode.BASE_UNKNOWN, ErrorCode.GENERATION_UNKNOWN, ErrorCode.WRONG_DIGEST})


class AgentAddress(msgspec.Struct, frozen=True, kw_only=True):
    """Address of an agent."""

    name: str
    """Name of the endpoint."""
    url: str
    """`https://host:port`."""
    server_name: str = ""
    """Required name in its certificate; empty: the host of the address."""

    @property
    def host(self) -> str:
        """The host of the address."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """The port of the address."""
        return urlsplit(self.url).port or 443


class AgentClient:
    """Sends requests to the agent at *address*; *http* belongs to the caller, see `open_http`.

    Every method raises EndpointError: the subclass for the error code of the
    answer, EndpointUnreachableError and EndpointTimeoutError for the network,
    AgentAccessError for certificates, AgentAnswerError for unreadable answers.
    """

    def __init__(self, http: httpx.AsyncClient, address: AgentAddress) -> None:
        self.address = address
        self.bytes_sent = 0
        """Of all requests with their headers, without TLS."""
        self._http = http

    async def get(self, kind: type[T], path: str) -> T:
        """GET *path* and return its answer as *kind*."""
        return await self._decode(kind, path, await self._send("GET", path, b"", QUERY_LIMIT))

    async def post(self, kind: type[T], path: str, request: msgspec.Struct, *, limit: float = QUERY_LIMIT) -> T:
        """POST *request* to *path* and return its answer as *kind*; *limit* is in seconds."""
        return await self._decode(kind, path, await self._post(path, request, limit))

    async def upload(self, kind: type[T], path: str, frames: bytes) -> T:
        """POST blobs to *path* and return the answer as *kind*."""
        answer = await self._send("POST", path, frames, QUERY_LIMIT, content_type=FRAMES_TYPE)
        return await self._decode(kind, path, answer)

    async def download(self, path: str, request: msgspec.Struct) -> dict[str, bytes]:
        """POST *request* to *path* and return the blobs of the answer, by digest.

        Raises `AgentAnswerError` for an answer that cannot be decoded.
        """
        answer = await self._post(path, request, QUERY_LIMIT)
        try:
            return await trio.to_thread.run_sync(partial(decode_frames, answer, largest=ANSWER_BYTES))
        except FrameError as exc:
            raise AgentAnswerError(self.address.name, f"{path}: {exc}") from exc

    async def _post(self, path: str, request: msgspec.Struct, limit: float) -> bytes:
        try:
            content = await trio.to_thread.run_sync(msgspec.json.encode, request)
        except UnicodeEncodeError as exc:
            raise AgentAnswerError(self.address.name, f"{path}: the request is not UTF-8: {exc}") from exc
        return await self._send("POST", path, content, limit)

    async def _decode(self, kind: type[T], path: str, answer: bytes) -> T:
        try:
            return await trio.to_thread.run_sync(partial(msgspec.json.decode, answer, type=kind))
        except INVALID_JSON as exc:
            raise AgentAnswerError(self.address.name, f"{path}: {exc}") from exc

    async def _send(
        self, method: str, path: str, content: bytes, limit: float, *, content_type: str = JSON_TYPE
    ) -> bytes:
        name = self.address.name
        called = f"{method} {path}"
        headers = {"Content-Type": content_type} if content else {}
        extensions = {"sni_hostname": self.address.server_name} if self.address.server_name else {}
        status, body = 0, b""
        # The agent rejects a connection that is older than its CA certificates; each rejection closes one.
        for _attempt in range(TRUST_RETRIES):
            request = self._http.build_request(
                method, f"{self.address.url}{path}", headers=headers, content=content, extensions=extensions
            )
            self.bytes_sent += _size_of(request, content)
            try:
                with trio.fail_after(limit):
                    status, body = await self._exchange(request, called)
            except trio.TooSlowError as exc:
                raise EndpointTimeoutError(name, f"{called}: no answer within {limit:g} s") from exc
            except (httpx.HTTPError, httpx.InvalidURL, OSError) as exc:
                kind = AgentAccessError if _is_certificate_error(exc) else EndpointUnreachableError
                raise kind(name, f"{called}: {_reason(exc)}") from exc
            if status != httpx.codes.MISDIRECTED_REQUEST:
                break
        if not 200 <= status < 300:
            raise self._error_of(called, status, body)
        return body

    async def _exchange(self, request: httpx.Request, called: str) -> tuple[int, bytes]:
        response = await self._http.send(request, stream=True)
        try:
            body = bytearray()
            # Leaving the loop early would leave the generators to the garbage collector, so they are cancelled.
            with trio.CancelScope() as reading:
                async for chunk in response.aiter_raw():
                    body += chunk
                    # One read may bring thousands of chunks. A cancellation here would leave the loop early.
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    if len(body) > ANSWER_BYTES:
                        reading.cancel(reason="the answer is too large")
            if len(body) > ANSWER_BYTES:
                raise AgentAnswerError(self.address.name, f"{called}: the answer has more than {ANSWER_BYTES} bytes")
        finally:
            await response.aclose()
        return response.status_code, bytes(body)

    def _error_of(self, called: str, status: int, body: bytes) -> EndpointError:
        name = self.address.name
        try:
            answer = msgspec.json.decode(body, type=ErrorAnswer)
        except INVALID_JSON:
            words = body[:MESSAGE_LENGTH].decode(errors="replace")
            return AgentAnswerError(name, f"{called}: {status} {words}".rstrip())
        if answer.code in _CONFLICTS:
            return AgentConflictError(name, answer)
        words = answer.message[:MESSAGE_LENGTH]
        kind = _ERRORS.get(answer.code)
        if kind is DeploymentRejectedError and answer.unbound:
            return PortsUnavailableError(name, answer.unbound[:MOST_ADDRESSES])
        if kind is not None:
            return kind(name, words)
        hint = f" ({answer.hint})" if answer.hint else ""
        return AgentAnswerError(name, f"{called}: {answer.code}: {words}{hint}")


@asynccontextmanager
async def open_http(context: ssl.SSLContext) -> AsyncIterator[httpx.AsyncClient]:
    """Open an HTTP client for any number of agents; closed at the end of the block."""
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=IDLE_LIMIT)
    async with httpx.AsyncClient(
        transport=HttpTransport(verify=context, limits=limits),
        # Each request has a limit of its own that covers the whole answer.
        timeout=httpx.Timeout(None, connect=CONNECT_LIMIT),
        trust_env=False,
        headers={"Accept-Encoding": "identity", CONTROLLER_HEADER: CONTROLLER},
    ) as http:
        yield http


def _size_of(request: httpx.Request, content: bytes) -> int:
    head = sum(len(name) + len(value) + 4 for name, value in request.headers.raw)
    return len(request.method) + len(request.url.raw_path) + 12 + head + 2 + len(content)


def _causes_of(error: BaseException) -> list[BaseException]:
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return links


def _reason(error: BaseException) -> str:
    """Return the message: TLS errors have none, but their causes do."""
    return next((text for text in map(str, _causes_of(error)) if text), type(error).__name__)


def _is_certificate_error(error: BaseException) -> bool:
    """Whether the controller rejects the agent's certificate, or the agent that of the controller."""
    return any(
        isinstance(cause, ssl.SSLCertVerificationError)
        or (isinstance(cause, ssl.SSLError) and "ALERT" in (cause.reason or ""))
        for cause in _causes_of(error)
    )
