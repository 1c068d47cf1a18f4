"""Exchanges with a CLI socket of HAProxy: a worker's runtime socket, or the master socket."""

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import trio

from haptic_trio.dataplane.endpoint import EndpointTimeoutError, EndpointUnreachableError

RECEIVE_SIZE = 65536
_PROMPT = b"\n> "


async def exchange(path: Path, request: str, *, endpoint: str, limit: float) -> str:
    """Send *request* to the unix socket at *path* and return the whole answer.

    Raises EndpointTimeoutError after *limit* seconds and
    EndpointUnreachableError if the connection fails; both name *endpoint*.
    """
    with _limited(path, endpoint, limit):
        return await _exchange(path, request)


@contextmanager
def _limited(path: Path, endpoint: str, limit: float) -> Iterator[None]:
    try:
        with trio.fail_after(limit):
            yield
    except trio.TooSlowError as exc:
        raise EndpointTimeoutError(endpoint, f"no complete answer within {limit:g} s on {path.name}") from exc
    except (OSError, trio.BrokenResourceError) as exc:
        raise EndpointUnreachableError(endpoint, f"{path.name}: {exc}") from exc


async def _exchange(path: Path, request: str) -> str:
    # A stream would give up its turn at each call. This waits only for HAProxy.
    with socket.socket(socket.AF_UNIX) as connection:
        connection.setblocking(False)
        connection.connect(os.fspath(path))
        unsent = memoryview(request.encode(errors="surrogateescape"))
        while unsent:
            try:
                unsent = unsent[connection.send(unsent) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(connection)
        # The master keeps a connection open after `show proc` until the client closes its side.
        connection.shutdown(socket.SHUT_WR)
        answer = bytearray()
        while True:
            try:
                chunk = connection.recv(RECEIVE_SIZE)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(connection)
                continue
            if not chunk:
                return answer.decode(errors="replace")
            answer += chunk


class CliConnection:
    """Connection for several requests, all of which one process answers: the one that has accepted it."""

    def __init__(self, stream: trio.SocketStream, path: Path, *, endpoint: str, limit: float) -> None:
        self._stream = stream
        self._path = path
        self._endpoint = endpoint
        self._limit = limit

    async def ask(self, request: str, is_complete: Callable[[str], bool]) -> str:
        """Send *request*, one line without a payload, and return its answer once *is_complete*.

        The answer has the form of that of `exchange`. Raises what `exchange`
        raises; after that, the connection must not be used any more.
        """
        with _limited(self._path, self._endpoint, self._limit):
            await self._stream.send_all(request.encode(errors="surrogateescape"))
            received = bytearray()
            while chunk := await self._stream.receive_some(RECEIVE_SIZE):
                received += chunk
                # Up to HAProxy 3.0 each command of a line has a prompt, later only the last one.
                answer = received.replace(_PROMPT, b"\n").decode(errors="replace")
                if received.endswith(_PROMPT) and is_complete(answer):
                    return answer
            raise trio.BrokenResourceError("the connection was closed before the complete answer")


@asynccontextmanager
async def connect(path: Path, *, endpoint: str, limit: float) -> AsyncIterator[CliConnection]:
    """Keep a connection to the unix socket at *path* open during the block; *limit*: seconds for each request.

    Raises what `exchange` raises.
    """
    with _limited(path, endpoint, limit):
        stream = await trio.open_unix_socket(path)
    async with stream:
        connection = CliConnection(stream, path, endpoint=endpoint, limit=limit)
        # Otherwise HAProxy closes it after the first line.
        await connection.ask("prompt\n", bool)
        yield connection
