"""Byte stream of one client, with time limits: a client that does not read or does not end is disconnected.

Clients take turns: a server handles one part of what its clients send, and
then other tasks of the process run.
"""

from types import TracebackType
from typing import Final, Self

import msgspec
import trio

CHUNK: Final = 65_536
_LINGER_SECONDS: Final = 1.0
_LINGER_BYTES: Final = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of each connection; times are seconds."""

    handshake: float = 10.0
    """For the TLS handshake."""
    idle: float = 5.0
    """For the head of the next request, since the connection was opened or the last answer ended."""
    unread: float = 20.0
    """Until a client that takes no part of an answer is disconnected."""
    message_bytes: int = CHUNK
    """Of one message that a client sends on a WebSocket."""
    connections: int = 256
    """At once; beyond that, one of the client address that has the most makes room."""


class DisconnectedError(Exception):
    """The client has closed the connection, or does not take what is sent."""


class Turns:
    """Turns of the clients of one server, in the order in which they ask.

    A read may bring thousands of messages, and hundreds of clients may send
    at the same moment. Without turns, all of that would be one step of the
    event loop.
    """

    def __init__(self) -> None:
        self._lock = trio.Lock()

    async def take(self) -> None:
        """Return when it is the caller's turn: all other tasks that can run have run since the turn before."""
        async with self._lock:
            pass


class PacedStream(trio.abc.Stream):
    """Stream that takes a turn for what it has received, such as a message of a TLS handshake."""

    def __init__(self, stream: trio.abc.Stream, turns: Turns) -> None:
        self._stream = stream
        self._turns = turns

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        """See `trio.abc.ReceiveStream.receive_some`."""
        data = await self._stream.receive_some(max_bytes)
        await self._turns.take()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """See `trio.abc.SendStream.send_all`."""
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        """See `trio.abc.SendStream.wait_send_all_might_not_block`."""
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        """See `trio.abc.AsyncResource.aclose`."""
        await self._stream.aclose()


class Wire:
    """The stream of one client; at the end of the block it is closed."""

    def __init__(self, stream: trio.abc.Stream, *, unread: float, turns: Turns | None = None) -> None:
        self.turns = turns or Turns()
        self._stream = stream
        self._unread = unread
        self._sending = trio.Lock()
        self._is_broken = False

    async def read(self) -> bytes:
        """Return the next bytes; empty at the end of the connection, whatever ended it."""
        try:
            return bytes(await self._stream.receive_some(CHUNK))
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return b""

    async def send(self, data: bytes) -> None:
        """Send *data*; raises `DisconnectedError`. After a cancellation, nothing can be sent."""
        async with self._sending:
            if self._is_broken:
                raise DisconnectedError
            self._is_broken = True
            for start in range(0, len(data), CHUNK):
                with trio.move_on_after(self._unread) as scope:
                    try:
                        await self._stream.send_all(data[start : start + CHUNK])
                    except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                        raise DisconnectedError from exc
                if scope.cancelled_caught:
                    # A task that reads ends, too.
                    await trio.aclose_forcefully(self._stream)
                    raise DisconnectedError
            self._is_broken = False

    async def linger(self) -> None:
        """Read what the client still sends, for a moment: a reset would discard the answer that it has not read."""
        left = 0 if self._is_broken else _LINGER_BYTES
        with trio.move_on_after(_LINGER_SECONDS):
            if isinstance(self._stream, trio.SocketStream):
                try:
                    await self._stream.send_eof()
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    return
            while left > 0 and (data := await self.read()):
                left -= len(data)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and not self._is_broken:
            with trio.move_on_after(_LINGER_SECONDS):
                await self._stream.aclose()
        # Has no effect on a stream that is closed.
        await trio.aclose_forcefully(self._stream)
