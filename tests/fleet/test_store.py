"""Stores: records survive a restart, and unreadable records are skipped."""

from pathlib import Path

import msgspec
import pytest

from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, Reason
from haptic_trio.fleet.store import FileStore, Store
from tests.fleet.rig.memory_store import MemoryStore

RECORD = InstanceRecord(
    id="web-1",
    key=GroupKey("web", "blue"),
    state=InstanceState.DRAINING,
    created_at=1.5,
    drain_started_at=2.5,
    drain_deadline=3.5,
    drain_reason=Reason.DRIFT,
)


@pytest.fixture(params=["memory", "files"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return MemoryStore() if request.param == "memory" else FileStore(tmp_path / "fleet")


async def test_written_records_are_loaded(store: Store) -> None:
    assert list(await store.load()) == []
    other = msgspec.structs.replace(RECORD, id="web-2")
    await store.put(RECORD)
    await store.put(other)
    changed = msgspec.structs.replace(RECORD, drain_acked_at=3.0)
    await store.put(changed)
    assert list(await store.load()) == [changed, other]
    await store.delete("web-1")
    await store.delete("web-1")
    assert list(await store.load()) == [other]


async def test_files_outlive_the_store(tmp_path: Path) -> None:
    first = FileStore(tmp_path)
    await first.load()
    await first.put(RECORD)
    assert list(await FileStore(tmp_path).load()) == [RECORD]
    assert (tmp_path / "web-1.json").is_file()


async def test_files_without_a_valid_record_are_skipped(tmp_path: Path) -> None:
    (tmp_path / "web-2.json").write_bytes(b"{")
    (tmp_path / "web-3.json").write_bytes(msgspec.json.encode(RECORD))
    (tmp_path / "web-4.json.new").write_bytes(b"half")
    store = FileStore(tmp_path)
    await store.put(RECORD)
    assert list(await store.load()) == [RECORD]


@pytest.mark.parametrize("name", ["../web", "", "a/b", ".hidden"])
async def test_an_id_that_leaves_the_directory_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="invalid instance id"):
        await FileStore(tmp_path).put(msgspec.structs.replace(RECORD, id=name))
