"""Outage of an API server: found by a failed request, followed by probes, and ended by the first success."""

import random
from collections.abc import Awaitable, Callable
from typing import Final, NoReturn

import trio

from haptic_trio.k8s.errors import ApiError, MissingError

PROBE_INTERVAL: Final = 1.0
"""Seconds between two probes, each shortened by up to a half at random."""
PROBE_LIMIT: Final = 2.0
"""Seconds that a probe may take."""


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

    def suspect(self) -> None:
        """Have the server probed: a request failed, or got no answer."""
        self._suspected.set()

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

    async def run(self, probe: Callable[[], Awaitable[object]]) -> NoReturn:
        """Call *probe* each time that the server is suspected, and again until it answers.

        *probe* sends a request and raises `ApiError`. A probe that fails makes
        the outage known. If the first one succeeds, only a connection or a
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
