"""The names by which the console may be asked for, against DNS rebinding.

A page of another site can have its own name lead here, and is of the same
origin then. Such a request names a host that is none of ours. IP addresses
are fine, whichever: nobody can have them lead elsewhere.
"""

import ipaddress
import re
import socket
from collections.abc import Collection, Iterable
from http import HTTPStatus

from starlette.requests import HTTPConnection
from starlette.responses import PlainTextResponse, Response

_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^\[\]:/@\s]+)(?::\d{1,5})?")
_LOCAL = "localhost"


class Hosts:
    """The names of one console."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        """*names* are those beside localhost and IP addresses."""
        self._names = frozenset(_plain(name) for name in names if name)

    def admit(self, connection: HTTPConnection) -> bool:
        """Whether *connection* asks for the console by a name of its own."""
        found = connection.headers.getlist("host")
        return len(found) == 1 and self.has(found[0])

    def has(self, host: str) -> bool:
        """Whether *host*, as in a header, with or without a port, is one."""
        match = _HOST.fullmatch(host)
        if match is None:
            return False
        name = _plain(match["name"])
        return name == _LOCAL or name.endswith(f".{_LOCAL}") or name in self._names or _is_address(name)


def own_names(listen: str, more: Collection[str] = ()) -> frozenset[str]:
    """Return the names of a console at *listen*: the host there, that of this machine, and *more*."""
    return frozenset({listen.rpartition(":")[0], socket.gethostname(), *more} - {""})


def misdirected() -> Response:
    """Return the answer to a request by another name."""
    return PlainTextResponse(
        "this console is not known by the name in the address; localhost, an IP address and the name of its machine are"
        " fine, others by `serve --console-host`\n",
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
