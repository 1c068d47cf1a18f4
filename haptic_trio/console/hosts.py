"""Allowed host names of requests to the console, against DNS rebinding.

A page of another site can point its own host name at the console, which makes
both the same origin. Its requests carry that name in `Host`, so other names
than those of the console are rejected. IP addresses are always allowed: they
cannot be rebound.
"""

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable
from http import HTTPStatus

from starlette.requests import HTTPConnection, Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::\d{1,5})?")
_LOCAL = "localhost"


class Hosts:
    """Host names of one console."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """*names* are allowed in addition to localhost and IP addresses."""
        self._names = frozenset(_plain(name) for name in names if name)

    def admit(self, connection: HTTPConnection) -> bool:
        """Whether the Host header of *connection* is allowed."""
        found = connection.headers.getlist("host")
        return len(found) == 1 and self.has(found[0])

    def has(self, host: str) -> bool:
        """Whether *host*, the value of a Host header, is allowed."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = _plain(match["name"])
        return name == _LOCAL or name.endswith(f".{_LOCAL}") or name in self._names or _is_address(name)


class HostRoute(Route):
    """Route for GET requests to one of *hosts*; requests to others get `misdirected`, whatever their method."""

    def __init__(self, path: str, endpoint: Callable[[Request], Awaitable[Response]], hosts: Hosts) -> None:
        super().__init__(path, endpoint, methods=["GET"])
        self._hosts = hosts

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if self._hosts.admit(HTTPConnection(scope)):
            await super().handle(scope, receive, send)
        else:
            await misdirected()(scope, receive, send)


def other_paths(path: str, hosts: Hosts) -> HostRoute:
    """Return the route that answers requests for all other paths below *path* with 404."""

    async def answer(_request: Request) -> Response:
        return PlainTextResponse("Not Found", status_code=int(HTTPStatus.NOT_FOUND))

    return HostRoute(f"{path}/{{path:path}}", answer, hosts)


def is_same_origin(connection: HTTPConnection) -> bool:
    """Whether *connection* is of the page of the console, or not of a browser."""
    origin = connection.headers.get("origin")
    return origin is None or origin.partition("://")[2] == connection.headers.get("host")


def own_names(listen: str, more: Collection[str] = ()) -> frozenset[str]:
    """Return the names of a console at *listen*: its host, the name of this machine, and *more*."""
    return frozenset({listen.rpartition(":")[0], socket.gethostname(), *more} - {""})


def misdirected() -> Response:
    """Return the answer to a request with another name."""
    return PlainTextResponse(
        "this host name is not allowed for the console; use localhost, an IP address or the name of its machine, or add"
        " the name with `serve --console-host`\n",
        status_code=int(HTTPStatus.MISDIRECTED_REQUEST),
    )


def _plain(name: str) -> str:
    return name.lower().rstrip(".").strip("[]")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
