"""Tuning of Python's garbage collector for objects that live as long as an iteration.

Objects, fragments and sections by the hundred thousand hold no cycles, and
each full collection looks at all of them: at 10,000 Ingresses this costs more
than building them. So there is no collection while they are built, and what
is there afterwards is *frozen*, which means not looked at. At the end of an
iteration nothing is frozen any more, and one collection takes what cycles it
has left.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from haptic_trio.channels import Latest
from haptic_trio.messages import ConfigValidated

SETTLE_LIMIT = 60.0
"""Seconds after which what is there is frozen, whether anything was valid by then or not."""


@contextmanager
def building_without_collections(*, wanted: bool) -> Iterator[None]:
    """Hold off collections until `run_freeze` or the end of the block; nothing if not *wanted*."""
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
    """Freeze what is there once the first configuration is valid, if collections are held off."""
    with trio.move_on_after(SETTLE_LIMIT):
        await validated.wait_newer(0)
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
