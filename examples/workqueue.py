"""A controller that keeps copies in line with originals: the work queue library in one page.

python examples/workqueue.py
"""

# ruff: noqa: INP001, T201 - a script that prints what happens

from collections.abc import AsyncIterator

import structlog
import trio

from haptic_trio.workqueue.controller import RequeueAfter
from haptic_trio.workqueue.extras.source_controller import SourceController
from haptic_trio.workqueue.extras.subscription import Event, EventKind

ORIGINALS = {"red": 1, "green": 1}
"""The desired state; the controller compares it with COPIES."""
COPIES: dict[str, int] = {}


class Changes:
    """A source: lists the originals, then sends the names that changed."""

    def __init__(self, names: trio.MemoryReceiveChannel[str]) -> None:
        self._names = names
        self._index = 1

    async def events(self, from_index: int | None) -> AsyncIterator[Event[str]]:
        """Stream the listing and every change after it; a stream that resumes gets the listing as well."""
        print(f"source: asked for {'everything' if from_index is None else f'what came after {from_index}'}")
        yield Event(self._index, EventKind.SNAPSHOT_START)
        for name in sorted(ORIGINALS):
            yield Event(self._index, EventKind.UPSERT, name)
        yield Event(self._index, EventKind.SNAPSHOT_END)
        while True:
            name = await self._names.receive()
            self._index += 1
            yield Event(self._index, EventKind.UPSERT, name)


class Copier:
    """The reconciler: brings one copy in line; its first try at "red" fails."""

    def __init__(self) -> None:
        self.has_failed = False

    async def reconcile(self, name: str) -> RequeueAfter | None:
        """Copy the newest version of *name*, and read "green" again a little later."""
        version = ORIGINALS[name]
        await trio.sleep(0.02)
        if name == "red" and not self.has_failed:
            self.has_failed = True
            print(f"{name}: the disk is full, try again")
            raise OSError("disk full")
        is_new = COPIES.get(name) != version
        COPIES[name] = version
        print(f"{name}: {'copied version' if is_new else 'still at version'} {version}")
        if name == "green" and is_new:
            return RequeueAfter(0.4)
        return None


async def main() -> None:
    """Run the controller for a good half second, while ten changes of "red" come in one burst."""
    names_in, names_out = trio.open_memory_channel[str](16)
    controller: SourceController[str] = (
        SourceController(Copier().reconcile, name="copies", key_of=str)
        # Without log lines among the printed ones.
        .with_logger(structlog.wrap_logger(structlog.ReturnLogger()))
        .with_backoff(base=0.1, max=1.0)
        .subscribe(Changes(names_out))
    )
    with names_in, names_out:
        async with trio.open_nursery() as nursery:
            await nursery.start(controller.run)
            await trio.sleep(0.25)
            for version in range(2, 12):
                ORIGINALS["red"] = version
                names_in.send_nowait("red")
            await trio.sleep(0.3)
            nursery.cancel_scope.cancel(reason="the example is over")


if __name__ == "__main__":
    trio.run(main)
