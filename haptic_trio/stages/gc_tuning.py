"""Tuning of Python's garbage collector for objects that live as long as an iteration.

An iteration holds hundreds of thousands of objects, fragments and sections
without reference cycles, and each full collection traverses all of them: with
10,000 Ingresses this costs more than building them. Collections are therefore
disabled while an iteration starts, and while a candidate is made; then the
existing objects are *frozen*, which excludes them from collections.

The objects of a former iteration are freed without a collection: what refers
to them in a circle is *released* explicitly, in a worker thread. The rest, a
few thousand tasks and functions for each iteration, waits for a collection. A
collection stops all threads, for a second with 10,000 Ingresses, so it waits
until no object has changed for a while. It does not wait for ever: a later
change of the configuration, or `LONGEST_WAIT`, makes it due.
"""

import gc
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import trio

from haptic_trio.channels import AnyChange, Latest
from haptic_trio.messages import ConfigValidated

SETTLE_LIMIT: Final = 60.0
"""Seconds after which existing objects are frozen even if no configuration is valid yet."""
RELEASE_DELAY: Final = 5.0
"""Seconds until the objects of former iterations are released: the changed configuration is deployed first."""
QUIET: Final = 10.0
"""Seconds without a changed configuration of HAProxy after which garbage of former iterations is collected."""
LONGEST_WAIT: Final = 600.0
"""Seconds after which it is collected even if there was always a change."""
MOST_UNCOLLECTED: Final = 10
"""Number of former iterations and candidates whose garbage may wait; one more begins with a collection."""


class Collections:
    """When this process collects garbage; does nothing unless *wanted*."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._uncollected = 0
        """Number of former iterations and candidates whose garbage is not collected yet."""
        self._retired: list[Callable[[], Awaitable[None]]] = []

    def retire(self, release: Callable[[], Awaitable[None]]) -> None:
        """Let the next `release_retired` call *release*, which frees objects that refer to each other in a circle."""
        self._retired.append(release)

    async def release_retired(self) -> None:
        """Free what was retired; in a cancelled task the rest is freed by a later call."""
        while self._retired:
            release = self._retired.pop()
            try:
                await release()
            except trio.Cancelled:
                self._retired.append(release)
                raise

    @contextmanager
    def building(self, *, is_resumed: bool) -> Iterator[None]:
        """Disable collections until `run_freeze` or the end of the block, which runs an iteration.

        *is_resumed*: the iteration takes over a candidate.
        """
        if not self._wanted:
            yield
            return
        self._uncollected += 1
        if not is_resumed or self._uncollected > MOST_UNCOLLECTED:
            gc.collect()
            self._uncollected = 0
        gc.disable()
        try:
            yield
        finally:
            gc.unfreeze()
            gc.enable()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Disable collections during the block, which makes a candidate."""
        if not self._wanted or not gc.isenabled():
            yield
            return
        self._uncollected += 1
        if self._uncollected > MOST_UNCOLLECTED:
            # Of candidates that were rejected one after another.
            self._collect()
        gc.disable()
        try:
            yield
        finally:
            # Otherwise the first collection would traverse all that was made meanwhile, and stop all threads.
            gc.freeze()
            gc.enable()

    def _collect(self) -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()
        self._uncollected = 0

    async def run_freeze(self, validated: Latest[ConfigValidated], changes: Sequence[Latest[Any]] = ()) -> None:
        """Freeze existing objects once the first configuration is valid, and free those of former iterations.

        A new value of any of *changes* puts off the collection. Returns after it.
        """
        with trio.move_on_after(SETTLE_LIMIT):
            await validated.wait_newer(0)
        if self._wanted and not gc.isenabled():
            gc.freeze()
            gc.enable()
        if self._retired:
            await trio.sleep(RELEASE_DELAY)
        await self.release_retired()
        if self._wanted and self._uncollected:
            with trio.move_on_after(LONGEST_WAIT):
                await _wait_quiet(AnyChange(changes))
            self._collect()


async def _wait_quiet(any_change: AnyChange) -> None:
    is_quiet = False
    while not is_quiet:
        with trio.move_on_after(QUIET) as scope:
            await any_change.wait()
        is_quiet = scope.cancelled_caught
