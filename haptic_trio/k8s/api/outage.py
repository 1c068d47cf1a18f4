"""Outage of an API server: found by a failed request or a long silence, followed by probes, ended by a success."""

import contextlib
import math
import random
from collections.abc import Awaitable, Callable, Iterator
from typing import Final, NoReturn

import trio

from haptic_trio.k8s.errors import ApiError, MissingError

PROBE_INTERVAL: Final = 1.0
"""Seconds between two probes, each shortened by up to a half at random."""
PROBE_LIMIT: Final = 2.0
"""Seconds that a probe may take."""
SILENCE_INTERVAL: Final = 15.0
"""Seconds without an answer to any request after which the server is probed while a watch is silent."""
HANG_LIMIT: Final = 30.0
"""Seconds of silence after which a watch ends, if the server does not answer probes either."""
HANG_CHECK_INTERVAL: Final = 1.0
"""Seconds between two checks of silent watches."""


class Outage:
    """Whether an API server is known to fail, shared by all requests of a connection.

    Delays after failures grow, and each request has its own. So every delay
    that may end early is a `sleep` of this object: it ends when any request,
    or the probe, shows that the server answers again.
    """

    def __init__(self) -> None:
        self._is_known = False
        self._suspected = trio.Event()
        self._over = trio.Event()
        self._answered_at = -math.inf
        self._silent: dict[trio.CancelScope, float] = {}

    def suspect(self) -> None:
        """Have the server probed: a request failed, or got no answer."""
        self._suspected.set()

    def note_answer(self) -> None:
        """Record an answer of the server, errors included: it does not hang."""
        self._answered_at = trio.current_time()

    def end(self) -> None:
        """Wake everything that waits for the server: a request succeeded."""
        if self._is_known:
            self._is_known = False
            self._over.set()
            self._over = trio.Event()

    async def sleep(self, seconds: float) -> bool:
        """Sleep, but not beyond the end of an outage; return whether that ended the sleep."""
        with trio.move_on_after(seconds):
            await self._over.wait()
            return True
        return False

    async def wait_over(self) -> None:
        """Return when the next outage has ended."""
        await self._over.wait()

    @contextlib.contextmanager
    def end_if_hanging(self) -> Iterator[trio.CancelScope]:
        """Cancel the block, which waits for data of the server, once the server hangs.

        A watch without data proves nothing: perhaps no object has changed. A
        server hangs if it has answered no request for HANG_LIMIT either,
        probes included.
        """
        with trio.CancelScope() as scope:
            self._silent[scope] = trio.current_time()
            try:
                yield scope
            finally:
                del self._silent[scope]

    async def run(self, probe: Callable[[], Awaitable[object]]) -> NoReturn:
        """Probe the server and check silent watches until cancelled; *probe* sends a request and raises `ApiError`."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._check_silence)
            await self._probe_suspected(probe)

    async def _check_silence(self) -> NoReturn:
        while True:
            await trio.sleep(HANG_CHECK_INTERVAL)
            now = trio.current_time()
            longest = now - min(self._silent.values(), default=now)
            # Any answer shows that the server does not hang, such as that of a lease: then nothing is probed.
            if longest >= SILENCE_INTERVAL and now - self._answered_at >= SILENCE_INTERVAL:
                self.suspect()
            if self._is_known and now - self._answered_at >= HANG_LIMIT:
                for scope, since in self._silent.items():
                    if now - since >= HANG_LIMIT:
                        scope.cancel(reason="the API server hangs")

    async def _probe_suspected(self, probe: Callable[[], Awaitable[object]]) -> NoReturn:
        """Call *probe* each time that the server is suspected, and again until it answers.

        A probe that fails makes the outage known. If the first one succeeds, only a connection or a
        kind failed, and no sleep is ended.
        """
        while True:
            await self._suspected.wait()
            while not await _answers(probe):
                self._is_known = True
                if await self.sleep(_pause()):
                    # Another request has succeeded.
                    break
            self.end()
            self._suspected = trio.Event()
            await trio.sleep(_pause())


def _pause() -> float:
    return PROBE_INTERVAL * random.uniform(0.5, 1)  # noqa: S311  spreads load, hides nothing


async def _answers(probe: Callable[[], Awaitable[object]]) -> bool:
    with trio.move_on_after(PROBE_LIMIT) as scope:
        try:
            await probe()
        except MissingError:
            # Not known to this server, but it answers.
            pass
        except ApiError:
            # Also if it is forbidden: a server that starts does not know its roles at first.
            return False
    return not scope.cancelled_caught
