"""Manifest files on disk: listing, change detection and reading. Blocking."""

import errno
import io
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from hashlib import blake2b, file_digest
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import msgspec

from haptic_trio.errors import HapticError, Problem
from haptic_trio.k8s.manifests.catalog import FileContent, fill_in
from haptic_trio.k8s.manifests.objects import MAX_SIZE, Check, LocatedResource, read_manifest_lines
from haptic_trio.k8s.resource import Resource

SUFFIXES: Final = (".yaml", ".yml", ".json")

MAX_FILE: Final = 1024 * 1024 * 1024
"""Bytes in one file."""

Fingerprint: TypeAlias = tuple[int, int, int, int]
"""Modification time, change time, size, inode: equal means not touched since."""


class Known(msgspec.Struct, frozen=True):
    """A file as it was when it was read."""

    fingerprint: Fingerprint
    digest: bytes


_UNREAD: Final = Known((0, 0, 0, 0), b"")
"""A file that exists and could not be read: the next scan tries again."""


class RootMissingError(HapticError):
    """The directory is missing, or cannot be read because of *error*; a retry helps once it is back."""

    def __init__(self, root: str, error: OSError | None = None) -> None:
        self.problem = (
            _unreadable(root, error)
            if error is not None
            else Problem(
                message="the directory is missing; its last state is kept",
                source=root,
                hint="put it back; to remove everything, remove the files in it",
            )
        )
        super().__init__(str(self.problem))


class Scan(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a comparison of paths with the known files."""

    read: tuple[str, ...]
    """In order, so that of two new duplicates the first one is there first."""
    gone: tuple[str, ...]
    rejected: tuple[FileContent, ...]
    """Directories that cannot be listed; files in them count as unchanged."""
    listed: tuple[str, ...]
    """Directories that were listed."""
    missing: tuple[str, ...]
    """Directories that do not exist."""
    sizes: Mapping[str, int] = {}
    """Bytes of the files in `read`, as they were listed; files that were named are missing."""
    directories: tuple[str, ...]
    """The listed directories that were named. They may be new, and the kernel may not have reported the first files."""


class Reading(msgspec.Struct, frozen=True):
    """Result of reading a file; *content* is None if the file does not exist or is unchanged."""

    path: str
    known: Known | None
    """None: not there."""
    content: FileContent | None


def is_manifest(name: str) -> bool:
    """Whether a file name is one of a manifest, and not hidden or an editor's."""
    return name.endswith(SUFFIXES) and name[0] not in ".#"


def shown_path(path: str) -> str:
    """Return *path* with an escape (`\\xff`) for each byte that is not UTF-8: such a path cannot be printed or sent."""
    return os.fsencode(path).decode(errors="backslashreplace")


def is_relevant(root: str, path: str) -> bool:
    """Whether a change at *path* may change what the files below *root* mean.

    Nothing hidden matters, except names that begin with `..`: the directory
    of a mounted ConfigMap is switched by renaming its link `..data`.
    """
    relative = path[len(root) :].lstrip("/")
    hidden = [part for part in relative.split("/") if part.startswith(".")]
    return not hidden or (hidden[0].startswith("..") and relative.endswith(hidden[0]))


def scan_all(root: str, known: Mapping[str, Known]) -> Scan:
    """Compare everything below *root* with what is known; reads no file.

    Raises `RootMissingError`.
    """
    return _scan_below(root, [root], [], known)


def scan_paths(root: str, paths: Iterable[str], known: Mapping[str, Known]) -> Scan:
    """Compare *paths*, and everything below those that are directories, with what is known.

    A file in *paths* is read even if its times are as before.

    Raises `RootMissingError`.
    """
    read: dict[str, None] = {}
    directories: dict[str, None] = {}
    for changed in paths:
        path = _inside(Path(root), Path(changed))
        if path is None:
            continue
        if path.name.startswith(".."):
            directories[str(path.parent)] = None
            continue
        try:
            kind = _kind_of(path)
        except OSError:
            # The listing of its directory reports the error.
            directories[root if str(path) == root else str(path.parent)] = None
            continue
        if kind == stat.S_IFDIR:
            directories[str(path)] = None
        elif is_manifest(path.name):
            read[str(path)] = None
        elif not kind:
            # It may have been a directory.
            directories[str(path)] = None
    return _scan_below(root, list(directories), list(read), known)


def _kind_of(path: Path) -> int:
    """Return the type of *path*, as in a mode; 0 if nothing is there. Raises OSError if that cannot be found out."""
    try:
        kind = stat.S_IFMT(path.lstat().st_mode)
        if kind == stat.S_IFLNK:
            path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0
    return kind


def read_files(
    root: str,
    paths: Iterable[str],
    known: Mapping[str, Known],
    note: Callable[[int], None] = lambda _size: None,
    check: Check | None = None,
) -> list[Reading]:
    """Read *paths*, see `read_file`. Raises `RootMissingError`: then none of them counts as gone."""
    readings = [read_file(path, known.get(path), note, check) for path in paths]
    if any(reading.known is None for reading in readings):
        _check_root(root)
    return readings


class _Noted(io.BufferedReader):
    """A file that counts the bytes of its text as they are read, by calling *note*."""

    def __init__(self, raw: io.FileIO, note: Callable[[int], None]) -> None:
        super().__init__(raw)
        self._note = note

    def read1(self, size: int = -1, /) -> bytes:
        data = super().read1(size)
        self._note(len(data))
        return data


def read_file(
    path: str,
    known: Known | None,
    note: Callable[[int], None] = lambda _size: None,
    check: Check | None = None,
) -> Reading:
    """Read *path* and the manifests in it, unless its bytes are the *known* ones.

    A file whose path is not UTF-8 is not opened: an event about it would end the watch of the directory. The text of
    others is not in memory as a whole. *note* is called with the size of
    each piece of it that has been read, and *check* with each manifest.
    """
    try:
        if shown_path(path) != path:
            return _rejected(path, _misnamed(path), Known(fingerprint_of(Path(path).stat()), b""))
        with _Noted(io.FileIO(path, opener=_open_at_once), note) as file:
            status = _status_of(file)
            if status.st_size > MAX_FILE:
                return _rejected(path, _too_large(path), Known(fingerprint_of(status), b""))
            # A change after this has another digest when the file is read next.
            read = Known(fingerprint_of(status), file_digest(file, _new_digest).digest())
            if known is not None and known.digest == read.digest:
                return Reading(path, read, None)
            return Reading(path, read, _content(path, file, check))
    except OSError as error:
        # A broken link is not a removed file.
        if isinstance(error, FileNotFoundError | NotADirectoryError) and not Path(path).is_symlink():
            return Reading(path, None, None)
        return _rejected(path, _unreadable(path, error), _UNREAD)


def _status_of(file: BinaryIO) -> os.stat_result:
    status = os.fstat(file.fileno())
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")
    return status


def _new_digest() -> blake2b:
    return blake2b(digest_size=16)


def _open_at_once(path: str, flags: int) -> int:
    # Not every name is a file: opening a pipe would wait for a writer.
    return os.open(path, flags | os.O_NONBLOCK)


def fingerprint_of(status: os.stat_result) -> Fingerprint:
    """Return the fingerprint of a file with *status*."""
    return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _content(path: str, file: BinaryIO, check: Check | None) -> FileContent:
    file.seek(0)
    text = io.TextIOWrapper(file, encoding="utf-8-sig", newline="\n")
    try:
        # A line that is longer comes in pieces.
        lines = iter(partial(text.readline, MAX_SIZE), "")
        located, problems, faults = read_manifest_lines(
            lines, path, partial(_check_filled, check) if check is not None else None
        )
    except UnicodeDecodeError:
        text.detach()
        hint = "save the file as UTF-8"
        problem = Problem(message="is not UTF-8", source=path, line=_line_of_other_bytes(file), hint=hint)
        return FileContent(path=path, problems=(problem,))
    text.detach()
    manifests = tuple(fill_in(each) for each in located)
    return FileContent(path=path, manifests=manifests, problems=tuple(problems), faults=tuple(faults))


def _check_filled(check: Check, resource: Resource) -> Iterable[Problem]:
    """Return what *check* finds in *resource*, which gets its namespace before."""
    return check(fill_in(LocatedResource(resource, "", 0)).resource)


def _line_of_other_bytes(file: BinaryIO) -> int:
    """Return the first line (1-based) of *file* that is not UTF-8."""
    file.seek(0)
    for number, line in enumerate(file, 1):
        try:
            line.decode()
        except UnicodeDecodeError:
            return number
    return 0


def _scan_below(root: str, directories: list[str], read: list[str], known: Mapping[str, Known]) -> Scan:
    """List *directories* and compare them with what is known; a directory that is not there has no files."""
    walk = _Walk()
    for directory in directories:
        walk.go(directory)
    changed = [path for path, seen in walk.found.items() if path not in known or known[path].fingerprint != seen]
    gone: list[str] = []
    if directories:
        below = tuple(f"{directory}/" for directory in directories)
        closed = tuple(f"{directory}/" for directory in walk.rejected)
        gone = [
            path for path in known if path.startswith(below) and path not in walk.found and not path.startswith(closed)
        ]
    _check_root(root)
    wanted = sorted({*read, *changed})
    return Scan(
        read=tuple(wanted),
        sizes={path: walk.found[path][2] for path in wanted if path in walk.found},
        gone=tuple(gone),
        rejected=tuple(
            FileContent(path=shown_path(path), problems=(problem,)) for path, problem in walk.rejected.items()
        ),
        listed=tuple(walk.listed),
        missing=tuple(walk.missing),
        directories=tuple(directory for directory in directories if directory in walk.listed),
    )


def _check_root(root: str) -> None:
    # Afterwards, not before: all files are gone too when the directory goes while we look.
    try:
        kind = _kind_of(Path(os.path.realpath(root)))
    except OSError as error:
        raise RootMissingError(root, error) from error
    if kind != stat.S_IFDIR:
        raise RootMissingError(root)


class _Walk:
    def __init__(self) -> None:
        self.found: dict[str, Fingerprint] = {}
        self.rejected: dict[str, Problem] = {}
        self.listed: dict[str, None] = {}
        self.missing: list[str] = []

    def go(self, top: str) -> None:
        waiting = [top]
        while waiting:
            directory = waiting.pop()
            try:
                with os.scandir(directory) as entries:
                    waiting.extend(entry.path for entry in entries if self._note(entry))
            except (FileNotFoundError, NotADirectoryError):
                self.missing.append(directory)
            except OSError as error:
                self.rejected[directory] = _unreadable(directory, error)
            else:
                self.listed[directory] = None

    def _note(self, entry: "os.DirEntry[str]") -> bool:
        """Take in a file; return whether *entry* is a directory to go into."""
        if entry.name.startswith("."):
            return False
        try:
            # Links to directories are not followed: they may lead round in circles.
            if entry.is_dir(follow_symlinks=False):
                return True
            if is_manifest(entry.name):
                status = entry.stat()
                if stat.S_ISREG(status.st_mode):
                    self.found[entry.path] = fingerprint_of(status)
                elif not stat.S_ISDIR(status.st_mode):
                    self.found[entry.path] = _UNREAD.fingerprint
        except OSError as error:
            # Reading it shows the error, unless it is deleted again.
            if entry.is_symlink() or not isinstance(error, FileNotFoundError):
                self.found[entry.path] = _UNREAD.fingerprint
        return False


def _inside(root: Path, path: Path) -> Path | None:
    """Return *path* as a walk from *root* would find it, or None if it would not."""
    if path == root:
        return path
    base, directory = root.resolve(), path.parent.resolve()
    return root / directory.relative_to(base) / path.name if directory.is_relative_to(base) else None


def _rejected(path: str, problem: Problem, known: Known) -> Reading:
    return Reading(path, known, FileContent(path=shown_path(path), problems=(problem,)))


def _misnamed(path: str) -> Problem:
    return Problem(message="the path is not UTF-8", source=shown_path(path), hint="rename the file or its directory")


def _unreadable(path: str, error: OSError) -> Problem:
    hint = ""
    if isinstance(error, PermissionError):
        hint = "give the user of this process the right to read it"
    elif isinstance(error, FileNotFoundError):
        hint = "the link is broken; correct or remove it"
    return Problem(message=f"cannot be read: {error.strerror}", source=shown_path(path), hint=hint)


def _too_large(path: str) -> Problem:
    return Problem(message=f"larger than {MAX_FILE >> 30} GiB", source=path, hint="split the file")
