"""HTTP client for one HAProxy Data Plane API: basic auth, limits, and errors mapped once at this edge."""

from base64 import b64encode
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from ssl import SSLContext
from typing import Final, TypeAlias, TypeVar
from urllib.parse import quote

import httpx
import msgspec
import trio

from haptic_trio.dataplane.endpoint import EndpointError, EndpointTimeoutError, EndpointUnreachableError
from haptic_trio.errors import INVALID_JSON, Problem
from haptic_trio.haproxy.config.quoted import without_output
from haptic_trio.http1 import HttpTransport
from haptic_trio.redaction.names import BLANK
from haptic_trio.redaction.repeated import without_repeated

REQUEST_LIMIT: Final = 30.0
"""Seconds that one request may take, its answer included."""
ANSWER_BYTES: Final = 64 << 20
"""Bytes of one answer that are accepted; a configuration with 10,000 backends has about 3 million."""
MESSAGE_LENGTH: Final = 4000
"""Characters of an error message that are kept."""
CONNECTIONS: Final = 8
"""Connections to one API that are kept open."""

_BASE: Final = "/v3"
_HAPROXY: Final = "/services/haproxy"
# The API is temporarily unavailable: it starts, is overloaded, or a proxy cannot reach it.
_PASSING: Final = frozenset({429, 502, 503, 504})

Params: TypeAlias = Mapping[str, str | int]
T = TypeVar("T")


class ApiAccessError(EndpointError):
    """The Data Plane API rejected the credentials; a retry helps once they are corrected."""


class ApiUnsupportedError(EndpointError):
    """The server is not a Data Plane API v3 with a supported HAProxy; permanent until it is replaced."""


class ApiAnswerError(EndpointError):
    """An answer is too large or violates the API's contract; permanent."""


class ApiStatusError(EndpointError):
    """The Data Plane API rejected a request; the same request gets the same answer."""

    def __init__(self, endpoint: str, request: str, status: int, words: str) -> None:
        self.status = status
        self.words = words
        """Message of the API, which may quote HAProxy, and so values of Secrets."""
        self.reason = without_output(Problem(message=words)).message or str(status)
        """The message without what it quotes; the status if there is none."""
        super().__init__(endpoint, f"{request}: {status} {self.reason}" if words else f"{request}: {status}")


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """User and password for the API; never shown."""

    username: str
    password: str

    def __repr__(self) -> str:
        return "Credentials(<redacted>)"

    def __rich_repr__(self) -> list[tuple[str, str]]:
        return [("username", "<redacted>"), ("password", "<redacted>")]


CredentialSource: TypeAlias = Callable[[], Credentials | None]
"""Returns the current credentials; None while there are none."""


class Answer(msgspec.Struct, frozen=True):
    """A successful answer."""

    status: int
    content: bytes
    reload_id: str = ""
    """The reload that the API scheduled for the request; empty if none."""

    @property
    def text(self) -> str:
        """The body as text; bytes that are not UTF-8 are surrogate escapes."""
        return self.content.decode(errors="surrogateescape")


class _Message(msgspec.Struct):
    message: str = ""


class ApiClient:
    """Sends requests to one API; *http* has its address and belongs to the caller.

    Each request uses the current *credentials*. Every method raises
    EndpointError: ApiAccessError for credentials, EndpointUnreachableError
    and EndpointTimeoutError for the network, ApiAnswerError for unreadable
    answers, and ApiStatusError for a rejection.
    """

    def __init__(
        self,
        http: httpx.AsyncClient,
        *,
        endpoint: str,
        credentials: CredentialSource,
        answer_bytes: int = ANSWER_BYTES,
    ) -> None:
        self.endpoint = endpoint
        self._http = http
        self._credentials = credentials
        self._answer_bytes = answer_bytes

    async def get(self, path: str, params: Params | None = None) -> Answer:
        """GET *path*, which is below `/v3` when it begins with `/`, else below `/v3/services/haproxy/`."""
        return await self.send("GET", path, params=params)

    async def get_as(self, kind: type[T], path: str, params: Params | None = None) -> T:
        """GET *path* and decode its JSON as *kind*."""
        return self.decode(kind, await self.get(path, params), path)

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Params | None = None,
        text: bytes | None = None,
        json: object = None,
        upload: tuple[str, bytes] | None = None,
        limit: float = REQUEST_LIMIT,
    ) -> Answer:
        """Send a request with at most one body: *text*, *json*, or a file *upload* (its name and content).

        *limit* is in seconds. The path is as for `get`. Raises the
        `EndpointError` of the failure, such as `EndpointTimeoutError`.
        """
        headers: dict[str, str] = {}
        content: bytes | None = None
        if text is not None:
            headers["Content-Type"], content = "text/plain", text
        elif json is not None:
            headers["Content-Type"], content = "application/json", msgspec.json.encode(json)
        name, data = upload or ("", b"")
        files = {"file_upload": (name, data, "application/octet-stream")} if upload is not None else None
        url = f"{_BASE}{path}" if path.startswith("/") else f"{_BASE}{_HAPROXY}/{path}"
        request = self._http.build_request(method, url, params=params, headers=headers, content=content, files=files)
        head, entries, _key = url.partition("/entries/")
        # The key of an entry may be a credential.
        called = f"{method} {head}{entries}{BLANK if entries else ''}"
        credentials = self._credentials()
        if credentials is None:
            raise ApiAccessError(self.endpoint, f"{called}: the credentials are not known yet")
        auth = httpx.BasicAuth(credentials.username, credentials.password)
        try:
            with trio.fail_after(limit):
                status, body, reload_id = await self._exchange(request, auth, called)
        except trio.TooSlowError as exc:
            raise EndpointTimeoutError(self.endpoint, f"{called}: no answer within {limit:g} s") from exc
        except (httpx.TransportError, httpx.DecodingError, OSError) as exc:
            raise EndpointUnreachableError(self.endpoint, f"{called}: {_reason(exc)}") from exc
        if 200 <= status < 300:
            return Answer(status, body, reload_id)
        raise self._error_of(called, status, _without(credentials, _read_message(body)))

    def decode(self, kind: type[T], answer: Answer, path: str) -> T:
        """Decode the JSON of *answer* as *kind*; raises ApiAnswerError."""
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except INVALID_JSON as exc:
            raise ApiAnswerError(self.endpoint, f"{path}: {exc}") from exc

    async def _exchange(self, request: httpx.Request, auth: httpx.Auth, called: str) -> tuple[int, bytes, str]:
        response = await self._http.send(request, stream=True, auth=auth)
        try:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                raise ApiAnswerError(self.endpoint, f"{called}: the answer has an encoding that was not requested")
            body = bytearray()
            # Leaving the loop early would leave the generators to the garbage collector, so they are cancelled.
            with trio.CancelScope() as reading:
                async for chunk in response.aiter_raw():
                    body += chunk
                    # One read may bring thousands of chunks. A cancellation here would leave the loop early.
                    await trio.lowlevel.cancel_shielded_checkpoint()
                    if len(body) > self._answer_bytes:
                        reading.cancel()
            if len(body) > self._answer_bytes:
                raise ApiAnswerError(self.endpoint, f"{called}: the answer has more than {self._answer_bytes} bytes")
        finally:
            await response.aclose()
        return response.status_code, bytes(body), response.headers.get("Reload-ID", "")

    def _error_of(self, called: str, status: int, words: str) -> EndpointError:
        if status in {401, 403}:
            return ApiAccessError(self.endpoint, f"{called}: {status} {words}".rstrip())
        if status in _PASSING:
            return EndpointUnreachableError(self.endpoint, f"{called}: {status} {words}".rstrip())
        return ApiStatusError(self.endpoint, called, status, words)


def quote_name(name: str) -> str:
    """Return *name* as one segment of a path."""
    return quote(name, safe="", errors="surrogateescape")


@asynccontextmanager
async def open_api_client(
    endpoint: str,
    url: str,
    credentials: Credentials | CredentialSource,
    *,
    verify: SSLContext | bool = True,
    transport: httpx.AsyncBaseTransport | None = None,
    answer_bytes: int = ANSWER_BYTES,
) -> AsyncIterator[ApiClient]:
    """Open a client for the API at *url* (scheme, host, port); closed at the end of the block.

    Pass *credentials* that may change as a function. *verify* is for TLS;
    *transport* replaces the network. Raises ValueError if *url* contains
    credentials, because errors quote it.
    """
    if httpx.URL(url).userinfo:
        raise ValueError("the address of a Data Plane API must not hold credentials")
    source: CredentialSource = (lambda: credentials) if isinstance(credentials, Credentials) else credentials
    limits = httpx.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    async with httpx.AsyncClient(
        base_url=url,
        transport=transport or HttpTransport(verify=verify, limits=limits),
        timeout=None,  # noqa: S113 - each request has a limit of its own, one that covers the whole answer
        trust_env=False,
        headers={"Accept-Encoding": "identity"},
    ) as http:
        yield ApiClient(http, endpoint=endpoint, credentials=source, answer_bytes=answer_bytes)


def _reason(error: BaseException) -> str:
    """Return the message: TLS errors have none, but their causes do."""
    links: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in links:
        links.append(link)
        link = link.__cause__ or link.__context__
    return next((text for text in map(str, links) if text), type(error).__name__)


def _read_message(body: bytes) -> str:
    try:
        message = msgspec.json.decode(body, type=_Message).message
    except INVALID_JSON:
        message = body.decode(errors="replace")
    return message.strip()


def _without(credentials: Credentials, message: str) -> str:
    """Return *message*, shortened, without *credentials*, which a proxy may have sent back."""
    header = b64encode(f"{credentials.username}:{credentials.password}".encode()).decode()
    return without_repeated(message, (header, credentials.password))[:MESSAGE_LENGTH]
