"""Bodies of requests, read within limits of time and size, and of the size of all together; and how many values."""

import re
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from http import HTTPStatus
from itertools import islice
from typing import Final

import trio
from starlette.requests import ClientDisconnect, Request

from haptic_trio.errors import HapticError
from haptic_trio.webhook.review import ReviewError

MOST_BYTES: Final = 3 << 20
"""Maximum bytes of a body: the request limit of the API server, for an object and its old version."""
MOST_COLLECTIONS: Final = 250_000
"""Maximum number of mappings and lists in a body. Each may have two bytes there, and takes up to 250 once decoded."""
MOST_BYTES_TOGETHER: Final = 12 << 20
"""Maximum bytes of the bodies of all requests in progress, whose objects are in memory until they are answered."""
BODY_LIMIT: Final = 5.0
"""Seconds to receive a body."""
# Up to the next bracket that is not in a string, or else the end. Nothing is tried twice, so it is linear for any text.
_NEXT: Final = re.compile(rb'(?:[^"{\[]++|"(?:[^"\\]++|\\.)*+"?)*+(?:([{\[])|\Z)', re.DOTALL)


class BodyError(HapticError):
    """A body exceeds a limit. For the size of all bodies together and in a pause, this is temporary, else permanent."""

    def __init__(self, status: HTTPStatus, message: str) -> None:
        super().__init__(message)
        self.status = status


class Bodies:
    """The bodies of all requests in progress."""

    def __init__(self) -> None:
        self._total = 0

    @asynccontextmanager
    async def reading(self, request: Request) -> AsyncIterator[bytearray]:
        """Yield the body of *request*, which counts for the total size until the block ends.

        Raises BodyError if it exceeds a limit (the rest is not read), and
        ReviewError if the client disconnects.
        """
        body = bytearray()
        try:
            with trio.move_on_after(BODY_LIMIT) as scope:
                await self._read(request, body)
            if scope.cancelled_caught:
                text = f"the body was not received within {BODY_LIMIT:g} s"
                raise BodyError(HTTPStatus.REQUEST_TIMEOUT, text)
            yield body
        finally:
            self._total -= len(body)

    async def _read(self, request: Request, body: bytearray) -> None:
        _check_size(int(request.headers.get("content-length", 0)))
        try:
            async with aclosing(request.stream()) as chunks:
                async for chunk in chunks:
                    body += chunk
                    self._total += len(chunk)
                    _check_size(len(body))
                    if self._total > MOST_BYTES_TOGETHER:
                        text = f"the bodies of all requests in progress exceed {MOST_BYTES_TOGETHER >> 20} MiB"
                        raise BodyError(HTTPStatus.SERVICE_UNAVAILABLE, text)
        except ClientDisconnect as exc:
            raise ReviewError("the client disconnected") from exc


def _check_size(size: int) -> None:
    if size > MOST_BYTES:
        text = f"the body is larger than {MOST_BYTES >> 20} MiB"
        raise BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)


def has_too_many_collections(body: bytes | bytearray) -> bool:
    """Whether the JSON text *body* has more mappings and lists than `MOST_COLLECTIONS`."""
    if body.count(b"{") + body.count(b"[") <= MOST_COLLECTIONS:
        return False
    # Texts such as templates have such characters, too.
    found = next(islice(_NEXT.finditer(body), MOST_COLLECTIONS, None), None)
    return found is not None and found[1] is not None
