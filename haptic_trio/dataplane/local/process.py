"""HAProxy master process of an instance: started, adopted, watched and ended.

The process outlives the controller, so it is not a child process of Trio: it
has its own session, writes to a file, and is watched through a pidfd, which
also works for a process that an earlier controller started.

A later controller finds it by the record that is written right after the
start, or by its command line, which contains a file in the instance's private
directory. So it is found even if the controller was killed before it wrote
the record, if the disk was full, or if the record was removed or damaged.
"""

import contextlib
import os
import select
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import trio

from haptic_trio.dataplane.binary import clean_environment
from haptic_trio.dataplane.local.check import PRELUDE_NAME
from haptic_trio.state_files.reader import decode_state_file, open_state_file
from haptic_trio.state_files.writer import replace_file

RECORD_NAME = "process.json"
"""Name of the record in the directory of an instance."""
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
TERMINATE_LIMIT = 2.0
"""Seconds between SIGTERM and SIGKILL."""
PROC = Path("/proc")


class ProcessRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Record of the process for the next controller."""

    pid: int
    start_time: int
    """Clock ticks after the boot; with `boot_id` it distinguishes the process from a later one with its pid."""
    boot_id: str
    binary: str
    sockets: str
    """The directory of its sockets."""


def read_boot_id() -> str:
    """Return the id of this boot of the machine."""
    return BOOT_ID.read_text().strip()


def read_start_time(pid: int) -> int | None:
    """Return the start time of *pid* in clock ticks; None if it has exited."""
    try:
        # The name, in parentheses, may itself hold spaces and parentheses.
        fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def list_processes() -> Iterator[tuple[int, list[bytes]]]:
    """Yield pid and arguments of each process of this user that sees the same files; blocks."""
    # The same path may be another file in another container.
    files_seen = (PROC / "self/ns/mnt").readlink()
    for entry in PROC.iterdir():
        if not entry.name.isdecimal():
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid == os.geteuid() and (entry / "ns/mnt").readlink() == files_seen:
                yield int(entry.name), read_arguments(int(entry.name))


def read_arguments(pid: int) -> list[bytes]:
    """Return the command line of *pid*; raises OSError if it has ended."""
    return (PROC / str(pid) / "cmdline").read_bytes().split(b"\0")


def find_masters(argument: str) -> list[int]:
    """Return this user's processes whose command line has *argument*, without their children."""
    parents: dict[int, int] = {}
    for pid, arguments in list_processes():
        if argument.encode() in arguments:
            with contextlib.suppress(OSError):
                fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
                parents[pid] = int(fields[1])
    return [pid for pid, parent in parents.items() if parent not in parents and read_start_time(pid) is not None]


def is_alive(record: ProcessRecord) -> bool:
    """Whether the process of *record* lives, not a later one with its pid."""
    return record.boot_id == read_boot_id() and record.start_time == read_start_time(record.pid)


def find_record(directory: Path) -> ProcessRecord | None:
    """Return the record of the live master of the instance in *directory*; None if none runs. Blocks.

    Without a valid file the record is made from the process itself.
    """
    record = read_record(directory / RECORD_NAME)
    if record is not None and is_alive(record):
        return record
    for pid in find_masters(str(directory / PRELUDE_NAME)):
        if (found := _describe(pid)) is not None:
            return found
    return None


def _describe(pid: int) -> ProcessRecord | None:
    start_time = read_start_time(pid)
    try:
        # A worker that has outlived its master is in the session of the master.
        if start_time is None or os.getsid(pid) != pid:
            return None
        arguments = read_arguments(pid)
        # `-S DIRECTORY/master.sock,mode,600`
        socket = os.fsdecode(arguments[arguments.index(b"-S") + 1].split(b",")[0])
    except (OSError, ValueError, IndexError):
        return None
    return ProcessRecord(
        pid=pid,
        start_time=start_time,
        boot_id=read_boot_id(),
        binary=os.fsdecode(arguments[0]),
        sockets=str(Path(socket).parent),
    )


class MasterProcess:
    """A live process, identified by its pidfd."""

    def __init__(self, pid: int) -> None:
        """Open *pid*; raises ProcessLookupError if it has exited."""
        self.pid = pid
        self._pidfd = os.pidfd_open(pid)
        start_time = read_start_time(pid)
        if start_time is None:
            os.close(self._pidfd)
            raise ProcessLookupError(pid)
        self.start_time = start_time

    def close(self) -> None:
        """Close the pidfd; the process continues."""
        if self._pidfd >= 0:
            trio.lowlevel.notify_closing(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1

    def is_alive(self) -> bool:
        """Whether it has not exited yet."""
        if self._pidfd < 0:
            return False
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return not poll.poll(0)

    async def wait_exit(self) -> None:
        """Return when it has exited or `close` was called; only one task may wait at a time."""
        with contextlib.suppress(trio.ClosedResourceError):
            await trio.lowlevel.wait_readable(self._pidfd)

    def record(self, binary: Path, sockets: Path) -> ProcessRecord:
        """Return the record of this process, an instance of *binary* with its sockets in *sockets*."""
        return ProcessRecord(
            pid=self.pid,
            start_time=self.start_time,
            boot_id=read_boot_id(),
            binary=str(binary),
            sockets=str(sockets),
        )

    def reap(self) -> str:
        """Reap an exited process; return how it ended (known for children only)."""
        try:
            _, status = os.waitpid(self.pid, os.WNOHANG)
        except ChildProcessError:
            return "exited"
        code = os.waitstatus_to_exitcode(status)
        return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"

    async def end(self, *, grace: float) -> None:
        """End it: gracefully, and after *grace* seconds by force."""
        for number, limit in ((signal.SIGUSR1, grace), (signal.SIGTERM, TERMINATE_LIMIT), (signal.SIGKILL, 1.0)):
            self.send(number)
            with trio.move_on_after(limit):
                await self.wait_exit()
                self.reap()
                return

    def send(self, number: signal.Signals) -> None:
        """Send a signal to exactly this process; ignored if it has exited."""
        try:
            signal.pidfd_send_signal(self._pidfd, number)
        except ProcessLookupError:
            return


def spawn(command: Sequence[str], log: Path) -> int:
    """Start *command* in a session of its own with *log* as its output; return its pid.

    Raises OSError if *log* cannot be opened. It inherits no descriptor, no environment except PATH, and no signal
    disposition. An inherited listener of the controller would keep a port that
    the next controller cannot bind.
    """
    output = open_state_file(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        return os.posix_spawn(
            command[0],
            list(command),
            clean_environment(),
            file_actions=[
                (os.POSIX_SPAWN_DUP2, output, 1),
                (os.POSIX_SPAWN_DUP2, output, 2),
                (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
                *((os.POSIX_SPAWN_CLOSE, descriptor) for descriptor in _inheritable_descriptors()),
            ],
            setsid=True,
            setsigmask=[],
            # Python ignores these two, and an ignored signal stays ignored across exec.
            setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
        )
    finally:
        os.close(output)


def _inheritable_descriptors() -> list[int]:
    """Return inheritable descriptors: Python's are not, but those of libraries may be."""
    found = []
    for entry in list((PROC / "self/fd").iterdir()):
        descriptor = int(entry.name)
        # The listing's own descriptor is gone by now.
        with contextlib.suppress(OSError):
            if descriptor > 2 and os.get_inheritable(descriptor):
                found.append(descriptor)
    return found


def write_record(path: Path, record: ProcessRecord) -> None:
    """Put *record* at *path*, durably."""
    replace_file(path, msgspec.json.encode(record))


def read_record(path: Path) -> ProcessRecord | None:
    """Return the record at *path*; None if it is missing or invalid."""
    try:
        return decode_state_file(path, ProcessRecord)
    except OSError:
        return None
