"""Lock of a directory that one controller or agent owns."""

import contextlib
import errno
import fcntl
import os
from collections.abc import AsyncIterator
from pathlib import Path

import trio

from haptic_trio.errors import HapticError
from haptic_trio.state_files.reader import open_state_file

LOCK_LIMIT = 2.0
"""Seconds in which the lock of a directory is tried."""
LOCK_INTERVAL = 0.02
"""Seconds between two attempts to lock a directory."""


class InstanceLockedError(HapticError):
    """Another controller owns this instance or state directory; a retry helps after it has ended."""


@contextlib.asynccontextmanager
async def lock_directory(directory: Path) -> AsyncIterator[None]:
    """Create and lock *directory* for this process.

    Raises InstanceLockedError if another process keeps it for LOCK_LIMIT. A
    controller that is killed while it starts HAProxy leaves a child that holds
    a copy of the descriptor, and so the lock, until the child runs its program.
    """
    descriptor = await trio.to_thread.run_sync(_open_lock, directory)
    try:
        with trio.move_on_after(LOCK_LIMIT):
            # flock() has no deadline, and a thread that waits in it cannot be cancelled.
            while not _try_lock(descriptor):  # noqa: ASYNC110
                await trio.sleep(LOCK_INTERVAL)
        if not _try_lock(descriptor):
            holder = os.pread(descriptor, 32, 0).decode(errors="replace")
            raise InstanceLockedError(
                f"{directory} belongs to another controller{f' (pid {holder})' if holder else ''};"
                " stop it, or use another directory: --state-dir DIRECTORY"
            )
        # The pid only informs: without it, the lock protects as well.
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _open_lock(directory: Path) -> int:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / "lock"
    try:
        return open_state_file(path, os.O_RDWR | os.O_CREAT)
    except OSError as exc:
        if exc.errno != errno.EROFS:
            raise
        # A descriptor that may only be read can be locked, too.
        return open_state_file(path)


def _try_lock(descriptor: int) -> bool:
    """Lock the open file if it is free; a descriptor that has the lock keeps it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
