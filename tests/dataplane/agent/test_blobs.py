"""The store of uploads: durable, bounded, and never half read."""

import os
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from haptic_trio.dataplane.agent.blobs import KEPT_FOR, BlobStore, StoreFullError
from haptic_trio.haproxy.model import digest_of
from haptic_trio.state_files.reader import StateFileError


def blobs(*contents: bytes) -> dict[str, bytes]:
    return {digest_of(content): content for content in contents}


def open_store(root: Path, *, limit: int = 100) -> BlobStore:
    store = BlobStore(root, limit=limit)
    store.open()
    return store


def test_blobs_survive_a_restart(tmp_path: Path) -> None:
    open_store(tmp_path).add(blobs(b"one", b"two"))
    again = open_store(tmp_path)
    assert again.find(digest_of(b"one")) == b"one"
    assert again.find(digest_of(b"two")) == b"two"
    assert again.size == 6


def test_an_upload_that_a_crash_cut_off_is_removed(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.add(blobs(b"one"))
    store.add(blobs(b"two"))
    newest = max(tmp_path.iterdir())
    newest.write_bytes(newest.read_bytes()[:-1])
    (tmp_path / "00000003.pack.new").write_bytes(b"half")
    again = open_store(tmp_path)
    assert again.find(digest_of(b"one")) == b"one"
    assert again.find(digest_of(b"two")) is None
    assert len(list(tmp_path.iterdir())) == 1


def test_a_pack_that_hands_have_changed_is_removed(tmp_path: Path) -> None:
    open_store(tmp_path).add(blobs(b"one"))
    pack = next(tmp_path.iterdir())
    pack.write_bytes(pack.read_bytes()[:-1] + b"X")
    assert open_store(tmp_path).find(digest_of(b"one")) is None
    assert not list(tmp_path.iterdir())


def test_links_and_special_files_are_removed_without_being_read(tmp_path: Path) -> None:
    root = tmp_path / "blobs"
    open_store(root).add(blobs(b"one"))
    elsewhere = next(root.iterdir()).rename(tmp_path / "00000001.pack")
    (root / elsewhere.name).symlink_to(elsewhere)
    os.mkfifo(root / "00000002.pack")
    (root / "00000003.pack").mkdir()
    with capture_logs() as logs:
        assert open_store(root).find(digest_of(b"one")) is None
    assert [path.name for path in root.iterdir()] == ["00000003.pack"]
    assert ["it is a directory" in entry["error"] for entry in logs] == [True]
    assert elsewhere.exists()


def test_no_file_of_a_linked_directory_is_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "letter").touch()
    (tmp_path / "blobs").symlink_to("elsewhere")
    with pytest.raises(StateFileError, match="it is a symbolic link"):
        open_store(tmp_path / "blobs")
    assert (tmp_path / "elsewhere" / "letter").exists()


def test_the_oldest_uploads_make_room(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for content in (b"a" * 40, b"b" * 40, b"c" * 40):
        store.add(blobs(content))
    assert store.find(digest_of(b"a" * 40)) is None
    assert store.find(digest_of(b"b" * 40)) is not None
    assert store.size == 80
    assert len(list(tmp_path.iterdir())) == 2


def test_an_upload_that_would_not_fit_at_all_is_rejected_and_drops_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.add(blobs(b"one"))
    with pytest.raises(StoreFullError):
        store.add(blobs(b"x" * 101))
    assert store.find(digest_of(b"one")) == b"one"


def test_stored_blob_is_not_stored_again(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.add(blobs(b"one"))
    store.add(blobs(b"one"))
    assert len(list(tmp_path.iterdir())) == 1


def test_only_packs_that_are_held_elsewhere_completely_are_released(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.add(blobs(b"one", b"two"))
    store.add(blobs(b"three"))
    store.release(blobs(b"one", b"three").keys())
    assert store.find(digest_of(b"three")) is None
    assert store.find(digest_of(b"one")) == b"one"
    assert len(store) == 2


def test_blob_that_is_unused_for_a_day_is_dropped(tmp_path: Path) -> None:
    now = [1e9]
    store = BlobStore(tmp_path, limit=100, clock=lambda: now[0])
    store.open()
    store.add(blobs(b"one"))
    now[0] += KEPT_FOR + 1
    store.add(blobs(b"two"))
    assert store.find(digest_of(b"one")) is None
    assert store.find(digest_of(b"two")) == b"two"
