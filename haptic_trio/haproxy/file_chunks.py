"""Files by path, in chunks: the cost of a changed file is that of its chunk."""

import hashlib
from bisect import bisect_right
from collections.abc import ItemsView, Iterable, Iterator, Mapping, ValuesView
from functools import cached_property
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar

from haptic_trio.chunked import Paged, Splice, differences, spliced


class Filed(Protocol):
    """An object with a path and a hash."""

    @property
    def path(self) -> str:
        """Key of the object."""
        ...

    @property
    def seal(self) -> bytes:
        """Content hash of fixed length."""
        ...


F = TypeVar("F", bound=Filed)

_PATH_OF = attrgetter("path")


class FilePages(Mapping[str, F], Generic[F]):
    """An immutable mapping from path to file, in the order of paths."""

    def __init__(self, paged: Paged[F]) -> None:
        """*paged* must be sorted by path, without repeated paths."""
        self.paged = paged

    @classmethod
    def of(cls, files: Iterable[F]) -> "FilePages[F]":
        """Return *files* in new pages; of several files with one path the last one is used."""
        by_path = {file.path: file for file in files}
        return cls(Paged.of(by_path[path] for path in sorted(by_path)))

    @cached_property
    def seal(self) -> bytes:
        """Hash of all files, 20 bytes."""
        return hashlib.blake2b(b"".join(self.paged.summaries(_seals_of)), digest_size=20).digest()

    def __len__(self) -> int:
        return len(self.paged)

    def __iter__(self) -> Iterator[str]:
        return (file.path for file in self.paged)

    def values(self) -> ValuesView[F]:
        """Return the files, in order."""
        return _Values(self)

    def items(self) -> ItemsView[str, F]:
        """Return paths and files, in order."""
        return _Items(self)

    def __getitem__(self, path: str) -> F:
        number = bisect_right(self._firsts, path) - 1
        if number < 0:
            raise KeyError(path)
        found: F = self.paged.pages[number].summary(_index)[path]
        return found

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, FilePages):
            return NotImplemented
        return len(self) == len(other) and all(map(_same, self.paged, other.paged))

    def __hash__(self) -> int:
        return hash(self.seal)

    def __repr__(self) -> str:
        return f"FilePages({len(self)} files)"

    def changed(self, put: Iterable[F] = (), removed: Iterable[str] = ()) -> "FilePages[F]":
        """Return a copy with the files *put* added or replaced, and without the paths *removed*."""
        wanted: dict[str, F | None] = dict.fromkeys(removed)
        wanted.update((file.path, file) for file in put if self.get(file.path) is not file)
        splices = []
        for path in sorted(wanted):
            file = wanted[path]
            at, found = self._find(path)
            if found or file is not None:
                splices.append(Splice(at, int(found), () if file is None else (file,)))
        return FilePages(spliced(self.paged, _merge(splices))) if splices else self

    def differing(self, other: "FilePages[F]") -> tuple[dict[str, F], dict[str, F]]:
        """Return the files of both sides, by path, from pages that the other side does not share."""
        mine, others = differences(self.paged, other.paged)
        return {file.path: file for file in mine}, {file.path: file for file in others}

    @cached_property
    def _firsts(self) -> list[str]:
        return [page.items[0].path for page in self.paged.pages]

    @cached_property
    def _counts(self) -> list[int]:
        """Number of files before each page."""
        counts, count = [], 0
        for page in self.paged.pages:
            counts.append(count)
            count += len(page.items)
        return counts

    def _find(self, path: str) -> tuple[int, bool]:
        """Return the position of *path*, or the position at which to insert it, and whether it exists."""
        number = max(0, bisect_right(self._firsts, path) - 1)
        if not self._firsts:
            return 0, False
        items = self.paged.pages[number].items
        place = bisect_right(items, path, key=_PATH_OF)
        if place and items[place - 1].path == path:
            return self._counts[number] + place - 1, True
        return self._counts[number] + place, False


class _Values(ValuesView[F]):
    _mapping: FilePages[F]

    def __iter__(self) -> Iterator[F]:
        return iter(self._mapping.paged)


class _Items(ItemsView[str, F]):
    _mapping: FilePages[F]

    def __iter__(self) -> Iterator[tuple[str, F]]:
        return ((file.path, file) for file in self._mapping.paged)


def _merge(splices: list[Splice[F]]) -> list[Splice[F]]:
    """Join splices at one position: several new files before the same file."""
    merged: list[Splice[F]] = []
    for splice in splices:
        last = merged[-1] if merged else None
        if last is not None and last.at == splice.at:
            merged[-1] = Splice(last.at, last.removed + splice.removed, (*last.added, *splice.added))
        else:
            merged.append(splice)
    return merged


def _seals_of(files: tuple[Filed, ...]) -> bytes:
    return b"".join([file.seal for file in files])


def _index(files: tuple[Any, ...]) -> dict[str, Any]:
    return {file.path: file for file in files}


def _same(one: object, other: object) -> bool:
    return one is other or one == other
