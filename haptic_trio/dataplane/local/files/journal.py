"""Journal of the runtime changes that were applied to a process since its files were written.

A record is synced to disk before the first command is sent to the process,
and *settled* afterwards: kept, or dropped if the process rejected it. The
settlement is not synced: if a power failure loses it, the running generation
is unknown, which is always safe. A truncated record counts as not written.
"""

import os
from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple

from haptic_trio.state_files.reader import CONTENT_BYTES, open_state_file, read_state_file
from haptic_trio.state_files.writer import fsync_directory, write_file

_SIZE: Final = 4
_CHECK: Final = 16
_ENTRY: Final = b"E"
_KEPT: Final = b"K"
_DROPPED: Final = b"D"


class Records(NamedTuple):
    """Content of a journal."""

    kept: tuple[bytes, ...]
    """Entries that were applied, in order."""
    open: bytes | None
    """The last entry, if it is not settled."""


class PatchJournal:
    """The journal at *path*, which need not exist; every method blocks on the disk."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def read(self) -> Records:
        """Return the records before the first damaged one."""
        kept: list[bytes] = []
        last: bytes | None = None
        for mark, entry in self._records():
            if mark == _ENTRY:
                last = entry
            elif last is not None:
                if mark == _KEPT:
                    kept.append(last)
                last = None
        return Records(tuple(kept), last)

    def append(self, entry: bytes) -> None:
        """Write *entry*; returns after it was synced to disk."""
        os.write(self._open(), _encode(_ENTRY, entry))
        os.fdatasync(self._descriptor)

    def settle(self, *, kept: bool) -> None:
        """Settle the last entry."""
        os.write(self._open(), _encode(_KEPT if kept else _DROPPED, b""))

    def close(self) -> None:
        """Close the file; the next write opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def remove(self) -> None:
        """Remove the file."""
        self.close()
        self._path.unlink(missing_ok=True)
        fsync_directory(self._path.parent)

    def _open(self) -> int:
        if self._descriptor < 0:
            is_new = not self._path.exists()
            valid = sum(_SIZE + _CHECK + 1 + len(entry) for _, entry in self._records())
            self._descriptor = open_state_file(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            # A truncated record would hide those after it.
            os.ftruncate(self._descriptor, valid)
            if is_new:
                fsync_directory(self._path.parent)
        return self._descriptor

    def _records(self) -> list[tuple[bytes, bytes]]:
        try:
            data = read_state_file(self._path, CONTENT_BYTES)
        except FileNotFoundError:
            return []
        records = []
        at = 0
        while at + _SIZE + _CHECK < len(data):
            end = at + _SIZE + _CHECK + int.from_bytes(data[at : at + _SIZE], "big")
            body = data[at + _SIZE + _CHECK : end]
            if end > len(data) or not body or _check(body) != data[at + _SIZE : at + _SIZE + _CHECK]:
                break
            records.append((body[:1], body[1:]))
            at = end
        return records


def write_kept(path: Path, entries: Iterable[bytes]) -> None:
    """Write a journal to *path* with *entries*, all kept; returns after it was synced to disk."""
    write_file(path, b"".join(_encode(_ENTRY, entry) + _encode(_KEPT, b"") for entry in entries))
    fsync_directory(path.parent)


def _encode(mark: bytes, entry: bytes) -> bytes:
    body = mark + entry
    return len(body).to_bytes(_SIZE, "big") + _check(body) + body


def _check(body: bytes) -> bytes:
    return blake2b(body, digest_size=_CHECK).digest()
