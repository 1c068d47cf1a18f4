"""Followers of a fixed list of agents; each unexpected event renews the endpoint."""

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NoReturn, TypeAlias, TypeVar, cast

import h11
import msgspec
import trio
import trio_websocket

from haptic_trio.backoff import Backoff
from haptic_trio.dataplane.agent.client import AgentAddress, AgentClient, open_http
from haptic_trio.dataplane.agent.endpoint import AgentLink, Cuts, RemoteAgent
from haptic_trio.dataplane.agent.messages import AgentEvent, EventKind
from haptic_trio.dataplane.agent.routes import HEARTBEAT
from haptic_trio.dataplane.agent.tls import RenewedContext, TlsFiles
from haptic_trio.errors import leaves_of
from haptic_trio.logs import get_logger

CONNECT_LIMIT: Final = 10.0
"""Seconds until the first event."""
SILENCE: Final = 3 * HEARTBEAT
"""Seconds without any event after which the connection is given up."""
FIRST_DELAY: Final = 0.1
LONGEST_DELAY: Final = 5.0
"""Seconds before the next connection: doubled from the first to the longest."""
LARGEST_EVENT: Final = 65536

SUSPICIOUS: Final = frozenset({EventKind.STARTED, EventKind.CRASHED, EventKind.DRIFT, EventKind.RESYNC})

Publish = Callable[[tuple[RemoteAgent, ...]], None]
Stream: TypeAlias = "trio.SSLStream[trio.SocketStream]"


class RemoteAgents:
    """The agents at *addresses*, reached with the certificates in *tls*; raises TlsFilesError.

    `publish` gets all endpoints whenever one of them may run something else
    than it was given: that one is a new object then, which is what tells
    deployment to look at it again, outside every interval.
    """

    def __init__(self, addresses: Sequence[AgentAddress], tls: TlsFiles) -> None:
        self._addresses = tuple(addresses)
        self._context = RenewedContext(tls, server=False)
        self._log = get_logger("agents")

    async def run(
        self, publish: Publish, *, task_status: trio.TaskStatus[Sequence[RemoteAgent]] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Follow all agents until cancelled; started() gives their endpoints, whether they answer or not."""
        async with open_http(self._context) as http:
            cuts = Cuts()
            links = [AgentLink(AgentClient(http, address), cuts) for address in self._addresses]
            endpoints = {link.client.address.name: RemoteAgent(link) for link in links}

            def renew(link: AgentLink) -> None:
                endpoints[link.client.address.name] = RemoteAgent(link)
                publish(tuple(endpoints.values()))

            async with trio.open_nursery() as nursery:
                for link in links:
                    nursery.start_soon(self._follow, link, partial(renew, link))
                task_status.started(tuple(endpoints.values()))

    async def _follow(self, link: AgentLink, renew: Callable[[], None]) -> None:
        address = link.client.address
        was_away = False

        def take(event: AgentEvent) -> None:
            nonlocal was_away
            if event.kind is EventKind.HELLO:
                self._log.info("agent connected", agent=address.name, generation=event.generation[:12])
            elif event.kind is not EventKind.HEARTBEAT and not event.deployed:
                self._log.warning("agent reports", agent=address.name, what=event.kind.value, pid=event.pid)
            known = link.running.id if link.running is not None else ""
            # What was meant for it while it was away has failed, and may wait long until it is tried again.
            if was_away or is_suspicious(event, known):
                renew()
            was_away = False

        backoff = Backoff(base=FIRST_DELAY, limit=LONGEST_DELAY)
        reported = ""
        while True:
            heard, why = await follow_once(address, self._context, take)
            was_away = True
            if heard:
                backoff.reset()
            if heard or why != reported:
                self._log.warning("agent does not answer", agent=address.name, error=why)
                reported = why
            # Many controllers may have lost it at the same moment.
            await trio.sleep(backoff.next())


def is_suspicious(event: AgentEvent, known: str) -> bool:
    """Whether the agent may run something else than the generation *known* of it (empty: none is)."""
    if event.kind is EventKind.HELLO:
        return not known or event.generation != known
    return event.kind in SUSPICIOUS and not event.deployed


async def follow_once(
    address: AgentAddress, context: ssl.SSLContext, take: Callable[[AgentEvent], None]
) -> tuple[bool, str]:
    """Hand the agent's events to *take* until the connection ends; return whether any came, and why it ended."""
    heard = False
    why = ""

    def take_text(text: str | bytes) -> None:
        nonlocal heard
        take(msgspec.json.decode(text, type=AgentEvent))
        heard = True

    try:
        with trio.fail_after(CONNECT_LIMIT):
            transport = await trio.open_tcp_stream(address.host, address.port)
        name = address.server_name or address.host
        async with trio.SSLStream(transport, context, server_hostname=name, https_compatible=True) as stream:
            await _listen(stream, address.host, take_text)
    # The library raises from its own task, too, and from underneath what it could not read.
    except* trio.TooSlowError:
        why = "nothing was heard for too long"
    except* trio_websocket.ConnectionRejected as group:
        why = f"refused with status {_first(group).status_code}"
    except* trio_websocket.ConnectionClosed as group:
        why = f"closed: {_first(group).reason}"
    except* (msgspec.DecodeError, UnicodeDecodeError) as group:
        why = f"not an event: {_first(group)}"
    except* (trio_websocket.HandshakeError, h11.ProtocolError, trio.BrokenResourceError, OSError) as group:
        error = _first(group)
        why = str(error.__cause__ or error) or type(error).__name__
    return heard, why


E = TypeVar("E", bound=BaseException)


def _first(group: BaseExceptionGroup[E]) -> E:
    return cast("E", next(leaves_of(group)))


class _WatchedStream(trio.abc.Stream):
    """*stream*, and when and why it has ended: the library goes on waiting for the answer of a server that is gone."""

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
        race.cancel_scope.cancel(reason="the server has answered")
    if not opened:
        raise watched.error or trio.BrokenResourceError("the connection was closed before an answer")
    return opened[0]
