"""Reads files of a state directory: regular files of a limited size, and nothing that stands in their place.

A FIFO would block the reader until another process writes to it, and a link
would lead to a file of another user. Both appear where other users, or other
programs of the same user, can write to the state directory.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path
from typing import Final, NoReturn, TypeVar

import msgspec

from haptic_trio.errors import INVALID_JSON, text_of
from haptic_trio.logs import Logger

T = TypeVar("T")

RECORD_BYTES: Final = 1 << 20
"""Limit of a file with one record."""
CONTENT_BYTES: Final = 1 << 30
"""Limit of a file whose size depends on the cluster, such as a map or a manifest of a generation."""
_KINDS: Final = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
_NO_FILE: Final = frozenset({errno.ELOOP, errno.ENXIO, errno.EISDIR})
"""Errors of open() for what is not a regular file."""


class StateFileError(OSError):
    """A file or directory of a state directory cannot be used as it is; a retry helps after a user has removed it."""


def open_state_file(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """Open the regular file at *path* and return its descriptor, which the caller closes; never waits.

    A file that *flags* create has mode 0600. Raises StateFileError if *path*
    is a link or not a regular file, and other kinds of OSError as open() does.
    """
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOFOLLOW, 0o600)
    except PermissionError as exc:
        _explain(path, exc)
    except OSError as exc:
        if exc.errno not in _NO_FILE:
            raise
        raise _unusable(path, os.lstat(path).st_mode) from exc
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode):
        return descriptor
    os.close(descriptor)
    raise _unusable(path, mode)


def read_state_file(path: str | Path, most: int = RECORD_BYTES) -> bytes:
    """Return the content of the file at *path*; raises as `open_state_file` does, and for more than *most* bytes."""
    with os.fdopen(open_state_file(path), "rb") as file:
        # A file that grows meanwhile must not be read without an end.
        size = os.fstat(file.fileno()).st_size
        content = file.read(most + 1) if size <= most else b""
    if max(size, len(content)) > most:
        raise StateFileError(errno.EFBIG, f"it has {size} bytes, and at most {most} are read; remove it", str(path))
    return content


def decode_state_file(path: str | Path, kind: type[T], most: int = RECORD_BYTES) -> T:
    """Return the record of type *kind* in the file at *path*; raises as `read_state_file`, and if it is damaged."""
    content = read_state_file(path, most)
    try:
        return msgspec.json.decode(content, type=kind)
    except INVALID_JSON as exc:
        raise StateFileError(errno.EINVAL, f"it is damaged: {text_of(exc)}; remove it", str(path)) from exc


def load_state_file(path: Path, kind: type[T], log: Logger) -> T | None:
    """Return the record of type *kind* in the file at *path*; None if it is missing, or unusable, which is logged."""
    try:
        return decode_state_file(path, kind)
    except FileNotFoundError:
        return None
    except OSError as exc:
        log.warning("ignored an unusable state file", error=text_of(exc))
        return None


def make_own_directory(path: Path) -> None:
    """Create the directory *path* if it is missing; its files may be removed, so StateFileError if it is a link."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    mode = path.lstat().st_mode
    if not stat.S_ISDIR(mode):
        reason = f"it is {_name_of(mode)}, and must be a directory; remove it"
        raise StateFileError(errno.ENOTDIR, f"{reason} (only the state directory itself may be a link)", str(path))


def _unusable(path: str | Path, mode: int) -> StateFileError:
    return StateFileError(errno.EINVAL, f"it is {_name_of(mode)}, and must be a regular file; remove it", str(path))


def _name_of(mode: int) -> str:
    return _KINDS.get(stat.S_IFMT(mode), "a regular file")


def _explain(path: str | Path, error: PermissionError) -> NoReturn:
    """Raise *error* with owner and mode of the file, and with the fix."""
    try:
        found = os.stat(path)  # noqa: PTH116 - the owner of what a link leads to
    except OSError:
        # Its directory cannot be entered.
        raise error from None
    reason = (
        f"it belongs to user {found.st_uid} with mode {stat.S_IMODE(found.st_mode):04o}, and user {os.geteuid()}"
        f" may not open it; make it a file of this user with mode 0600"
    )
    raise PermissionError(error.errno, reason, str(path)) from error
