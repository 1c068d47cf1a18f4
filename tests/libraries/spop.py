"""A small agent that speaks SPOP 2.0: it notes what it is asked and gives one verdict on everything."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_HELLO, _DISCONNECT, _NOTIFY = 1, 2, 3
_AGENT_HELLO, _AGENT_DISCONNECT, _ACK = 101, 102, 103
_UINT32, _STRING = 3, 8
_SET_VAR, _TRANSACTION = 1, 2


class Agent:
    """Judges requests until it is closed."""

    def __init__(self, verdict: str) -> None:
        self.verdict = verdict
        self.asked: list[dict[str, Any]] = []
        """The arguments of each message."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as incoming:
            while head := incoming.read(4):
                frame = incoming.read(struct.unpack("!I", head)[0])
                kind, (stream, at) = frame[0], _read_int(frame, 5)
                number, at = _read_int(frame, at)
                if kind == _HELLO:
                    healthcheck = b"healthcheck" in frame[at:]
                    items = _item("version", _text("2.0")) + _item("max-frame-size", bytes([_UINT32]) + _int(16380))
                    connection.sendall(_frame(_AGENT_HELLO, 0, 0, items + _item("capabilities", _text(""))))
                    if healthcheck:
                        return
                elif kind == _NOTIFY:
                    self.asked.append(_read_message(frame, at))
                    action = bytes([_SET_VAR, 3, _TRANSACTION]) + _plain("action") + _text(self.verdict)
                    connection.sendall(_frame(_ACK, stream, number, action if self.verdict else b""))
                elif kind == _DISCONNECT:
                    connection.sendall(
                        _frame(_AGENT_DISCONNECT, 0, 0, _item("status-code", bytes([_UINT32]) + _int(0)))
                    )
                    return


@contextmanager
def judging(verdict: str) -> Iterator[Agent]:
    """Run an agent whose verdict on everything is *verdict*; empty is that it objects to nothing."""
    agent = Agent(verdict)
    try:
        yield agent
    finally:
        agent.close()


def _frame(kind: int, stream: int, number: int, payload: bytes) -> bytes:
    content = bytes([kind]) + struct.pack("!I", 1) + _int(stream) + _int(number) + payload
    return struct.pack("!I", len(content)) + content


def _int(value: int) -> bytes:
    """The protocol's integers of variable length: 4 bits in the first byte, then 7 in each."""
    if value < 240:
        return bytes([value])
    out, value = bytearray([(value & 15) | 240]), (value - 240) >> 4
    while value >= 128:
        out.append((value & 127) | 128)
        value = (value - 128) >> 7
    return bytes([*out, value])


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


def _plain(text: str) -> bytes:
    return _int(len(text)) + text.encode()


def _text(text: str) -> bytes:
    return bytes([_STRING]) + _plain(text)


def _item(name: str, value: bytes) -> bytes:
    return _plain(name) + value


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
            size = 4 if kind == 6 else 16
            value, at = (
                socket.inet_ntop(socket.AF_INET if kind == 6 else socket.AF_INET6, data[at : at + size]),
                at + size,
            )
        elif kind in {8, 9}:
            value, at = _read_text(data, at)
        arguments[name.decode()] = value
    return arguments
