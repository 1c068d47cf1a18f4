"""Tuning of Python's garbage collector for objects that live as long as an iteration.

An iteration holds hundreds of thousands of objects, fragments and sections
without reference cycles, and each full collection traverses all of them: with
10,000 Ingresses this costs more than building them. Collections are therefore
disabled while an iteration starts; then the existing objects are *frozen*,
which excludes them from collections. At the end of the iteration all objects
are unfrozen, and the next one begins with a full collection.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from haptic_trio.channels import Latest
from haptic_trio.messages import ConfigValidated

SETTLE_LIMIT = 60.0
"""Seconds after which existing objects are frozen even if no configuration is valid yet."""


@contextmanager
def building_without_collections(*, wanted: bool) -> Iterator[None]:
    """Disable collections until `run_freeze` or the end of the block; does nothing unless *wanted*."""
    if not wanted:
        yield
        return
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        gc.enable()


async def run_freeze(validated: Latest[ConfigValidated]) -> None:
    """Freeze existing objects once the first configuration is valid, if collections are disabled; then return."""
    with trio.move_on_after(SETTLE_LIMIT):
        await validated.wait_newer(0)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
