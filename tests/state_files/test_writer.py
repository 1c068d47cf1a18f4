"""Files of a state directory are new, belong to this user alone, and are replaced as a whole."""

import os
import stat
from pathlib import Path

import pytest

from haptic_trio.state_files.writer import MOST_SYNCED, replace_file, replace_link, wait_written, write_file


def test_a_new_file_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "record"
    before = os.umask(0)
    try:
        write_file(path, b"content")
    finally:
        os.umask(before)
    assert path.read_bytes() == b"content"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_file_that_exists_is_not_written_to(tmp_path: Path) -> None:
    path = tmp_path / "record"
    path.write_bytes(b"former")
    with pytest.raises(FileExistsError):
        write_file(path, b"content")
    assert path.read_bytes() == b"former"


def test_a_link_is_not_followed(tmp_path: Path) -> None:
    path, target = tmp_path / "record", tmp_path / "elsewhere"
    path.symlink_to(target)
    with pytest.raises(FileExistsError):
        write_file(path, b"content")
    assert not target.exists()


def test_a_file_is_replaced_despite_the_rest_of_an_attempt_that_was_killed(tmp_path: Path) -> None:
    path, target = tmp_path / "record", tmp_path / "elsewhere"
    path.write_bytes(b"former")
    target.write_bytes(b"of another user")
    (tmp_path / "record.new").symlink_to(target)
    replace_file(path, b"content")
    assert path.read_bytes() == b"content"
    assert target.read_bytes() == b"of another user"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["elsewhere", "record"]


def test_a_link_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "current"
    replace_link(path, "1")
    (tmp_path / "current.new").symlink_to("3")
    replace_link(path, "2")
    assert path.readlink() == Path("2")
    assert [entry.name for entry in tmp_path.iterdir()] == ["current"]


@pytest.mark.parametrize(("count", "syncs"), [(MOST_SYNCED, 0), (MOST_SYNCED + 1, 1)])
def test_a_sync_of_the_whole_disk_replaces_very_many_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int, syncs: int
) -> None:
    calls = {"sync": 0, "fsync": 0}

    def sync() -> None:
        calls["sync"] += 1

    def fsync(_descriptor: int) -> None:
        calls["fsync"] += 1

    monkeypatch.setattr(os, "sync", sync)
    monkeypatch.setattr(os, "fsync", fsync)
    path = tmp_path / "record"
    write_file(path, b"content", durable=False)
    wait_written([str(path)] * count)
    assert calls == {"sync": syncs, "fsync": 0 if syncs else count}
