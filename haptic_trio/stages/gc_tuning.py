"""Tuning of Python's garbage collector for objects that live as long as an iteration.

An iteration holds hundreds of thousands of objects, fragments and sections
without reference cycles, and each full collection traverses all of them: with
10,000 Ingresses this costs more than building them. Collections are therefore
disabled while an iteration starts, and while a candidate is made; then the
existing objects are *frozen*, which excludes them from collections.

One full collection for each iteration frees the objects of the previous one.
It stops all tasks, so an iteration that takes over a candidate delays it until
the change of the configuration has reached every endpoint. Of two iterations
in quick succession the second one begins with it.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from haptic_trio.channels import Latest
from haptic_trio.messages import ConfigValidated

SETTLE_LIMIT: Final = 60.0
"""Seconds after which existing objects are frozen even if no configuration is valid yet."""
COLLECT_DELAY: Final = 10.0
"""Seconds from then until the objects of the previous iteration are collected."""


class Collections:
    """When this process collects garbage; does nothing unless *wanted*."""

    def __init__(self, *, wanted: bool) -> None:
        self._wanted = wanted
        self._has_garbage = False
        """Whether the objects of an earlier iteration are not collected yet."""

    @contextmanager
    def building(self, *, is_resumed: bool) -> Iterator[None]:
        """Disable collections until `run_freeze` or the end of the block, which runs an iteration.

        *is_resumed*: the iteration takes over a candidate.
        """
        if not self._wanted:
            yield
            return
        is_due = self._has_garbage or not is_resumed
        if is_due:
            gc.collect()
        self._has_garbage = not is_due
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
        gc.disable()
        try:
            yield
        finally:
            gc.enable()

    async def run_freeze(self, validated: Latest[ConfigValidated]) -> None:
        """Freeze existing objects once the first configuration is valid, and collect what is due; then return."""
        with trio.move_on_after(SETTLE_LIMIT):
            await validated.wait_newer(0)
        if not self._wanted or gc.isenabled():
            return
        gc.freeze()
        gc.enable()
        if self._has_garbage:
            await trio.sleep(COLLECT_DELAY)
            gc.unfreeze()
            gc.collect()
            gc.freeze()
            self._has_garbage = False
