"""Bytes that a client may send to an HTTP server, each of which is to end its own connection alone."""

import struct
import zlib
from collections.abc import Iterator
from typing import Final

HEALTH: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
POST: Final = b"POST /healthz HTTP/1.1\r\nHost: x\r\n"
HANDSHAKE: Final = (
    b"GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
)
_PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_UPGRADE: Final = HEALTH + b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n"


def frame(operation: int, data: bytes, *, fin: int = 1, reserved: int = 0, mask: int = 1, length: int = -1) -> bytes:
    """Return a WebSocket frame of a client; *length* may be untrue."""
    size = len(data) if length < 0 else length
    head = bytes([fin << 7 | reserved << 4 | operation])
    if size < 126:
        head += bytes([mask << 7 | size])
    elif size < 65_536:
        head += bytes([mask << 7 | 126]) + struct.pack(">H", size)
    else:
        head += bytes([mask << 7 | 127]) + struct.pack(">Q", size)
    return head + b"\0\0\0\0" * mask + data


def _h2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def _http2() -> Iterator[tuple[str, bytes]]:
    yield "HTTP/2: a path that is not ASCII", _PREFACE + _h2_frame(1, 5, 1, b"\x82\x86\x41\x01x\x04\x02/\xff")
    yield "HTTP/2: CONNECT", _PREFACE + _h2_frame(1, 5, 1, b"\x02\x07CONNECT\x41\x01x")
    answered = _h2_frame(1, 4, 1, b"\x83\x86\x41\x01x\x44\x08/healthz")
    yield "HTTP/2: a body after the answer", _PREFACE + answered + _h2_frame(0, 0, 1, b"x") * 20
    many = b"".join(_h2_frame(2, 0, stream, struct.pack(">IB", 0, 16)) for stream in range(1, 2400, 2))
    yield "HTTP/2: many priorities", _PREFACE + many
    for settings in (b"____a", b"AAMAAA", b"\xff"):
        yield f"h2c with {settings!r}", _UPGRADE + b"HTTP2-Settings: " + settings + b"\r\n\r\n"
    yield "h2c without settings", _UPGRADE + b"\r\n"


def _http1() -> Iterator[tuple[str, bytes]]:
    yield "a broken chunk", POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\nZZ\r\n"
    yield "a broken first chunk", POST + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n"
    yield "two lengths", POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    yield "an absurd length", POST + b"Content-Length: 99999999999999999999\r\n\r\n"
    yield "a negative length", POST + b"Content-Length: -5\r\n\r\n"
    yield "a body that is not awaited", POST + b"Expect: 100-continue\r\nContent-Length: 5\r\n\r\nhelloJUNK\r\n\r\n"
    yield "a body that does not end", POST + b"Content-Length: 5\r\n\r\nabc"
    yield "bytes after a request", HEALTH + b"\r\n\0\0\0"
    yield "many requests at once", (HEALTH + b"\r\n") * 300
    yield "a large header", HEALTH + b"a: " + b"b" * 70_000 + b"\r\n\r\n"
    yield "a target that is no path", b"GET http://[::1 HTTP/1.1\r\nHost: [\r\n\r\n"
    yield "an escaped path that is not UTF-8", b"GET /%ff%00 HTTP/1.1\r\nHost: x\r\n\r\n"
    yield "no request", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\0" * 300


def _websocket() -> Iterator[tuple[str, bytes]]:
    yield "a protocol that is not ASCII", HANDSHAKE + b"Sec-WebSocket-Protocol: \xff\r\n\r\n"
    yield "an extension that is not ASCII", HANDSHAKE + b"Sec-WebSocket-Extensions: \xff\r\n\r\n"
    yield "a connection that is not ASCII", HANDSHAKE.replace(b"tion: Up", b"tion: \xff, Up") + b"\r\n"
    yield "another version", HANDSHAKE.replace(b"13", b"99") + b"\r\n"
    yield "HTTP/1.0", HANDSHAKE.replace(b"HTTP/1.1", b"HTTP/1.0") + b"\r\n"
    yield "no key", HEALTH + b"Upgrade: websocket\r\nConnection: upgrade\r\n\r\n"
    yield "a path without WebSockets", HANDSHAKE.replace(b"/ws", b"/healthz") + b"\r\n" + frame(1, b"x") * 10
    for bits in (b"server_max_window_bits=abc", b"client_max_window_bits=99999999; server_max_window_bits=8"):
        offer = b"Sec-WebSocket-Extensions: permessage-deflate; " + bits
        yield f"window bits {bits!r}", HANDSHAKE + offer + b"\r\n\r\n" + frame(1, b"x")
    yield "frames before the answer", HANDSHAKE + b"\r\n" + frame(1, b"{}") * 50
    yield "frames after the end", HANDSHAKE + b"\r\n" + frame(8, b"\x03\xe8") + frame(1, b"x") * 100 + frame(8, b"")
    wrong = (
        frame(1, b"x", mask=0), frame(1, b"x", reserved=7), frame(3, b"x"), frame(9, b"x" * 200), frame(0, b"x"),
        frame(1, b"\xff\xfe"), frame(8, b"x"), frame(8, b"\0\0"), frame(8, b"\x03\xe8\xff\xff"), frame(9, b"", fin=0),
        frame(1, b"", length=1 << 63), frame(1, b"x", fin=0) + frame(1, b"y"), frame(2, b"x" * 70_000),
    )  # fmt: skip
    for one in wrong:
        yield f"frame {one[:12]!r}", HANDSHAKE + b"\r\n" + one * 2 + b"\0" * 50


def compressed(size: int) -> bytes:
    """Return a handshake and a message of *size* bytes that is compressed to a thousandth of it."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = (packer.compress(b"a" * size) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    return HANDSHAKE + b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n" + frame(1, data, reserved=4)


ATTACKS: Final = (*_http2(), *_http1(), *_websocket())
