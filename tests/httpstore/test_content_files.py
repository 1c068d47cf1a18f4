"""Accepted contents survive a restart in files, and only what is intact and meant for a request is used."""

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from haptic_trio.httpstore.content import Content
from haptic_trio.httpstore.content_files import ContentFiles, Kept, StoredContentError
from tests.support.components.contents import request_of

URL = "https://lists.example.com/deny.txt?token=planted"
LIMIT = 1_000


def kept(text: str = "192.0.2.1\n", *, age: float = 0.0, url: str = URL, **options: object) -> Kept:
    return Kept(request_of(url, **options), Content.of(text, etag='"1"', last_modified="then"), age)


def file_of(directory: Path) -> Path:
    (path,) = directory.glob("*.content")
    return path


def test_content_is_found_by_the_next_process_with_its_validators_and_age(tmp_path: Path) -> None:
    ContentFiles(tmp_path / "contents").write([kept(age=90)], None)

    stored = ContentFiles(tmp_path / "contents").read(request_of(URL, interval=60), LIMIT)

    assert stored is not None
    assert (stored.content.text, stored.content.etag, stored.content.last_modified) == ("192.0.2.1\n", '"1"', "then")
    assert 90 <= stored.age < 150


def test_confirmation_makes_a_content_younger_without_writing_it_again(tmp_path: Path) -> None:
    files, one = ContentFiles(tmp_path), kept(age=90)
    files.write([one], None)
    inode = file_of(tmp_path).stat().st_ino
    files.write([Kept(one.request, one.content, 0)], None)

    stored = files.read(one.request, LIMIT)

    assert stored is not None
    assert stored.age < 60
    assert file_of(tmp_path).stat().st_ino == inode


def test_content_of_other_credentials_headers_or_certificates_is_not_found(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    files.write([kept(auth={"token": "planted-secret"})], None)

    assert files.read(request_of(URL), LIMIT) is None
    assert files.read(request_of(URL, auth={"token": "other"}), LIMIT) is None
    assert files.read(request_of(URL, headers={"x-tenant": "a"}), LIMIT) is None
    assert files.read(request_of(URL, auth={"token": "planted-secret"}, timeout=3), LIMIT) is not None


def test_files_are_private_and_hold_no_credentials(tmp_path: Path) -> None:
    directory = tmp_path / "contents"
    ContentFiles(directory).write([kept(auth={"token": "planted-secret"})], None)

    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in directory.iterdir()} == {0o600}
    assert all(b"planted-secret" not in path.read_bytes() for path in directory.iterdir())


def test_nothing_is_written_before_there_is_a_content(tmp_path: Path) -> None:
    ContentFiles(tmp_path / "contents").write([], [])

    assert not (tmp_path / "contents").exists()


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:10], lambda _: b"", lambda d: d + b"x"])
def test_damaged_file_is_ignored_with_a_message_that_names_it(tmp_path: Path, damage: object) -> None:
    assert callable(damage)
    files = ContentFiles(tmp_path)
    files.write([kept()], None)
    path = file_of(tmp_path)
    path.write_bytes(damage(path.read_bytes()))

    with pytest.raises(StoredContentError) as caught:
        files.read(request_of(URL), LIMIT)

    assert str(caught.value) == f"{path}: the file is damaged: its checksum does not match"


def test_content_beyond_the_limit_is_not_read(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    files.write([kept("x" * 101)], None)

    with pytest.raises(StoredContentError, match=r"longer than `http.maxBytes` \(100\)"):
        files.read(request_of(URL), 100)
    file_of(tmp_path).write_bytes(b"x" * 1_000_000)
    with pytest.raises(StoredContentError, match="damaged"):
        files.read(request_of(URL), 100)


def test_blank_content_is_not_used_where_it_would_be_a_failed_fetch(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    files.write([kept(" \n")], None)

    assert files.read(request_of(URL), LIMIT) is not None
    with pytest.raises(StoredContentError, match="the content is empty"):
        files.read(request_of(URL, empty=False), LIMIT)


def test_directory_with_a_damaged_key_is_written_again(tmp_path: Path) -> None:
    ContentFiles(tmp_path).write([kept()], None)
    (tmp_path / "key").write_bytes(b"short")
    files = ContentFiles(tmp_path)
    with pytest.raises(StoredContentError, match="key: the file is damaged"):
        files.read(request_of(URL), LIMIT)

    files.write([kept()], [request_of(URL)])

    assert files.read(request_of(URL), LIMIT) is not None


def test_files_of_requests_that_nothing_uses_are_removed_and_those_of_others_stay(tmp_path: Path) -> None:
    files, other = ContentFiles(tmp_path), kept(url="https://lists.example.com/other")
    files.write([kept(), other], None)
    (tmp_path / "draft.content.new").touch()
    (tmp_path / "notes.txt").touch()

    files.write([other], [other.request])

    assert files.read(request_of(URL), LIMIT) is None
    assert files.read(other.request, LIMIT) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([file_of(tmp_path).name, "key", "notes.txt"])


def test_removed_directory_is_filled_again(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path / "contents")
    files.write([kept()], None)
    for path in (tmp_path / "contents").iterdir():
        path.unlink()
    (tmp_path / "contents").rmdir()

    files.write([kept()], None)

    assert files.read(request_of(URL), LIMIT) is not None


def test_newest_content_counts_for_requests_that_differ_in_their_interval(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    files.write([kept("new", age=1, interval=10), kept("old", age=50, interval=60)], None)

    stored = files.read(request_of(URL), LIMIT)

    assert stored is not None
    assert stored.content.text == "new"


def test_age_is_not_negative_where_the_clock_was_set_back(tmp_path: Path) -> None:
    files = ContentFiles(tmp_path)
    files.write([kept()], None)
    future = time.time() + 1_000
    os.utime(file_of(tmp_path), (future, future))

    stored = files.read(request_of(URL), LIMIT)

    assert stored is not None
    assert stored.age == 0


@pytest.mark.parametrize("name", ["key", "content"])
@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("../elsewhere")])
def test_links_and_special_files_are_not_read(tmp_path: Path, name: str, put: Callable[[Path], None]) -> None:
    directory, one = tmp_path / "contents", kept()
    ContentFiles(directory).write([one], None)
    path = directory / "key" if name == "key" else file_of(directory)
    path.rename(tmp_path / "elsewhere")
    put(path)
    with pytest.raises(StoredContentError, match="must be a regular file; remove it"):
        ContentFiles(directory).read(one.request, LIMIT)
