"""Store of uploaded blobs that no generation uses yet: bounded, durable, found by digest.

An upload becomes one file, a *pack*, which is written and fsynced before it
gets its name. Names are numbers, so no input of a client becomes a path. A
pack is removed when every blob in it is part of a known generation, when
space is needed (oldest first), or after a day. So an interrupted controller
continues where it stopped, also after a restart of the agent; missing blobs
are requested again.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Final

import msgspec

from haptic_trio.dataplane.agent.messages import FrameError, decode_frames, encode_frames
from haptic_trio.errors import HapticError, text_of
from haptic_trio.logs import get_logger
from haptic_trio.state_files.reader import RECORD_BYTES, StateFileError, make_own_directory, read_state_file
from haptic_trio.state_files.writer import fsync_directory, replace_file

KEPT_FOR: Final = 24 * 3600.0
"""Seconds that an unused pack is kept."""


class StoreFullError(HapticError):
    """An upload is larger than the store; permanent."""


class _Pack(msgspec.Struct):
    digests: frozenset[str]
    size: int
    stored: float


class BlobStore:
    """Packs below *root* with at most *limit* bytes of content; every method except `find` may block on the disk."""

    def __init__(self, root: Path, *, limit: int, clock: Callable[[], float] = time.time) -> None:
        self._root = root
        self._limit = limit
        self._clock = clock
        self._packs: OrderedDict[int, _Pack] = OrderedDict()
        self._blobs: dict[str, bytes] = {}
        self._owner: dict[str, int] = {}

    @property
    def size(self) -> int:
        """Bytes of content."""
        return sum(pack.size for pack in self._packs.values())

    def __len__(self) -> int:
        return len(self._blobs)

    def open(self) -> None:
        """Read the packs from disk; damaged ones are removed, and directories in their place are ignored."""
        make_own_directory(self._root)
        for path in sorted(self._root.iterdir()):
            try:
                # The frames add little to the content.
                blobs = decode_frames(read_state_file(path, 2 * self._limit + RECORD_BYTES), largest=self._limit)
                number = int(path.stem)
                stored = path.stat().st_mtime
            except (FrameError, StateFileError, ValueError) as exc:
                try:
                    path.unlink()
                except (IsADirectoryError, PermissionError):
                    get_logger("agent").warning("ignored an upload", path=str(path), error=text_of(exc))
                continue
            self._take(number, blobs, stored)
        self._make_room(0)

    def find(self, digest: str) -> bytes | None:
        """Return a blob; None if the store does not have it."""
        return self._blobs.get(digest)

    def add(self, blobs: Mapping[str, bytes]) -> None:
        """Store *blobs* durably, replacing old packs if needed; raises StoreFullError."""
        fresh = {digest: content for digest, content in blobs.items() if digest not in self._blobs}
        size = sum(map(len, fresh.values()))
        if size > self._limit:
            raise StoreFullError(f"the upload has {size} bytes of blobs, and the store holds {self._limit}")
        if not fresh:
            return
        self._make_room(size)
        number = next(reversed(self._packs), 0) + 1
        # The state directory may have been removed.
        make_own_directory(self._root)
        replace_file(self._path_of(number), encode_frames(fresh))
        self._take(number, fresh, self._clock())

    def release(self, known: AbstractSet[str]) -> None:
        """Remove packs whose blobs are all among *known*: generations contain them."""
        self._drop([number for number, pack in self._packs.items() if pack.digests.issubset(known)])

    def _take(self, number: int, blobs: Mapping[str, bytes], stored: float) -> None:
        self._packs[number] = _Pack(frozenset(blobs), sum(map(len, blobs.values())), stored)
        self._blobs.update(blobs)
        self._owner.update(dict.fromkeys(blobs, number))

    def _make_room(self, size: int) -> None:
        old = self._clock() - KEPT_FOR
        total = self.size + size
        doomed = []
        for number, pack in self._packs.items():
            if total <= self._limit and pack.stored >= old:
                continue
            doomed.append(number)
            total -= pack.size
        self._drop(doomed)

    def _drop(self, numbers: Collection[int]) -> None:
        for number in numbers:
            self._path_of(number).unlink(missing_ok=True)
            for digest in self._packs.pop(number).digests:
                if self._owner.get(digest) == number:
                    del self._owner[digest], self._blobs[digest]
        if numbers and self._root.is_dir():
            fsync_directory(self._root)

    def _path_of(self, number: int) -> Path:
        return self._root / f"{number:08d}.pack"
