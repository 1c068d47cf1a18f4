"""Processes that outlive us: found by their command line, distinguished from later ones, watched and signalled."""

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
import trio

from haptic_trio.dataplane.local.process import (
    MasterProcess,
    ProcessRecord,
    find_masters,
    find_record,
    is_alive,
    read_arguments,
    read_boot_id,
    read_record,
    read_start_time,
    spawn,
    write_record,
)
from haptic_trio.dataplane.local.process_log import KEPT, SIZE_LIMIT, ProcessLog
from haptic_trio.state_files.reader import StateFileError

pytestmark = pytest.mark.process


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[int]:
    """A process whose command line names a file of this test."""
    program = "import time; time.sleep(60)"
    pid = spawn([sys.executable, "-c", program, str(tmp_path / "process.cfg")], tmp_path / "log")
    # The kernel shows the command line a moment after the start has succeeded.
    while program.encode() not in read_arguments(pid):
        time.sleep(0.001)
    yield pid
    if read_start_time(pid) is not None:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def test_a_process_is_found_by_its_argument(tmp_path: Path, sleeper: int) -> None:
    assert find_masters(str(tmp_path / "process.cfg")) == [sleeper]
    assert find_masters(str(tmp_path / "process")) == []


def test_it_has_a_session_of_its_own(sleeper: int) -> None:
    assert os.getsid(sleeper) == sleeper != os.getsid(0)


async def test_exit_is_noticed_and_described(sleeper: int) -> None:
    process = MasterProcess(sleeper)
    assert process.is_alive()
    process.send(signal.SIGKILL)
    with trio.fail_after(5):
        await process.wait_exit()
    assert not process.is_alive()
    # A zombie is not alive either.
    assert read_start_time(sleeper) is None
    assert process.reap() == "killed by SIGKILL"
    process.send(signal.SIGKILL)
    process.close()


async def test_closing_ends_a_wait(sleeper: int, nursery: trio.Nursery) -> None:
    process = MasterProcess(sleeper)
    nursery.start_soon(process.wait_exit)
    await trio.testing.wait_all_tasks_blocked()
    process.close()
    assert not process.is_alive()


def test_a_process_that_is_gone_cannot_be_held(sleeper: int) -> None:
    os.kill(sleeper, signal.SIGKILL)
    os.waitpid(sleeper, 0)
    with pytest.raises(ProcessLookupError):
        MasterProcess(sleeper)


def test_a_record_means_one_process_only(sleeper: int) -> None:
    start_time = read_start_time(sleeper)
    assert start_time is not None
    record = ProcessRecord(pid=sleeper, start_time=start_time, boot_id=read_boot_id(), binary="/b", sockets="/s")
    assert is_alive(record)
    assert not is_alive(msgspec.structs.replace(record, start_time=start_time - 1))
    assert not is_alive(msgspec.structs.replace(record, boot_id="another"))
    assert not is_alive(msgspec.structs.replace(record, pid=os.getpid()))


def test_a_record_is_read_back_and_rubbish_is_none(tmp_path: Path) -> None:
    path = tmp_path / "process.json"
    assert read_record(path) is None
    record = ProcessRecord(pid=7, start_time=8, boot_id=read_boot_id(), binary="/b", sockets="/s")
    write_record(path, record)
    assert read_record(path) == record
    path.write_text("{")
    assert read_record(path) is None


def start_master(directory: Path) -> int:
    """Start a process with the command line of a master in *directory*."""
    program = "import time; time.sleep(60)"
    sockets = f"{directory}/run/master.sock,mode,600"
    pid = spawn([sys.executable, "-c", program, "-S", sockets, "-f", str(directory / "process.cfg")], directory / "log")
    while program.encode() not in read_arguments(pid):
        time.sleep(0.001)
    return pid


@pytest.mark.parametrize("content", [None, b"", bytes(100), b"another"])
def test_a_process_without_a_valid_record_describes_itself(tmp_path: Path, content: bytes | None) -> None:
    assert find_record(tmp_path) is None
    pid = start_master(tmp_path)
    try:
        if content == b"another":
            former = ProcessRecord(pid=1, start_time=0, boot_id=read_boot_id(), binary="/b", sockets="/s")
            write_record(tmp_path / "process.json", former)
        elif content is not None:
            (tmp_path / "process.json").write_bytes(content)
        found = find_record(tmp_path)
        assert found is not None
        assert is_alive(found)
        assert (found.pid, found.binary, found.sockets) == (pid, sys.executable, str(tmp_path / "run"))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert find_record(tmp_path) is None


@pytest.mark.parametrize("put", [os.mkfifo, Path.mkdir, lambda path: path.symlink_to("elsewhere")])
def test_a_process_whose_log_is_a_link_or_special_file_does_not_start(
    tmp_path: Path, put: Callable[[Path], None]
) -> None:
    put(tmp_path / "log")
    with pytest.raises(StateFileError, match="must be a regular file; remove it"):
        spawn([sys.executable, "-c", ""], tmp_path / "log")
    assert not (tmp_path / "elsewhere").exists()


def test_a_log_that_has_grown_keeps_its_end_and_its_writer(tmp_path: Path) -> None:
    log = ProcessLog(tmp_path / "log")
    log.shorten()
    with log.path.open("ab") as writer:
        writer.write(b"x" * SIZE_LIMIT + b"\nthe end\n")
        writer.flush()
        log.shorten()
        assert log.size() == KEPT
        offset = log.size()
        writer.write(b"more\n")
    assert log.read_since(offset) == "more"
    assert "the end" in log.read_since(0)


@pytest.fixture
def inheritable_listener() -> Iterator[socket.socket]:
    """A listener as a server library may leave it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.set_inheritable(True)
        yield listener


def test_it_inherits_no_listener(inheritable_listener: socket.socket, sleeper: int) -> None:
    inode = os.fstat(inheritable_listener.fileno()).st_ino
    held = []
    for entry in Path(f"/proc/{sleeper}/fd").iterdir():
        # What the loader has open it closes while we look.
        with suppress(FileNotFoundError):
            held.append(os.readlink(entry))  # noqa: PTH115 - compared as text
    assert len(held) >= 3
    assert f"socket:[{inode}]" not in held
