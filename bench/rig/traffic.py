"""Backends that say who they are, a client that waits for an effect, and one that sends at a constant rate."""

from collections.abc import Callable
from functools import partial

import msgspec
import trio

from haptic_trio.errors import HapticError

LOOPBACK = "127.0.0.1"
ANSWER_LIMIT = 5.0
EFFECT_LIMIT = 300.0


class NoEffectError(HapticError):
    """A change did not reach traffic; the controller's log says why. Trying again helps on a quieter machine."""


class Answer(msgspec.Struct, frozen=True):
    """What came back; status 0 when nothing did."""

    status: int = 0
    backend: str = ""
    greeting: str = ""


async def serve_backend(name: str, *, task_status: trio.TaskStatus[int]) -> None:
    """Answer every request with *name* in a header; started() gives the port."""
    reply = f"HTTP/1.1 200 OK\r\nX-Backend: {name}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode()

    async def answer(stream: trio.SocketStream) -> None:
        # A client that goes away early is no business of the backend's.
        try:
            async with stream:
                if await stream.receive_some():
                    await stream.send_all(reply)
        except trio.BrokenResourceError:
            return

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, answer, 0, host=LOOPBACK))
        task_status.started(listeners[0].socket.getsockname()[1])


async def ask(port: int, host: str) -> Answer:
    """Send one request on a new connection."""
    answer = bytearray()
    with trio.move_on_after(ANSWER_LIMIT):
        try:
            async with await trio.open_tcp_stream(LOOPBACK, port) as stream:
                await stream.send_all(f"GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
                async for chunk in stream:
                    answer += chunk
        except (OSError, trio.BrokenResourceError):
            return Answer()
    return _read(answer.decode("latin-1"))


def _read(text: str) -> Answer:
    status, *lines = text.partition("\r\n\r\n")[0].split("\r\n")
    words = status.split()
    if len(words) < 2 or not words[1].isdecimal():
        return Answer()
    fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return Answer(int(words[1]), fields.get("x-backend", ""), fields.get("x-greeting", ""))


async def wait_for(port: int, host: str, accept: Callable[[Answer], bool], *, since: float) -> float:
    """Ask until *accept* takes an answer; return how long that was after *since*, in seconds.

    Asks less often the longer it takes, so that the client is never more
    than a hundredth off and does not take the processor from what it
    measures.
    """
    with trio.move_on_after(EFFECT_LIMIT):
        while True:
            answer = await ask(port, host)
            elapsed = trio.current_time() - since
            if accept(answer):
                return elapsed
            await trio.sleep(max(0.001, elapsed / 100))
    raise NoEffectError(f"{host} did not change within {EFFECT_LIMIT:g} s; the last answer was {answer}")


class Background:
    """Requests at a constant rate, each on a new connection; each must be answered with 200."""

    def __init__(self) -> None:
        self.sent = 0
        self.errors = 0

    async def run(self, port: int, hosts: list[str], rate: float) -> None:
        """Send *rate* requests a second, to one host after another, until cancelled."""
        begin = trio.current_time()
        number = 0
        async with trio.open_nursery() as nursery:
            while True:
                await trio.sleep_until(begin + number / rate)
                # A loop that was held up does not make up for it with a burst.
                number = max(number + 1, int((trio.current_time() - begin) * rate))
                nursery.start_soon(self._send, port, hosts[number % len(hosts)])

    async def _send(self, port: int, host: str) -> None:
        answer = await ask(port, host)
        self.sent += 1
        self.errors += answer.status != 200
