"""An agent that speaks SPOP 2.0 as a test says: it notes what it is asked, and answers well, badly, late, or never."""

import socket
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import trio

HELLO, DISCONNECT, NOTIFY = 1, 2, 3
AGENT_HELLO, AGENT_DISCONNECT, ACK = 101, 102, 103
FIN, ABORT = 1, 2
MOST = 16380


class Frame(msgspec.Struct, frozen=True):
    """What came."""

    kind: int
    stream: int
    number: int
    size: int
    """Bytes, without the four that say how many."""
    payload: bytes
    arguments: dict[str, Any]
    """Those of the message; empty unless it is a NOTIFY."""


Answer = Callable[[trio.SocketStream, Frame], Awaitable[None]]


class Agent:
    """Greets and judges every client; a test may change the answers at any time."""

    def __init__(self, answer: Answer, greet: Answer) -> None:
        self.port = 0
        self.answer = answer
        self.greet = greet
        self.asked: list[Frame] = []
        self.connections = 0
        """How many there have been."""
        self.open = 0
        self._changed = trio.Event()

    async def wait_until(self, is_so: Callable[["Agent"], bool]) -> None:
        """Return once that holds of this agent."""
        while not is_so(self):
            await self._changed.wait()

    async def serve(self, stream: trio.SocketStream) -> None:
        """Answer each frame of one connection, until either side ends it."""
        self.connections += 1
        self.open += 1
        self._report()
        try:
            async with stream:
                while frame := await _receive(stream):
                    if frame.kind == NOTIFY:
                        self.asked.append(frame)
                        self._report()
                        await self.answer(stream, frame)
                    elif frame.kind == HELLO:
                        await self.greet(stream, frame)
                    else:
                        return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            return
        finally:
            self.open -= 1
            self._report()

    def _report(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


async def greet(stream: trio.SocketStream, asked: Frame) -> None:
    """Greet as an agent with no wishes."""
    await stream.send_all(agent_hello())


def acking(**variables: Any) -> Answer:
    """Return what sets *variables* for every request: texts, numbers, and values given as bytes."""

    async def answer(stream: trio.SocketStream, asked: Frame) -> None:
        await stream.send_all(frame(ACK, asked, set_variables(**variables)))

    return answer


@asynccontextmanager
async def judging(answer: Answer | None = None, *, greet: Answer = greet, port: int = 0) -> AsyncIterator[Agent]:
    """Run an agent until the block ends; without *answer* it objects to nothing."""
    agent = Agent(answer or acking(), greet)
    async with trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(port, host="127.0.0.1")
        agent.port = listeners[0].socket.getsockname()[1]
        nursery.start_soon(trio.serve_listeners, agent.serve, listeners)
        try:
            yield agent
        finally:
            nursery.cancel_scope.cancel(reason="the test needs no agent any more")


def frame(kind: int, asked: Frame, payload: bytes, *, flags: int = FIN, stream: int = 0, number: int = 0) -> bytes:
    """Return the frame that answers *asked*, with its identifiers changed by *stream* and *number*."""
    content = bytes([kind]) + struct.pack("!I", flags) + integer(asked.stream + stream) + integer(asked.number + number)
    return struct.pack("!I", len(content + payload)) + content + payload


def agent_hello(version: str = "2.0", most: int = MOST) -> bytes:
    """Return the frame by which an agent greets."""
    items = plain("version") + text(version) + plain("max-frame-size") + b"\3" + integer(most)
    first = Frame(kind=HELLO, stream=0, number=0, size=0, payload=b"", arguments={})
    return frame(AGENT_HELLO, first, items + plain("capabilities") + text(""))


def set_variables(**variables: Any) -> bytes:
    """Return the actions that set them for the transaction."""
    actions = b""
    for name, value in variables.items():
        actions += b"\1\3\2" + plain(name)
        if isinstance(value, bytes):
            actions += value
        else:
            actions += text(value) if isinstance(value, str) else b"\4" + integer(value)
    return actions


def integer(value: int) -> bytes:
    """Return one of the protocol's integers of variable length: 4 bits in the first byte, then 7 in each."""
    if value < 240:
        return bytes([value])
    out, value = bytearray([(value & 15) | 240]), (value - 240) >> 4
    while value >= 128:
        out.append((value & 127) | 128)
        value = (value - 128) >> 7
    return bytes([*out, value])


def plain(name: str) -> bytes:
    """Return a name, or a text without its kind."""
    return integer(len(name.encode())) + name.encode()


def text(value: str) -> bytes:
    """Return a text as a value."""
    return b"\x08" + plain(value)


async def _receive(stream: trio.SocketStream) -> Frame | None:
    head = await _read(stream, 4)
    content = await _read(stream, struct.unpack("!I", head)[0]) if head else b""
    if not content:
        return None
    number, at = _read_int(content, 5)
    second, at = _read_int(content, at)
    arguments = _read_message(content, at) if content[0] == NOTIFY else {}
    return Frame(content[0], number, second, len(content), content[at:], arguments)


async def _read(stream: trio.SocketStream, count: int) -> bytes:
    """Return so many bytes; empty where they do not come."""
    data = b""
    while len(data) < count:
        part = await stream.receive_some(count - len(data))
        if not part:
            return b""
        data += part
    return data


def _read_int(data: bytes, at: int) -> tuple[int, int]:
    value, at, shift = data[at], at + 1, 4
    if value < 240:
        return value, at
    while True:
        byte, at = data[at], at + 1
        value += byte << shift
        shift += 7
        if byte < 128:
            return value, at


def _read_text(data: bytes, at: int) -> tuple[bytes, int]:
    length, at = _read_int(data, at)
    return data[at : at + length], at + length


def _read_message(data: bytes, at: int) -> dict[str, Any]:
    _name, at = _read_text(data, at)
    count, at = data[at], at + 1
    arguments: dict[str, Any] = {}
    for _ in range(count):
        name, at = _read_text(data, at)
        kind, at = data[at] & 15, at + 1
        value: Any = None
        if kind in {2, 3, 4, 5}:
            value, at = _read_int(data, at)
        elif kind in {6, 7}:
            family, size = (socket.AF_INET, 4) if kind == 6 else (socket.AF_INET6, 16)
            value, at = socket.inet_ntop(family, data[at : at + size]), at + size
        elif kind in {8, 9}:
            value, at = _read_text(data, at)
        arguments[name.decode()] = value
    return arguments
