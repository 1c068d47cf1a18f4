"""Watcher of a directory tree by kernel notifications, across replacement of the directory."""

import os
import re
from collections.abc import Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, TypeAlias

import trio
import watchfiles

from haptic_trio.errors import HapticError, leaves_of, text_of
from haptic_trio.k8s.manifests.files import is_relevant

TreeChange: TypeAlias = frozenset[str] | None
"""Paths at which something may have changed; None: anywhere."""

# Milliseconds. A save is reported after one quiet step, a stream of changes at least once per debounce.
_STEP: Final = 5
_DEBOUNCE: Final = 30
_HEARTBEAT: Final = 250
_NOT_UTF_8: Final = "Unable to decode path"
"""Beginning of the library's error for an event about a path that is not UTF-8, which ends the watch."""
_INODE: Final = re.compile(r"^inotify wd:\S+ ino:([0-9a-f]+) ", re.MULTILINE)


class DirectoryError(HapticError):
    """The directory cannot be used as a cluster; trying again helps once it is there and readable."""

    def __init__(self, path: Path, message: str, hint: str) -> None:
        self.path = path
        self.hint = hint
        super().__init__(f"{path}: {message} ({hint})")


async def watch_tree(root: Path, changes: trio.MemorySendChannel[TreeChange]) -> None:
    """Send what may have changed below *root*, an absolute path, until the reader is gone.

    Takes ownership of *changes*. Sends None each time that it begins to
    watch, at most a heartbeat of 250 ms later (what happened before that has
    not been noticed), and each time that the directory goes or is replaced.
    Raises `DirectoryError`, in an exception group, if the kernel fails to
    watch at the start; later failures are retried.
    """
    stop = trio.Event()
    with changes:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_set_when_cancelled, stop)
            with suppress(trio.BrokenResourceError):
                is_first = True
                while True:
                    identity = _identity(root)
                    if identity is None:
                        await trio.sleep(_HEARTBEAT / 1000)
                        continue
                    try:
                        await _watch_one(root, identity, changes, stop)
                    except DirectoryError:
                        if is_first:
                            raise
                        # The scan reports a directory that cannot be read.
                        await trio.sleep(_HEARTBEAT / 1000)
                    is_first = False
                    await changes.send(None)
            nursery.cancel_scope.cancel()


async def _watch_one(
    root: Path, identity: tuple[int, int], changes: trio.MemorySendChannel[TreeChange], stop: trio.Event
) -> None:
    """Watch until another directory, or none, is at *root*."""
    batches = watchfiles.awatch(
        root,
        watch_filter=lambda _change, path: is_relevant(str(root), path),
        debounce=_DEBOUNCE,
        step=_STEP,
        stop_event=stop,
        rust_timeout=_HEARTBEAT,
        yield_on_timeout=True,
        ignore_permission_denied=True,
    )
    is_first, is_disturbed = True, False
    async with aclosing(batches):
        try:
            async for batch in batches:
                if is_first:
                    is_first = False
                    await changes.send(None)
                if batch:
                    await changes.send(frozenset(path for _change, path in batch))
                if _identity(root) != identity:
                    return
        except (OSError, RuntimeError, ExceptionGroup) as error:
            # Errors of the library that watches are RuntimeErrors; it exports no class of its own for them. Those that
            # occur while it waits are in a group.
            leaves = tuple(leaves_of(error))
            if not all(isinstance(leaf, OSError | RuntimeError) for leaf in leaves):
                raise
            if all(isinstance(leaf, FileNotFoundError) for leaf in leaves):
                return
            is_disturbed = all(str(leaf).startswith(_NOT_UTF_8) for leaf in leaves)
            if not is_disturbed:
                hint = "the limits fs.inotify.max_user_watches and max_user_instances may be too low"
                raise DirectoryError(root, f"cannot be watched: {text_of(error)}", hint) from error
    if is_disturbed:
        # The scan reports the name. Each event about it ends another watch: the pause limits their number.
        await trio.sleep(_HEARTBEAT / 1000)


def find_unwatched(directories: Sequence[str]) -> list[str]:
    """Return those of *directories* for which this process has no kernel watch; blocks.

    The kernel allows no watches beyond `fs.inotify.max_user_watches`, without
    an error for directories below the first one. Empty if the first one seems
    unwatched, too: then the numbers of this file system are not comparable.
    """
    watched = _read_watched()
    inodes: dict[str, int] = {}
    for directory in directories:
        with suppress(OSError):
            inodes[directory] = os.stat(directory).st_ino  # noqa: PTH116 - called for thousands of directories
    unwatched = [directory for directory, inode in inodes.items() if inode not in watched]
    return [] if directories and directories[0] in unwatched else unwatched


def _read_watched() -> frozenset[int]:
    """Return the inodes that this process watches."""
    found: set[int] = set()
    # A descriptor may be closed meanwhile.
    with suppress(OSError):
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):
                if os.readlink(entry) == "anon_inode:inotify":  # noqa: PTH115 - not a path
                    text = Path(f"/proc/self/fdinfo/{entry.name}").read_text()
                    found.update(int(number, 16) for number in _INODE.findall(text))
    return frozenset(found)


def _identity(root: Path) -> tuple[int, int] | None:
    """Return an identity of the directory at *root* that a replacement does not share; None without a directory."""
    try:
        status = root.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


async def _set_when_cancelled(stop: trio.Event) -> None:
    """Make the waiting thread return at once: it cannot be cancelled, but it looks at *stop* in every step."""
    try:
        await trio.sleep_forever()
    finally:
        stop.set()
