"""Task that keeps the accepted contents of a process on disk."""

from typing import Final

import trio

from haptic_trio.errors import Problem, text_of
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.httpstore.events import FetchProblem, Report

RETRY: Final = 60.0
"""Seconds before contents that could not be written are written again, if none changes earlier."""


async def keep_contents(memory: ContentMemory, report: Report) -> None:
    """Write the contents of *memory* to its files whenever they change, until cancelled; return if it has no files.

    Reports once for each reason when files cannot be written, and when they can be written again.
    """
    await trio.lowlevel.checkpoint()
    if (files := memory.files) is None:
        return
    failure = ""
    while True:
        changed = memory.changed
        newest = ""
        try:
            # Not abandoned when cancelled: a write that has begun ends, and the next task finds no other writer.
            await trio.to_thread.run_sync(files.write, memory.kept(trio.current_time()), memory.used)
        except OSError as exc:
            newest = text_of(exc)
        if newest != failure:
            failure = newest
            report(FetchProblem(str(files), _problem(str(files), failure) if failure else None))
        with trio.move_on_after(RETRY) if failure else trio.CancelScope():
            await changed.wait()


def _problem(directory: str, failure: str) -> Problem:
    return Problem(
        message=f"fetched contents cannot be stored: {failure}; after a restart they have to be fetched",
        source=directory,
        hint="make room on the disk of the state directory, and let the controller write to it",
    )
