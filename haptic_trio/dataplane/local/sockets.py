"""Choice of a directory for unix sockets with paths short enough for the kernel."""

import hashlib
import os
import re
import tempfile
from pathlib import Path

from haptic_trio.errors import HapticError

PATH_LIMIT = 107
"""Limit of the kernel for the path of a unix socket, in bytes."""
TEMPORARY_SUFFIX = ".4194304.tmp"
"""HAProxy binds beside the final name, with its pid, and renames."""
LONGEST_NAME = "master.sock"


class SocketPathError(HapticError):
    """No directory is usable for sockets; a retry helps after one was made available."""


def choose_socket_directory(instance: Path) -> Path:
    """Create and return a private directory for the sockets of the instance at *instance*.

    It is `run` in the instance's directory if that path is short and plain
    enough, else a directory below XDG_RUNTIME_DIR or the system's temporary
    directory, named by a hash of the instance's path. Raises `SocketPathError` if none is
    usable.
    """
    name = hashlib.blake2b(bytes(instance), digest_size=8).hexdigest()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [
        (instance / "run",),
        *([(Path(runtime) / "haptic-trio", Path(runtime) / "haptic-trio" / name)] if runtime else []),
        *_temporary(name),
    ]
    rejections = []
    for folders in candidates:
        try:
            if is_short_enough(folders[-1]):
                for folder in folders:
                    _make_private(folder)
                return folders[-1]
            rejections.append(
                f"{folders[-1]}: the path is too long, or has characters with a meaning in HAProxy's options"
            )
        except OSError as exc:
            rejections.append(str(exc))
    raise SocketPathError("no usable directory for sockets: " + "; ".join(rejections))


def require_writable(directory: Path) -> None:
    """Raise OSError unless a process can create files in *directory*; blocks.

    HAProxy creates its master socket at its start and again at each reload,
    and exits with its workers if it cannot.
    """
    probe = directory / "probe"
    probe.touch(mode=0o600)
    probe.unlink()


def is_short_enough(directory: Path) -> bool:
    """Whether HAProxy can bind its sockets in *directory*, and its command line can name them."""
    longest = len(bytes(directory / (LONGEST_NAME + TEMPORARY_SUFFIX)))
    return longest <= PATH_LIMIT and re.fullmatch(r"[\w./+-]+", str(directory), re.ASCII) is not None


def _temporary(name: str) -> list[tuple[Path, Path]]:
    folder = f"haptic-trio-{os.geteuid()}"
    roots = dict.fromkeys((Path(tempfile.gettempdir()), Path("/tmp")))  # noqa: S108 - made private below
    return [(root / folder, root / folder / name) for root in roots]


def _make_private(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = directory.lstat()
    # In a temporary directory, another user may have created this path.
    if directory.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory}: not a private directory of this user")
