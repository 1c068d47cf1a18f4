"""Checks that paths stay inside a directory, and stamps of files."""

import os
import shutil
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.haproxy.file_chunks import FilePages
from haptic_trio.haproxy.model import AuxFile


class UnsafePathError(ProblemsError):
    """A file would be outside of its directory, or conflict with another file; permanent."""


class Stamp(msgspec.Struct, frozen=True):
    """Identity of a file when it was read; the content is unchanged while the stamp is."""

    inode: int
    size: int
    mtime_ns: int
    digest: str


def read_stamp(path: str | Path, digest: str) -> Stamp | None:
    """Return the stamp of the file at *path*, whose content has *digest*; None if it does not exist."""
    try:
        status = os.stat(path)  # noqa: PTH116 - called for thousands of files
    except FileNotFoundError:
        return None
    return Stamp(status.st_ino, status.st_size, status.st_mtime_ns, digest)


class _Paths(NamedTuple):
    """Summary of a page of paths."""

    plain: bool
    """No path is invalid by itself."""
    folders: frozenset[str]
    roots: frozenset[str]
    """The first part of each."""


def check_files(files: FilePages[Any], reserved: frozenset[str]) -> None:
    """Check the paths of *files* as `check_paths` does; pages that were checked before are not read."""
    known = files.paged.summaries(_summarise)
    folders = frozenset[str]().union(*(one.folders for one in known))
    taken = any(not one.plain or not one.roots.isdisjoint(reserved) for one in known)
    if taken or any(folder in files for folder in folders):
        check_paths(files, reserved)


def _summarise(files: tuple[Any, ...]) -> _Paths:
    folders = frozenset(folder for file in files for folder in folders_of(file.path))
    return _Paths(
        not any(_rejection(file.path, frozenset(), folders) for file in files),
        folders,
        frozenset(file.path.split("/", maxsplit=1)[0] for file in files),
    )


def check_paths(paths: Iterable[str], reserved: frozenset[str]) -> None:
    """Raise UnsafePathError unless all *paths* are plain, relative, and free of conflicts."""
    known = set(paths)
    folders = {folder for path in known for folder in folders_of(path)}
    problems = [
        Problem(message=reason, source=path, hint="write it as maps/name, ssl/name or general/name")
        for path in sorted(known)
        if (reason := _rejection(path, reserved, folders))
    ]
    if problems:
        raise UnsafePathError(problems)


def folders_of(path: str) -> Iterator[str]:
    """Yield the parent folders of the relative *path*, the outermost first."""
    end = path.find("/")
    while end >= 0:
        yield path[:end]
        end = path.find("/", end + 1)


def by_folder(files: Iterable[AuxFile]) -> dict[str, list[AuxFile]]:
    """Return *files* by the first folder of their paths; the empty name has files without a folder."""
    found: dict[str, list[AuxFile]] = {}
    for file in files:
        folder, slash, _ = file.path.partition("/")
        found.setdefault(folder if slash else "", []).append(file)
    return found


def _rejection(path: str, reserved: frozenset[str], folders: Collection[str]) -> str:
    if path.startswith("/"):
        return "the path of a file must be relative"
    if any(part in {"", ".", ".."} for part in path.split("/")):
        return "the path of a file must have no empty, `.` or `..` part"
    if "\0" in path or "\n" in path:
        return "the path of a file must not hold control characters"
    if path.split("/", maxsplit=1)[0] in reserved:
        return "the name is reserved for a file of the instance"
    if path in folders:
        return "the path is a file and a directory at once"
    return ""


def clear_directory(path: Path) -> None:
    """Remove what is in the directory *path*, and create it if it is missing; blocks."""
    shutil.rmtree(path, ignore_errors=True)
    # It stays if its parent cannot be written.
    path.mkdir(mode=0o700, exist_ok=True)
