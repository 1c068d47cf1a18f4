"""Durable writes, and paths that stay inside a directory."""

import os
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

import msgspec

from haptic_trio.errors import Problem, ProblemsError


class UnsafePathError(ProblemsError):
    """A file would lie outside its directory, or in the way of another; trying again is futile."""


class Stamp(msgspec.Struct, frozen=True):
    """A file's identity at a reading: as long as it is the same, so is the content."""

    inode: int
    size: int
    mtime_ns: int
    digest: str


def read_stamp(path: Path, digest: str) -> Stamp | None:
    """Return the stamp of the file at *path*, whose content has *digest*; None when there is no file."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, digest)


def check_paths(paths: Iterable[str], reserved: frozenset[str]) -> None:
    """Raise UnsafePathError unless all *paths* are plain relative ones that can be files side by side."""
    known = set(paths)
    folders = {str(parent) for path in known for parent in PurePosixPath(path).parents}
    problems = [
        Problem(message=reason, source=path, hint="write it as maps/name, ssl/name or general/name")
        for path in sorted(known)
        if (reason := _refusal(path, reserved, folders))
    ]
    if problems:
        raise UnsafePathError(problems)


def _refusal(path: str, reserved: frozenset[str], folders: set[str]) -> str:
    if path.startswith("/"):
        return "the path of a file must be relative"
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return "the path of a file must have no empty, `.` or `..` part"
    if "\0" in path or "\n" in path:
        return "the path of a file must not hold control characters"
    if path.split("/", maxsplit=1)[0] in reserved:
        return "this name is taken by a file of the instance itself"
    if path in folders:
        return "the path is a file and a directory at once"
    return ""


def write_file(path: Path, content: bytes) -> None:
    """Write a new file that only we may read, and wait until it is on the disk."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def replace_file(path: Path, content: bytes) -> None:
    """Put *content* at *path*: a reader, and a crash, meets the old or the new file, whole."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    write_file(fresh, content)
    fresh.replace(path)
    fsync_directory(path.parent)


def replace_link(path: Path, target: str) -> None:
    """Point the symbolic link *path* at *target*, atomically."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    fresh.symlink_to(target)
    fresh.replace(path)
    fsync_directory(path.parent)


def fsync_directory(path: Path) -> None:
    """Wait until the entries of the directory *path* are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
