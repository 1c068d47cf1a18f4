"""Immutable sequences in chunks: two similar versions share most chunks, which are compared by identity.

A `Page` is an immutable tuple of items with a cache of results computed from
them. A `Paged` is an immutable sequence of pages; two sequences with the same
items may be divided into pages differently. A `Shelf` is the mutable source
of such sequences: items in the order of their keys. A change of an item
replaces one page.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import is_not
from typing import Any, Generic, NamedTuple, TypeVar, cast

import msgspec

T = TypeVar("T")
S = TypeVar("S")
K = TypeVar("K")

_NOTHING: Any = object()

PAGE_SIZE = 64
"""Items in a page when many are put at once; a page is split at twice as many."""


class Piece(msgspec.Struct, frozen=True, eq=False):
    """A part of a text. Two pieces are equal only if they are the same object, so no texts are compared."""

    text: str
    origin: Any = None
    """Arbitrary data of the creator of the piece."""


class Page(Generic[T]):
    """A tuple of items with a cache of results. Two pages are equal only if they are the same object."""

    __slots__ = ("_summaries", "items")

    def __init__(self, items: tuple[T, ...]) -> None:
        self.items = items
        self._summaries: dict[Callable[[tuple[T, ...]], Any], Any] = {}

    def summary(self, function: Callable[[tuple[T, ...]], S]) -> S:
        """Return *function* of the items, computed once for each function, which must be pure."""
        try:
            return cast("S", self._summaries[function])
        except KeyError:
            found = self._summaries[function] = function(self.items)
            return found

    def __repr__(self) -> str:
        return f"Page({len(self.items)} items)"


class Paged(Generic[T]):
    """An immutable sequence of the items of its pages."""

    __slots__ = ("_length", "pages")

    def __init__(self, pages: Iterable[Page[T]] = ()) -> None:
        self.pages = tuple([page for page in pages if page.items])
        self._length = -1

    @classmethod
    def of(cls, items: Iterable[T]) -> "Paged[T]":
        """Return *items* in new pages."""
        given = tuple(items)
        return cls(Page(given[start : start + PAGE_SIZE]) for start in range(0, len(given), PAGE_SIZE))

    def __len__(self) -> int:
        if self._length < 0:
            self._length = sum([len(page.items) for page in self.pages])
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(page.items for page in self.pages)

    def __getitem__(self, index: int) -> T:
        """Return one item; counts the pages before it."""
        place = index + len(self) if index < 0 else index
        if not 0 <= place < len(self):
            raise IndexError(f"no item {index} among {len(self)}")
        for page in self.pages:
            if place < len(page.items):
                return page.items[place]
            place -= len(page.items)
        raise AssertionError("the length is that of all pages")

    def __repr__(self) -> str:
        return f"Paged({len(self)} items, {len(self.pages)} pages)"

    def summaries(self, function: Callable[[tuple[T, ...]], S]) -> list[S]:
        """Return *function* of each page's items, in order; each page caches its result."""
        # What is known is looked up in place: with thousands of pages the calls would be the cost.
        return [
            known if (known := page._summaries.get(function, _NOTHING)) is not _NOTHING else page.summary(function)  # noqa: SLF001
            for page in self.pages
        ]


def differences(before: Paged[T], after: Paged[T]) -> tuple[list[T], list[T]]:
    """Return the items of *before* and of *after* in pages that the other sequence does not have.

    Items in neither list are in both sequences. Items in a list may be in
    both, too, so callers compare the two lists. For two sequences of one
    shelf, each list has the items of a few pages.
    """
    old, new = {id(page) for page in before.pages}, {id(page) for page in after.pages}
    return (
        list(chain.from_iterable(page.items for page in before.pages if id(page) not in new)),
        list(chain.from_iterable(page.items for page in after.pages if id(page) not in old)),
    )


def changed_items(before: Sequence[T], after: Sequence[T]) -> tuple[list[T], list[T]]:
    """Return what only *before* has, and what only *after* has, by identity; both have common items in one order."""
    start = _common_length(before, after)
    room = min(len(before), len(after)) - start
    end = min(_common_length(reversed(before), reversed(after)), room)
    gone, come = before[start : len(before) - end], after[start : len(after) - end]
    kept = {id(one) for one in gone}.intersection(id(one) for one in come)
    return [one for one in gone if id(one) not in kept], [one for one in come if id(one) not in kept]


def _common_length(before: Iterable[Any], after: Iterable[Any]) -> int:
    """Return the number of items with which both begin, by identity."""
    differ = map(is_not, before, after)
    count = 0
    # In steps, since C counts faster than a loop here does.
    while True:
        some = list(islice(differ, 256))
        if True in some:
            return count + some.index(True)
        count += len(some)
        if len(some) < 256:
            return count


class Stretch(NamedTuple, Generic[T]):
    """A range in which two sequences have different pages."""

    at: int
    """Items of the former sequence in front of it."""
    page: int
    """Pages of the former sequence in front of it."""
    before: tuple[Page[T], ...]
    after: tuple[Page[T], ...]


def stretches(before: Paged[T], after: Paged[T]) -> list[Stretch[T]] | None:
    """Return the ranges with different pages, in order; None if the order of the common pages differs.

    Between two stretches both have the same pages.
    """
    old, new = before.pages, after.pages
    shared = {id(page) for page in old} & {id(page) for page in new}
    found: list[Stretch[T]] = []
    count, i, j = 0, 0, 0
    while i < len(old) or j < len(new):
        if i < len(old) and j < len(new) and old[i] is new[j]:
            count += len(old[i].items)
            i, j = i + 1, j + 1
            continue
        first, other = i, j
        while i < len(old) and id(old[i]) not in shared:
            i += 1
        while j < len(new) and id(new[j]) not in shared:
            j += 1
        if (first, other) == (i, j):
            return None
        found.append(Stretch(count, first, old[first:i], new[other:j]))
        count += sum(len(page.items) for page in old[first:i])
    return found


class Splice(NamedTuple, Generic[T]):
    """Replacement of *removed* items of a sequence, from index *at*, by *added*."""

    at: int
    removed: int
    added: tuple[T, ...]


def spliced(paged: Paged[T], splices: Iterable[Splice[T]]) -> Paged[T]:
    """Return *paged* with *splices* applied, in ascending order of their indexes in *paged*; other pages are shared.

    Raises ValueError for a splice out of range, or out of order.
    """
    splicer = _Splicer(paged)
    for splice in splices:
        if splice.at < splicer.at or splice.removed < 0:
            raise ValueError("a splice lies before another one")
        splicer.keep(splice.at)
        splicer.drop(splice.at + splice.removed)
        splicer.loose += splice.added
    return splicer.finish()


class _Splicer(Generic[T]):
    """Iteration over the pages of a sequence, for one call of `spliced`."""

    def __init__(self, paged: Paged[T]) -> None:
        self.at = 0
        self.loose: list[T] = []
        """Items that are not in a page yet."""
        self._pages: list[Page[T]] = []
        self._rest = list(reversed(paged.pages))

    def keep(self, to: int) -> None:
        """Advance to item *to*, and keep the items before it."""
        while self.at < to:
            page = self._next()
            cut = min(to - self.at, len(page.items))
            self.at += cut
            if cut < len(page.items):
                self.loose += page.items[:cut]
                self._rest.append(Page(page.items[cut:]))
            elif self.loose:
                self.loose += page.items
                self._close()
            else:
                self._pages.append(page)

    def drop(self, to: int) -> None:
        """Advance to item *to*, and omit the items before it."""
        while self.at < to:
            page = self._next()
            cut = min(to - self.at, len(page.items))
            self.at += cut
            if cut < len(page.items):
                self._rest.append(Page(page.items[cut:]))

    def finish(self) -> Paged[T]:
        """Return the result, with all remaining items."""
        if self.loose and self._rest:
            # The rest of a divided page stays in one page with the added items.
            self.loose += self._rest.pop().items
        self._close()
        return Paged([*self._pages, *reversed(self._rest)])

    def _next(self) -> Page[T]:
        if not self._rest:
            raise ValueError("a splice lies outside the sequence")
        return self._rest.pop()

    def _close(self) -> None:
        if len(self.loose) > 2 * PAGE_SIZE:
            self._pages += Paged.of(self.loose).pages
        elif self.loose:
            self._pages.append(Page(tuple(self.loose)))
        self.loose = []


class Shelf(Generic[K, T]):
    """Items in the order of their keys, which must be comparable and unique. Not thread-safe."""

    def __init__(self, items: Iterable[tuple[K, T]] = ()) -> None:
        ordered = sorted(items, key=lambda item: cast("Any", item[0]))
        cuts = range(0, len(ordered), PAGE_SIZE)
        self._keys: list[list[K]] = [[key for key, _ in ordered[cut : cut + PAGE_SIZE]] for cut in cuts]
        self._items: list[list[T]] = [[item for _, item in ordered[cut : cut + PAGE_SIZE]] for cut in cuts]
        # The page of each list; None if the list has changed since.
        self._pages: list[Page[T] | None] = [None] * len(self._keys)
        self._firsts: list[Any] = [keys[0] for keys in self._keys]

    def __len__(self) -> int:
        return sum(map(len, self._keys))

    def copied(self) -> "Shelf[K, T]":
        """Return an independent copy that shares the pages."""
        copy: Shelf[K, T] = Shelf()
        copy._keys, copy._items = [list(keys) for keys in self._keys], [list(items) for items in self._items]
        copy._pages, copy._firsts = list(self._pages), list(self._firsts)
        return copy

    def put(self, key: K, item: T) -> None:
        """Add *item* with *key*, or replace the item of *key*."""
        if not self._keys:
            self._insert_page(0, [key], [item])
            return
        page = max(0, bisect_right(self._firsts, key) - 1)
        keys, items = self._keys[page], self._items[page]
        # Mostly items come in order.
        last: Any = keys[-1]
        place = len(keys) if last < key else bisect_left(cast("list[Any]", keys), key)
        if place < len(keys) and keys[place] == key:
            if items[place] is not item:
                items[place] = item
                self._pages[page] = None
            return
        keys.insert(place, key)
        items.insert(place, item)
        self._firsts[page] = keys[0]
        self._pages[page] = None
        if len(keys) > 2 * PAGE_SIZE:
            self._insert_page(page + 1, keys[PAGE_SIZE:], items[PAGE_SIZE:])
            del keys[PAGE_SIZE:], items[PAGE_SIZE:]

    def remove(self, key: K) -> None:
        """Remove the item of *key*, if there is one."""
        page = bisect_right(self._firsts, key) - 1
        if page < 0:
            return
        keys = self._keys[page]
        place = bisect_left(cast("list[Any]", keys), key)
        if place == len(keys) or keys[place] != key:
            return
        del keys[place], self._items[page][place]
        if keys:
            self._firsts[page] = keys[0]
            self._pages[page] = None
        else:
            del self._keys[page], self._items[page], self._pages[page], self._firsts[page]

    def paged(self) -> Paged[T]:
        """Return the present items; unchanged pages are the same objects as in the last call."""
        for number, page in enumerate(self._pages):
            if page is None:
                self._pages[number] = Page(tuple(self._items[number]))
        return Paged(cast("list[Page[T]]", self._pages))

    def _insert_page(self, number: int, keys: list[K], items: list[T]) -> None:
        self._keys.insert(number, keys)
        self._items.insert(number, items)
        self._pages.insert(number, None)
        self._firsts.insert(number, keys[0])
