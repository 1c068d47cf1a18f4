"""Client of an agent's event stream: one websocket connection, and why it ended."""

import ssl
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias, TypeVar, cast

import h11
import msgspec
import trio
import trio_websocket

from haptic_trio.dataplane.agent.client import AgentAddress
from haptic_trio.dataplane.agent.limits import TokenBucket
from haptic_trio.dataplane.agent.messages import AgentEvent
from haptic_trio.dataplane.agent.routes import HEARTBEAT
from haptic_trio.errors import INVALID_JSON, HapticError, leaves_of

CONNECT_LIMIT: Final = 10.0
"""Seconds for the connection, and for the handshakes until the first event."""
SILENCE: Final = 3 * HEARTBEAT
"""Seconds without an event after which the connection is closed."""
LARGEST_EVENT: Final = 65536
"""Bytes."""
EVENTS: Final = 10.0
"""Events per second on average that an agent may send. Each may be logged, and lead to a deployment to the agent."""
BURST: Final = 200.0
"""Events that it may send at once: more than three times those that it queues."""


class _TooManyEventsError(HapticError):
    """The agent sends events without an end; a retry helps once it does not."""


Stream: TypeAlias = "trio.SSLStream[trio.SocketStream]"


async def follow_once(
    address: AgentAddress, context: ssl.SSLContext, take: Callable[[AgentEvent], None]
) -> tuple[bool, str]:
    """Call *take* with each event until the connection ends; return whether any was received, and why it ended.

    An agent that sends too many events counts as one that sends none.
    """
    received = False
    reason = ""
    bucket = TokenBucket(EVENTS, BURST, clock=trio.current_time)

    def take_text(text: str | bytes) -> None:
        nonlocal received
        if not bucket.take():
            raise _TooManyEventsError
        take(msgspec.json.decode(text, type=AgentEvent))
        received = True

    try:
        with trio.fail_after(CONNECT_LIMIT):
            transport = await trio.open_tcp_stream(address.host, address.port)
        name = address.server_name or address.host
        async with trio.SSLStream(transport, context, server_hostname=name, https_compatible=True) as stream:
            await _listen(stream, address.host, take_text)
    # trio-websocket also raises from its reader task, and passes on errors of the protocol parser and the stream.
    except* trio.TooSlowError:
        reason = "timeout: no connection, or no event"
    except* trio_websocket.ConnectionRejected as group:
        reason = f"rejected with status {_first(group).status_code}"
    except* trio_websocket.ConnectionClosed as group:
        reason = f"closed: {_first(group).reason}"
    except* _TooManyEventsError:
        received, reason = False, f"more than {EVENTS:g} events per second"
    except* INVALID_JSON as group:
        reason = f"not an event: {_first(group)}"
    except* (trio_websocket.HandshakeError, h11.ProtocolError, trio.BrokenResourceError, OSError) as group:
        error = _first(group)
        reason = str(error.__cause__ or error) or type(error).__name__
    return received, reason


E = TypeVar("E", bound=BaseException)


def _first(group: BaseExceptionGroup[E]) -> E:
    return cast("E", next(leaves_of(group)))


class _WatchedStream(trio.abc.Stream):
    """Wrapper that records when and why *stream* ended: trio-websocket waits for a handshake on a closed connection."""

    def __init__(self, stream: Stream) -> None:
        self.ended = trio.Event()
        self.error: Exception | None = None
        self._stream = stream

    async def receive_some(self, max_bytes: int | None = None) -> bytes | bytearray:
        try:
            data = await self._stream.receive_some(max_bytes)
        except trio.BrokenResourceError as exc:
            self.error = exc
            self.ended.set()
            raise
        if not data:
            self.ended.set()
        return data

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        await self._stream.send_all(data)

    async def wait_send_all_might_not_block(self) -> None:
        await self._stream.wait_send_all_might_not_block()

    async def aclose(self) -> None:
        await self._stream.aclose()


async def _listen(stream: Stream, host: str, take: Callable[[str | bytes], None]) -> NoReturn:
    async with trio.open_nursery() as nursery:
        with trio.fail_after(CONNECT_LIMIT):
            await stream.do_handshake()
            socket = await _open_socket(nursery, stream, host)
        while True:
            with trio.fail_after(SILENCE):
                message = await socket.get_message()
            take(message)
    raise AssertionError("the loop ends by an exception")


async def _open_socket(nursery: trio.Nursery, stream: Stream, host: str) -> trio_websocket.WebSocketConnection:
    watched = _WatchedStream(stream)
    opened: list[trio_websocket.WebSocketConnection] = []
    async with trio.open_nursery() as race:

        async def wait_ended() -> None:
            await watched.ended.wait()
            race.cancel_scope.cancel(reason="the connection has ended")

        race.start_soon(wait_ended)
        opened.append(
            await trio_websocket.wrap_client_stream(
                nursery, cast("Stream", watched), host, "/v1/events", max_message_size=LARGEST_EVENT
            )
        )
        race.cancel_scope.cancel(reason="the handshake is complete")
    if not opened:
        raise watched.error or trio.BrokenResourceError("the connection was closed before an answer")
    return opened[0]
