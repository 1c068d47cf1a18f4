"""A Data Plane API in the test's own process: it obeys the contract and answers as the recorded one did.

It is no HAProxy: what it knows of configurations is what
`dataplaneapi_state` knows. `tests/dataplane/dataplaneapi/test_fake.py`
holds it against every recorded exchange.
"""

import base64
import email.message
import email.parser
import email.policy
from collections.abc import Awaitable, Callable
from typing import NamedTuple
from urllib.parse import unquote

import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from tests.support.dataplaneapi.contract import Sent, check_answer, check_request
from tests.support.dataplaneapi.routes import Api
from tests.support.dataplaneapi.sections import ROUTES
from tests.support.dataplaneapi.state import RejectedError

PASSWORD = "s3cret-of-the-api"


class Call(NamedTuple):
    """A request that arrived."""

    method: str
    path: str
    """Below `/v3`, without the part that all but `/info` have in common."""
    params: dict[str, str]

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


Before = Callable[[Call], Awaitable[Response | None]]


class FakeDataplaneApi(Api):
    """An ASGI application; `Api` has its state."""

    def __init__(self, text: str = "global\n", *, username: str = "admin", password: str = PASSWORD) -> None:
        super().__init__(text)
        self.calls: list[Call] = []
        self.violations: list[str] = []
        """Requests, and answers of this one, that the published contract does not provide for."""
        self.before: Before | None = None
        """May answer in place of the API, or hold a request up."""
        self.after: Callable[[Call], None] | None = None
        """Called when a request has been carried out."""
        self.base = "/v3"
        token = base64.b64encode(f"{username}:{password}".encode()).decode()
        self._authorization = f"Basic {token}"

    @property
    def writes(self) -> list[str]:
        """What changed something, or tried to."""
        return [str(call) for call in self.calls if call.method != "GET"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _live(receive, send)
            return
        request = Request(scope, receive)
        response = await self._answer(request)
        await response(scope, receive, send)

    async def _answer(self, request: Request) -> Response:
        raw = request.scope.get("raw_path", b"").decode() or request.url.path
        body = await request.body()
        if not raw.startswith(self.base):
            return _error(404, f"path {raw} was not found")
        path = raw.removeprefix(self.base)
        call = Call(request.method, path.removeprefix("/services/haproxy/"), dict(request.query_params))
        self.calls.append(call)
        sent = Sent(request.method, path, request.query_params, request.headers.get("content-type", ""), body)
        self.violations += check_request(sent)
        if request.headers.get("Authorization") != self._authorization:
            return JSONResponse(
                {"code": 401, "message": "unauthorized"}, 401, {"WWW-Authenticate": 'Basic realm="API"'}
            )
        if self.before is not None and (response := await self.before(call)) is not None:
            return response
        response = self._dispatch(call, request, body)
        kind = response.headers.get("content-type", "")
        self.violations += check_answer(sent, response.status_code, kind, bytes(response.body))
        response.headers["Configuration-Version"] = str(self.version)
        if self.after is not None:
            self.after(call)
        return response

    def _dispatch(self, call: Call, request: Request, body: bytes) -> Response:
        for method, pattern, handler in ROUTES:
            match = pattern.fullmatch(call.path)
            if match is not None and method == call.method:
                content = (
                    _read_upload(request, body) if "multipart" in request.headers.get("content-type", "") else body
                )
                names = {key: unquote(value) for key, value in match.groupdict().items()}
                try:
                    return handler(self, call.params, content, **names)
                except RejectedError as rejection:
                    return _error(rejection.status, rejection.message)
        return _error(404, f"path {call.path} was not found")


async def _live(receive: Receive, send: Send) -> None:
    for state in ("startup", "shutdown"):
        await receive()
        await send({"type": f"lifespan.{state}.complete"})


def _read_upload(request: Request, body: bytes) -> tuple[str, bytes]:
    head = f"Content-Type: {request.headers['content-type']}\r\n\r\n".encode()
    message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
    assert isinstance(message, email.message.EmailMessage)
    [part] = message.iter_parts()
    assert part.get_param("name", header="content-disposition") == "file_upload"
    content = part.get_payload(decode=True)
    assert isinstance(content, bytes)
    return part.get_filename() or "", content


def _error(status: int, message: str) -> Response:
    return JSONResponse({"code": status, "message": message}, status)


async def hang(call: Call) -> Response | None:
    """Never answer."""
    await trio.sleep_forever()


def answers(method: str, path: str, response: Response, *, times: int = 1) -> Before:
    """Return what gives *response* to the first *times* requests that begin like that."""
    left = times

    async def answer(call: Call) -> Response | None:
        nonlocal left
        if call.method != method or not call.path.startswith(path) or not left:
            return None
        left -= 1
        return response

    return answer


def rejection(status: int, message: str) -> Response:
    """Return what the API says when it rejects."""
    return JSONResponse({"code": status, "message": message}, status)
