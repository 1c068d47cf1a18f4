"""Tuning of Python's garbage collector for objects that live as long as an iteration.

An iteration holds hundreds of thousands of objects, fragments and sections
without reference cycles, and each full collection traverses all of them and
stops all threads: for a second at 10,000 Ingresses. Collections are therefore
disabled while an iteration starts, and while a candidate is made; then the
existing objects are *frozen*, which excludes them from collections.

The objects of a former iteration are freed without a collection: what refers
to them in a circle is *released* explicitly, in a worker thread. What remains
of it, some thousand objects and less than 1 MB whatever the size of the
cluster, stays until an iteration begins without a candidate: then nothing is
served by this iteration yet, so everything is collected. After `MOST_RELEASED`
releases, one collection stops the process all the same, because memory would
grow with each change of the ConfigMap otherwise.
"""

import gc
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Final

import trio

from haptic_trio.channels import Latest
from haptic_trio.messages import ConfigValidated

SETTLE_LIMIT: Final = 60.0
"""Seconds after which existing objects are frozen even if no configuration is valid yet."""
MOST_RELEASED: Final = 100
"""Releases until everything is collected; their remains take less than 100 MB."""
RELEASE_DELAY: Final = 5.0
"""Seconds until the objects of former iterations are released: the changed configuration is deployed first."""


class Pause:
    """A time without collections."""

    is_in_vain = False
    """Whether all that was made meanwhile has been freed again. What remains of it is left to the next collection."""


class Collections:
    """When this process collects garbage; does nothing unless *wanted*."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._retired: list[Callable[[], Awaitable[None]]] = []
        self._released = 0

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
            self._released += 1
        if self._wanted and self._released >= MOST_RELEASED:
            self._collect_everything()
            gc.freeze()

    def _collect_everything(self) -> None:
        gc.unfreeze()
        gc.collect()
        self._released = 0

    @contextmanager
    def building(self, *, is_resumed: bool) -> Iterator[None]:
        """Disable collections until `run_freeze` or the end of the block, which runs an iteration.

        *is_resumed*: the iteration takes over a candidate; otherwise everything is collected before.
        """
        if not self._wanted:
            yield
            return
        if not is_resumed:
            self._collect_everything()
        gc.disable()
        try:
            yield
        finally:
            gc.enable()

    @contextmanager
    def paused(self) -> Iterator["Pause"]:
        """Disable collections during the block, which makes a candidate."""
        pause = Pause()
        if not self._wanted or not gc.isenabled():
            yield pause
            return
        gc.disable()
        try:
            yield pause
        finally:
            if not pause.is_in_vain:
                # Otherwise the first collection would traverse all that was made meanwhile, and stop all threads.
                gc.freeze()
            gc.enable()

    async def pausing(self, read: Callable[[], Awaitable[object]]) -> None:
        """Call *read*, which reads what all iterations use, without collections."""
        with self.paused():
            await read()

    async def run_freeze(self, validated: Latest[ConfigValidated], *, is_resumed: bool) -> None:
        """Allow collections once the first configuration is valid, and free the objects of former iterations.

        What exists by then is frozen, unless the iteration *is_resumed*: the
        candidate is frozen already, and the rest is small. Ends after that.
        """
        with trio.move_on_after(SETTLE_LIMIT):
            await validated.wait_newer(0)
        if self._wanted and not gc.isenabled():
            if not is_resumed:
                gc.freeze()
            gc.enable()
        if self._retired:
            await trio.sleep(RELEASE_DELAY)
        await self.release_retired()
