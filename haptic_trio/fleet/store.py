"""Store of instance records."""

import contextlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec
import trio

from haptic_trio.errors import text_of
from haptic_trio.fleet.model import InstanceRecord
from haptic_trio.logs import get_logger
from haptic_trio.state_files.reader import StateFileError, decode_state_file, make_own_directory
from haptic_trio.state_files.writer import fsync_directory, replace_file

_SUFFIX = ".json"


class Store(Protocol):
    """Keeps records; each change is durable when its call returns. Raises OSError or a `HapticError`: retry later."""

    async def load(self) -> Sequence[InstanceRecord]:
        """Return all records."""
        ...

    async def put(self, record: InstanceRecord) -> None:
        """Write *record*, replacing an earlier one with its id."""
        ...

    async def delete(self, instance_id: str) -> None:
        """Drop a record; does nothing if it does not exist."""
        ...


class FileStore:
    """Keeps a file for each record in *directory*, which it creates; a crash never leaves a partial record."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = get_logger("fleet")

    async def load(self) -> Sequence[InstanceRecord]:
        """Return all readable records; an unreadable one is logged, and its instance becomes an orphan."""
        return await trio.to_thread.run_sync(self._load)

    def _load(self) -> Sequence[InstanceRecord]:
        make_own_directory(self._directory)
        records = []
        for path in sorted(self._directory.glob(f"*{_SUFFIX}")):
            try:
                record = decode_state_file(path, InstanceRecord)
            except StateFileError as exc:
                self._log.warning("ignored the unreadable record of an instance", path=str(path), error=text_of(exc))
                continue
            if path == self._path_of(record.id):
                records.append(record)
        return records

    async def put(self, record: InstanceRecord) -> None:
        """Write *record*; durable when this returns."""
        await trio.to_thread.run_sync(self._put, record)

    def _put(self, record: InstanceRecord) -> None:
        # The state directory may have been removed meanwhile.
        make_own_directory(self._directory)
        replace_file(self._path_of(record.id), msgspec.json.encode(record))

    async def delete(self, instance_id: str) -> None:
        """Drop a record; durable when this returns."""
        await trio.to_thread.run_sync(self._delete, instance_id)

    def _delete(self, instance_id: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._path_of(instance_id).unlink()
            fsync_directory(self._directory)

    def _path_of(self, instance_id: str) -> Path:
        if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", instance_id, re.ASCII):
            raise ValueError(
                f"invalid instance id {instance_id!r}: use ASCII letters, digits, _ . -, and a letter or digit first"
            )
        return self._directory / f"{instance_id}{_SUFFIX}"
