"""Only regular files of a limited size are read from a state directory; no read waits, or follows a link."""

import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
import structlog
from structlog.testing import capture_logs

from haptic_trio.errors import text_of
from haptic_trio.state_files.reader import (
    StateFileError,
    decode_state_file,
    load_state_file,
    make_own_directory,
    open_state_file,
    read_state_file,
)


class Record(msgspec.Struct):
    name: str


def put_fifo(path: Path) -> None:
    os.mkfifo(path)


def put_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))


def put_link(path: Path) -> None:
    target = path.with_name("elsewhere")
    target.write_text('{"name": "of another user"}')
    path.symlink_to(target)


def put_dangling_link(path: Path) -> None:
    path.symlink_to("nowhere")


KINDS: dict[str, Callable[[Path], None]] = {
    "a FIFO": put_fifo,
    "a directory": Path.mkdir,
    "a socket": put_socket,
    "a symbolic link": put_link,
    "a symbolic link, dangling": put_dangling_link,
}


@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_CREAT | os.O_APPEND, os.O_RDWR | os.O_CREAT])
@pytest.mark.parametrize("kind", KINDS)
def test_only_a_regular_file_is_opened_and_without_waiting(tmp_path: Path, kind: str, flags: int) -> None:
    path = tmp_path / "state.json"
    KINDS[kind](path)

    with pytest.raises(StateFileError) as caught:
        open_state_file(path, flags)

    name = kind.partition(",")[0]
    assert text_of(caught.value) == f"{path}: it is {name}, and must be a regular file; remove it"
    assert not (tmp_path / "nowhere").exists()


def test_a_created_file_is_for_its_user_alone(tmp_path: Path) -> None:
    os.close(open_state_file(tmp_path / "one", os.O_WRONLY | os.O_CREAT))
    assert (tmp_path / "one").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"{", b'{"name": 1}', b'{"name": "\xff"}', b'{"x": ' + b"[" * 100_000])
def test_a_damaged_record_is_named(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "state.json"
    path.write_bytes(content)

    with pytest.raises(StateFileError, match=r"it is damaged: .*; remove it") as caught:
        decode_state_file(path, Record)

    assert text_of(caught.value).startswith(f"{path}: ")


def test_a_very_large_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)

    with pytest.raises(StateFileError, match="it has 1099511627776 bytes, and at most 1048576 are read; remove it"):
        read_state_file(path)


def test_a_file_of_the_largest_size_is_read(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"12345")
    assert read_state_file(tmp_path / "one", 5) == b"12345"
    with pytest.raises(StateFileError):
        read_state_file(tmp_path / "one", 4)


def test_a_missing_file_is_reported_as_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_state_file(tmp_path / "one")


def test_an_unusable_record_is_ignored_with_a_warning_and_a_missing_one_without(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    log = structlog.get_logger()
    with capture_logs() as logs:
        assert load_state_file(path, Record, log) is None
        os.mkfifo(path)
        assert load_state_file(path, Record, log) is None
        path.unlink()
        path.write_text('{"name": "one"}')
        assert load_state_file(path, Record, log) == Record("one")

    assert [entry["error"] for entry in logs] == [f"{path}: it is a FIFO, and must be a regular file; remove it"]


@pytest.mark.parametrize("put", [put_link, put_dangling_link, put_fifo, Path.touch])
def test_a_link_in_place_of_a_directory_is_rejected(tmp_path: Path, put: Callable[[Path], None]) -> None:
    path = tmp_path / "scratch"
    put(path)
    with pytest.raises(StateFileError, match=r"must be a directory; remove it \(only the state directory itself may"):
        make_own_directory(path)


def test_a_directory_in_a_linked_state_directory_is_created(tmp_path: Path) -> None:
    (tmp_path / "volume").mkdir()
    (tmp_path / "state").symlink_to("volume")
    for _ in range(2):
        make_own_directory(tmp_path / "state" / "scratch")
    assert (tmp_path / "volume" / "scratch").stat().st_mode & 0o777 == 0o700


@pytest.fixture
def unreadable() -> Iterator[Path]:
    """A file that this process may not open; root lends its rights for the duration of the test."""
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "state.json"
        path.write_text("{}")
        path.chmod(0o200)
        if user == 0:
            Path(directory).chmod(0o711)
            os.seteuid(65534)
        try:
            yield path
        finally:
            os.seteuid(user)


def test_a_file_that_may_not_be_read_is_reported_with_its_owner_and_the_fix(unreadable: Path) -> None:
    with pytest.raises(PermissionError) as caught:
        read_state_file(unreadable)

    user = os.geteuid()
    assert text_of(caught.value) == (
        f"{unreadable}: it belongs to user {unreadable.stat().st_uid} with mode 0200, and user {user} may not open it;"
        f" make it a file of this user with mode 0600"
    )
