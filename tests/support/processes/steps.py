"""Kill a process, or let it kill another one, at a step of its work.

A *step* is whatever leaves the process: a file opened for writing, written,
synced, linked, renamed or removed, a directory made, a process started, a
connection opened, bytes sent. Steps are counted in a file that the test maps
into memory as well, so that it sees how many a deployment takes, and says at
which one who is to die.
"""

import mmap
import os
import signal
import socket
import struct
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

_COUNT: Final = struct.Struct("=Q")
_ORDER: Final = struct.Struct("=QqQ")
_NAME: Final = struct.Struct("=80s")
_ORDER_AT: Final = _COUNT.size
_NAME_AT: Final = _ORDER_AT + _ORDER.size
_SIZE: Final = _NAME_AT + _NAME.size

_ITSELF: Final = 0
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT
_EVENTS: Final = frozenset(
    {"os.rename", "os.link", "os.symlink", "os.mkdir", "os.remove", "os.rmdir", "os.truncate", "os.posix_spawn"}
)


class StepFile:
    """The file at *path* that counts steps; both sides have it mapped."""

    def __init__(self, path: Path) -> None:
        if not path.exists():
            path.write_bytes(bytes(_SIZE))
        with path.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), _SIZE)
        self._lock = threading.Lock()

    @property
    def count(self) -> int:
        """How many steps there were so far."""
        count: int = _COUNT.unpack_from(self._memory)[0]
        return count

    def arm(self, after: int, victim: int = _ITSELF) -> None:
        """Have *victim*, by default the process itself, killed at the step that follows *after* others."""
        _ORDER.pack_into(self._memory, _ORDER_AT, self.count + after + 1, victim, 0)

    def disarm(self) -> str:
        """Take that back; return the step at which a process was killed, or an empty text."""
        _, _, done = _ORDER.unpack_from(self._memory, _ORDER_AT)
        _ORDER.pack_into(self._memory, _ORDER_AT, 0, 0, 0)
        name: bytes = _NAME.unpack_from(self._memory, _NAME_AT)[0]
        return name.rstrip(b"\0").decode(errors="replace") if done else ""

    def take(self, name: str) -> None:
        """Count a step, and kill whom this is the last one of."""
        with self._lock:
            count = self.count + 1
            _COUNT.pack_into(self._memory, 0, count)
            number, victim, done = _ORDER.unpack_from(self._memory, _ORDER_AT)
            if not number or done or count < number:
                return
            _NAME.pack_into(self._memory, _NAME_AT, name.encode()[-_NAME.size :])
            _ORDER.pack_into(self._memory, _ORDER_AT, number, victim, 1)
            try:
                os.kill(victim or os.getpid(), signal.SIGKILL)
            except ProcessLookupError:
                # Gone before its time, by itself.
                return


class Steps:
    """Counts the steps of this process from `count_in` on; to be made before anything keeps the functions it wraps."""

    def __init__(self) -> None:
        self._file: StepFile | None = None
        sys.addaudithook(self._audit)
        for name in ("fsync", "fdatasync", "write"):
            setattr(os, name, self._wrapped(getattr(os, name), name))
        send = socket.socket.send

        def stepping_send(connection: socket.socket, data: Any, *flags: int) -> int:
            # One byte is what wakes up an event loop.
            if len(data) <= 1:
                return send(connection, data, *flags)
            self._take("before send")
            sent = send(connection, data, *flags)
            self._take("after send")
            return sent

        socket.socket.send = stepping_send  # type: ignore[assignment, method-assign]

    def count_in(self, path: Path) -> None:
        """Count in the file at *path* from now on."""
        self._file = StepFile(path)

    def _take(self, name: str) -> None:
        if self._file is not None:
            self._file.take(name)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._file is None:
            return
        if event in _EVENTS:
            self._take(f"{event} {_last_part(arguments[0])}")
        elif event == "open" and isinstance(arguments[2], int) and arguments[2] & _WRITING:
            self._take(f"open {_last_part(arguments[0])}")
        elif event == "socket.connect":
            self._take(f"connect {_last_part(arguments[1])}")

    def _wrapped(self, function: Callable[P, R], name: str) -> Callable[P, R]:
        def stepping(*args: P.args, **kwargs: P.kwargs) -> R:
            self._take(f"before {name}")
            result = function(*args, **kwargs)
            self._take(f"after {name}")
            return result

        return stepping


def _last_part(value: object) -> str:
    return str(value).rpartition("/")[2]
