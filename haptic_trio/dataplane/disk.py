"""Durable writes, and checks that paths stay inside a directory."""

import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.file_chunks import FilePages
from haptic_trio.haproxy.model import AuxFile

MOST_SYNCED: Final = 100
"""Files that are waited for one by one: each takes milliseconds. For more it is faster to wait for all of the disk."""


class UnsafePathError(ProblemsError):
    """A file would lie outside its directory, or in the way of another; trying again is futile."""


class Stamp(msgspec.Struct, frozen=True):
    """A file's identity at a reading: as long as it is the same, so is the content."""

    inode: int
    size: int
    mtime_ns: int
    digest: str


def read_stamp(path: str | Path, digest: str) -> Stamp | None:
    """Return the stamp of the file at *path*, whose content has *digest*; None when there is no file."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called for thousands of files
    except FileNotFoundError:
        return None
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, digest)


class _Paths(NamedTuple):
    """What a page of paths is, as far as others matter."""

    plain: bool
    """None is refused for itself."""
    folders: frozenset[str]
    roots: frozenset[str]
    """The first part of each."""


def check_files(files: FilePages[Any], reserved: frozenset[str]) -> None:
    """Check the paths of *files* as `check_paths` does, without looking at pages that it has seen before."""
    known = files.paged.summaries(_describe)
    folders = frozenset[str]().union(*(one.folders for one in known))
    taken = any(not one.plain or not one.roots.isdisjoint(reserved) for one in known)
    if taken or any(folder in files for folder in folders):
        check_paths(files, reserved)


def _describe(files: tuple[Any, ...]) -> _Paths:
    folders = frozenset(folder for file in files for folder in folders_of(file.path))
    return _Paths(
        not any(_refusal(file.path, frozenset(), folders) for file in files),
        folders,
        frozenset(file.path.split("/", maxsplit=1)[0] for file in files),
    )


def check_paths(paths: Iterable[str], reserved: frozenset[str]) -> None:
    """Raise UnsafePathError unless all *paths* are plain relative ones that can be files side by side."""
    known = set(paths)
    folders = {folder for path in known for folder in folders_of(path)}
    problems = [
        Problem(message=reason, source=path, hint="write it as maps/name, ssl/name or general/name")
        for path in sorted(known)
        if (reason := _refusal(path, reserved, folders))
    ]
    if problems:
        raise UnsafePathError(problems)


def folders_of(path: str) -> Iterator[str]:
    """Yield the folders that the relative *path* leads through, the outermost first."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def by_folder(files: Iterable[AuxFile]) -> dict[str, list[AuxFile]]:
    """Return *files* by the first folder of their paths; those in none are at the empty name."""
    found: dict[str, list[AuxFile]] = {}
    for file in files:
        folder, slash, _ = file.path.partition("/")
        found.setdefault(folder if slash else "", []).append(file)
    return found


def _refusal(path: str, reserved: frozenset[str], folders: Collection[str]) -> str:
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


def write_file(path: str | Path, content: bytes, *, durable: bool = True) -> None:
    """Write a new file that only we may read, and wait until it is on the disk, unless the caller does."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        if durable:
            os.fsync(descriptor)


def wait_written(paths: Sequence[str]) -> None:
    """Wait until the files at *paths*, and perhaps others, are on the disk."""
    if len(paths) > MOST_SYNCED:
        os.sync()
        return
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
