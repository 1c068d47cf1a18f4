"""Writes files of a state directory: new files of this user alone, atomically and durably."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

MOST_SYNCED: Final = 100
"""Files that are synced one by one, in milliseconds each; for more files `sync` of the whole disk is faster."""


def write_file(path: str | Path, content: bytes, *, durable: bool = True) -> None:
    """Write a new file with mode 0600; *durable*: return after it was synced to disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(descriptor)


def wait_written(paths: Sequence[str]) -> None:
    """Return after the files at *paths* (and possibly others) were synced to disk."""
    if len(paths) > MOST_SYNCED:
        os.sync()
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Replace the file at *path* by *content*, atomically and durably."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    write_file(fresh, content)
    fresh.replace(path)
    fsync_directory(path.parent)


def replace_link(path: Path, target: str) -> None:
    """Point the symbolic link *path* at *target*, atomically."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Return after the entries of the directory *path* were synced to disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
