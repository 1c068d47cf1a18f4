"""Choice of a directory for unix sockets with paths short enough for the kernel."""

import hashlib
import os
import re
import tempfile
from pathlib import Path

from haptic_trio.errors import HapticError

PATH_LIMIT = 107
"""Bytes that the kernel takes as the address of a unix socket."""
TEMPORARY_SUFFIX = ".4194304.tmp"
"""HAProxy binds beside the final name, with its pid, and renames."""
LONGEST_NAME = "master.sock"


class SocketPathError(HapticError):
    """There is no place for sockets; trying again helps only after a directory was made available."""


def choose_socket_directory(instance: Path) -> Path:
    """Make and return a private directory for the sockets of the instance at *instance*.

    It is `run` in the instance's own directory where that is short and plain
    enough, else one below XDG_RUNTIME_DIR or the system's temporary
    directory, named after the instance's path.
    """
    name = hashlib.blake2b(bytes(instance), digest_size=8).hexdigest()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    candidates = [
        (instance / "run",),
        *([(Path(runtime) / "haptic-trio", Path(runtime) / "haptic-trio" / name)] if runtime else []),
        *_temporary(name),
    ]
    refusals = []
    for folders in candidates:
        try:
            if is_short_enough(folders[-1]):
                for folder in folders:
                    _make_private(folder)
                return folders[-1]
            refusals.append(f"{folders[-1]}: too long, or with characters that HAProxy would take apart")
        except OSError as exc:
            refusals.append(str(exc))
    raise SocketPathError("no place for sockets: " + "; ".join(refusals))


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
    # Others may write to a temporary directory: what stands at our name need not be ours.
    if directory.is_symlink() or status.st_uid != os.geteuid() or status.st_mode & 0o077:
        raise PermissionError(f"{directory}: not a directory of ours alone")
