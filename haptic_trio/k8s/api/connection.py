"""HTTP connection to an API server, with credentials that are reloaded when they change.

A client is replaced when its certificates change; requests in flight end on
the old one, which is closed after the last of them. There is no limit on
connections: each watch has one of its own.
"""

import math
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Final, TypeAlias

import httpx
import trio

from haptic_trio.http1 import HttpTransport
from haptic_trio.k8s.api.auth import Credentials, Load, Stamp, read_token, stamp_of
from haptic_trio.k8s.api.outage import Outage
from haptic_trio.k8s.api.retry_delays import MAX_RETRY_AFTER
from haptic_trio.k8s.api.transport import GOES_ON, ApiTransport
from haptic_trio.k8s.errors import (
    CredentialsError,
    ServerFailedError,
    ThrottledError,
    UnauthorizedError,
    UnreachableError,
    error_of,
)
from haptic_trio.redaction.repeated import without_repeated

Params: TypeAlias = Mapping[str, str]
MakeClient: TypeAlias = Callable[[Credentials], httpx.AsyncClient]

JSON: Final = "application/json"
ATTEMPTS: Final = 4
"""Maximum of attempts for a request that the server defers."""
_CONNECT_LIMIT: Final = 10.0
_ANSWER_LIMIT: Final = 30.0
_UNSURE: Final = frozenset({401, 403})
"""Statuses that a server also sends while it starts and does not know its roles."""
# Detects a dead peer within a minute, also on an idle watch.
_SOCKET_OPTIONS: Final = [
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 30),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 10),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
    (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 30_000),
]


def make_client(credentials: Credentials) -> httpx.AsyncClient:
    """Return an HTTP/1.1 client for *credentials* that uses no proxy but theirs."""
    transport: httpx.AsyncBaseTransport = HttpTransport(
        verify=credentials.context,
        # No limit on idle connections: httpcore counts those of the watches too, and would keep none.
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=None, keepalive_expiry=60.0),
        proxy=credentials.proxy,
        socket_options=_SOCKET_OPTIONS,
    )
    if credentials.proxy is None:
        transport = ApiTransport(transport, credentials.context, _SOCKET_OPTIONS)
    return httpx.AsyncClient(transport=transport, base_url=credentials.server, trust_env=False)


class _Session:
    """An HTTP client with its credentials, closed after its last request."""

    def __init__(self, credentials: Credentials, client: httpx.AsyncClient) -> None:
        self.credentials = credentials
        self.client = client
        self.token = credentials.token
        self.token_stamp: Stamp = ()
        self.users = 0


class Connection:
    """Sends requests to the API server of the credentials from *load*; to be closed with `aclose`."""

    def __init__(self, load: Load, *, make_client: MakeClient = make_client) -> None:
        self._load = load
        self._make_client = make_client
        self._session: _Session | None = None
        self._retired: list[_Session] = []
        self._reloading = trio.Lock()
        self.outage = Outage()
        self.requests = 0
        """Number of requests sent."""

    @property
    def where(self) -> str:
        """Address of the server and source of the credentials, for messages."""
        return "" if self._session is None else self._session.credentials.place

    async def open(self) -> None:
        """Load the credentials; raises `CredentialsError`. Sends nothing."""
        self._session = await self._open_session()

    async def aclose(self) -> None:
        """Close all connections, those in use as well."""
        sessions = [*self._retired, *([self._session] if self._session is not None else [])]
        self._session, self._retired = None, []
        for session in sessions:
            await session.client.aclose()

    async def request(
        self,
        method: str,
        path: str,
        *,
        what: str,
        params: Params | None = None,
        content: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Send a request and return the body of its answer; raises `ApiError`.

        A request that the server defers (429, or 5xx with Retry-After) is sent
        again a few times, and a GET also after a lost connection.
        """
        headers = {"accept": accept, **({"content-type": content_type} if content is not None else {})}
        for attempt in range(1, ATTEMPTS + 1):
            try:
                async with self._send(method, path, what, params, headers, content, _ANSWER_LIMIT) as response:
                    return await response.aread()
            except (ThrottledError, ServerFailedError) as error:
                if attempt == ATTEMPTS or error.retry_after is None:
                    raise
                await trio.sleep(min(error.retry_after, MAX_RETRY_AFTER))
            except UnreachableError:
                # The server may close an idle connection just when it is used again.
                if method != "GET" or attempt > 1:
                    raise
        raise AssertionError("each way through the loop returns or raises")

    @asynccontextmanager
    async def stream(
        self, path: str, *, what: str, params: Params, silence: float, accept: str = JSON
    ) -> AsyncIterator[httpx.Response]:
        """Open a GET with a streamed response; reading raises `httpx.ReadTimeout` after *silence* seconds without data.

        Raises `ApiError` for any status but 2xx. Transport errors in the block
        become `UnreachableError` too.
        """
        async with self._send("GET", path, what, params, {"accept": accept}, None, silence, goes_on=True) as response:
            yield response

    @asynccontextmanager
    async def _send(
        self,
        method: str,
        path: str,
        what: str,
        params: Params | None,
        headers: Mapping[str, str],
        content: bytes | None,
        silence: float,
        *,
        goes_on: bool = False,
    ) -> AsyncIterator[httpx.Response]:
        limits = httpx.Timeout(_CONNECT_LIMIT, read=silence, pool=None)
        for attempt in (1, 2):
            session = await self._fresh_session(what)
            shown = session.token
            session.users += 1
            is_answered = False
            try:
                request = session.client.build_request(
                    method, path, params=params, content=content, headers={**_headers(session), **headers}
                )
                request.extensions |= {"timeout": limits.as_dict(), GOES_ON: goes_on}
                if session.credentials.server_name:
                    request.extensions |= {"sni_hostname": session.credentials.server_name}
                self.requests += 1
                async with aclosing(await self._open_response(session, request)) as response:
                    self.outage.note_answer()
                    is_answered = response.status_code < 500 and response.status_code not in _UNSURE
                    if response.is_success:
                        self.outage.end()
                        yield response
                        return
                    body = _without(request.headers.get("authorization", ""), await response.aread())
                    error = error_of(what, response.status_code, body, response.headers.get("retry-after", ""))
            except (httpx.TransportError, OSError) as exc:
                is_answered = False
                unreachable = UnreachableError(what, _reason(exc))
                unreachable.where = self.where
                raise unreachable from exc
            finally:
                session.users -= 1
                if not is_answered:
                    # A request that is cancelled before its answer is a sign too: its caller had a limit.
                    self.outage.suspect()
            if attempt == 2 or not isinstance(error, UnauthorizedError):
                error.where = self.where
                raise error
            await self._renew(session, shown)

    async def _open_response(self, session: _Session, request: httpx.Request) -> httpx.Response:
        # A watch may be silent for longer than a server needs to begin its answer. Other answers come here whole.
        with trio.move_on_after(_ANSWER_LIMIT if request.extensions[GOES_ON] else math.inf):
            return await session.client.send(request, stream=True)
        raise httpx.ReadTimeout(f"no answer within {_ANSWER_LIMIT:g} s", request=request)

    async def _fresh_session(self, what: str) -> _Session:
        """Return the session; its token is read again, or it is replaced, if the files have changed."""
        async with self._reloading:
            session = self._session
            if session is None:
                raise UnreachableError(what, "the client is closed")
            await self._close_retired()
            # One stat call for each local file: not worth a thread.
            if session.credentials.files and stamp_of(session.credentials.files) != session.credentials.stamp:
                session = await self._replace(session)
            token_file = session.credentials.token_file
            if token_file is not None and (stamp := stamp_of((token_file,))) != session.token_stamp:
                await self._read_token(session, stamp)
            return session

    async def _renew(self, session: _Session, rejected: str) -> None:
        """Load credentials newer than the *rejected* token, unless another request has just done so."""
        async with self._reloading:
            if session is not self._session or session.token != rejected:
                return
            if session.credentials.token_file is not None:
                await self._read_token(session, ())
            else:
                await self._replace(session)

    async def _read_token(self, session: _Session, stamp: Stamp) -> None:
        assert session.credentials.token_file is not None
        try:
            session.token = await read_token(session.credentials.token_file)
            session.token_stamp = stamp
        except CredentialsError:
            # Being replaced: the old one may still do.
            session.token_stamp = ()

    async def _replace(self, session: _Session) -> _Session:
        try:
            fresh = await self._open_session()
        except CredentialsError:
            # The file may be incomplete. If the server rejects the old credentials, its response says so.
            return session
        self._session = fresh
        self._retired.append(session)
        return fresh

    async def _open_session(self) -> _Session:
        credentials = await self._load()
        return _Session(credentials, self._make_client(credentials))

    async def _close_retired(self) -> None:
        """Close the clients that were replaced, once their last request has ended."""
        unused = [session for session in self._retired if not session.users]
        self._retired = [session for session in self._retired if session.users]
        for session in unused:
            await session.client.aclose()


def _headers(session: _Session) -> dict[str, str]:
    # Without compression: compressing a list costs more than sending it.
    headers = {"accept-encoding": "identity", "user-agent": "haptic-trio"}
    if session.token:
        headers["authorization"] = f"Bearer {session.token}"
    return headers


def _without(authorization: str, body: bytes) -> bytes:
    """Return *body* without the credential of the header, which a proxy may have sent back."""
    text = without_repeated(body.decode(errors="surrogateescape"), (authorization.rpartition(" ")[2],))
    return text.encode(errors="surrogateescape")


def _reason(error: Exception) -> str:
    cause: BaseException | None = error
    while cause is not None and not str(cause):
        cause = cause.__cause__ or cause.__context__
    return str(cause) if cause is not None else type(error).__name__
