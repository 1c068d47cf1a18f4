"""The client that waits for an effect, on a new connection for each question.

It polls, since HAProxy sends no notification of an applied change.
How often decides both how exact the figure is and how much the question
disturbs: a request costs the client and HAProxy some 0.15 ms together. The
pause after each answer is 0.2 ms at first, and half a percent of what has
passed later: for an effect after 10 ms that is exact to a third of a
millisecond and leaves more than half of a core to others.
"""

import socket
import ssl
import time
from collections.abc import Callable

import msgspec

from haptic_trio.errors import HapticError

LOOPBACK = "127.0.0.1"
ANSWER_LIMIT = 5.0
EFFECT_LIMIT = 120.0
LEAST_PAUSE = 0.0002
PAUSE_SHARE = 0.005


class NoEffectError(HapticError):
    """A change did not reach traffic; the controller's log says why. Trying again helps on a quieter machine."""


class Answer(msgspec.Struct, frozen=True):
    """What came back; status 0 when nothing did."""

    status: int = 0
    backend: str = ""
    greeting: str = ""
    certificate: bytes = b""
    """What the server has shown, as DER; empty without TLS."""


Accept = Callable[[Answer], bool]
Ask = Callable[[], Answer]


def ask(port: int, host: str, path: str = "/") -> Answer:
    """Send one request on a new connection."""
    answer = bytearray()
    try:
        with socket.create_connection((LOOPBACK, port), ANSWER_LIMIT) as connection:
            connection.sendall(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            while chunk := connection.recv(4096):
                answer += chunk
    except OSError:
        return Answer()
    return read_answer(answer)


def make_context() -> ssl.SSLContext:
    """Return what takes any certificate: which one it is, is the question."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def ask_certificate(port: int, host: str, context: ssl.SSLContext) -> Answer:
    """Shake hands on a new connection, without a request."""
    try:
        with (
            socket.create_connection((LOOPBACK, port), ANSWER_LIMIT) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return Answer(certificate=secure.getpeercert(binary_form=True) or b"")
    except OSError:
        return Answer()


def read_answer(data: bytes | bytearray) -> Answer:
    """Return what the head of an HTTP response says."""
    status, *lines = data.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    words = status.split()
    if len(words) < 2 or not words[1].isdecimal():
        return Answer()
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(words[1]), fields.get("x-backend", ""), fields.get("x-greeting", ""))


def wait_for(question: Ask, accept: Accept, *, since: float, check: Callable[[], None]) -> float:
    """Ask until *accept* takes an answer; return how long that was after *since* on the monotonic clock, in seconds.

    *check* is called now and then, and may raise.
    """
    number = 0
    while True:
        answer = question()
        elapsed = time.monotonic() - since
        if accept(answer):
            return elapsed
        if elapsed > EFFECT_LIMIT:
            raise NoEffectError(f"no effect within {EFFECT_LIMIT:g} s; the last answer was {answer.status}")
        number += 1
        if number % 100 == 0:
            check()
        time.sleep(max(LEAST_PAUSE, elapsed * PAUSE_SHARE))
