"""Stores: records survive a restart, and unreadable records are skipped."""

import os
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from haptic_trio.fleet.model import GroupKey, InstanceRecord, InstanceState, Reason
from haptic_trio.fleet.store import FileStore, Store
from haptic_trio.state_files.reader import StateFileError
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


async def test_links_and_special_files_are_skipped_with_a_warning(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "fleet")
    await store.put(RECORD)
    elsewhere = tmp_path / "web-2.json"
    elsewhere.write_bytes(msgspec.json.encode(msgspec.structs.replace(RECORD, id="web-2")))
    (tmp_path / "fleet" / "web-2.json").symlink_to(elsewhere)
    os.mkfifo(tmp_path / "fleet" / "web-3.json")
    (tmp_path / "fleet" / "web-4.json").mkdir()
    with capture_logs() as logs:
        assert list(await store.load()) == [RECORD]
    assert [Path(entry["path"]).name for entry in logs] == ["web-2.json", "web-3.json", "web-4.json"]


async def test_records_in_a_linked_directory_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "fleet").symlink_to("elsewhere")
    with pytest.raises(StateFileError, match="it is a symbolic link, and must be a directory"):
        await FileStore(tmp_path / "fleet").load()


@pytest.mark.parametrize("name", ["../web", "", "a/b", ".hidden"])
async def test_an_id_that_leaves_the_directory_is_rejected(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="invalid instance id"):
        await FileStore(tmp_path).put(msgspec.structs.replace(RECORD, id=name))
