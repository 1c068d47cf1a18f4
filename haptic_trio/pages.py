"""Sequences in pages: those that differ in little share most pages, so comparing and summarising costs what differs.

A `Page` never changes, and remembers what was computed of it. A `Paged` is
an immutable sequence of pages; where the pages begin means nothing, and two
with the same items may be cut differently. A `Shelf` is the mutable source
of such sequences: items in the order of their keys, of which a change
replaces one page.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Generic, TypeVar, cast

import msgspec

T = TypeVar("T")
S = TypeVar("S")
K = TypeVar("K")

PAGE_SIZE = 64
"""Items in a page when many are put at once; a page is split at twice as many."""


class Piece(msgspec.Struct, frozen=True, eq=False):
    """A part of a text, made in one go; equal only to itself, so that nobody compares texts to find what changed."""

    text: str
    origin: Any = None
    """Whatever its maker wants to know about it."""


class Page(Generic[T]):
    """Some items in order, and what was computed of them. Equal only to itself."""

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
        self.pages = tuple(page for page in pages if page.items)
        self._length = sum(len(page.items) for page in self.pages)

    @classmethod
    def of(cls, items: Iterable[T]) -> "Paged[T]":
        """Return *items* in new pages."""
        given = tuple(items)
        return cls(Page(given[start : start + PAGE_SIZE]) for start in range(0, len(given), PAGE_SIZE))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(page.items for page in self.pages)

    def __repr__(self) -> str:
        return f"Paged({self._length} items, {len(self.pages)} pages)"

    def summaries(self, function: Callable[[tuple[T, ...]], S]) -> list[S]:
        """Return *function* of each page's items, in order; pages that were asked before are not computed again."""
        return [page.summary(function) for page in self.pages]


def differences(before: Paged[T], after: Paged[T]) -> tuple[list[T], list[T]]:
    """Return the items of *before* and of *after* that stand in pages which the other has not.

    What is in neither list is in both sequences. What is in a list may be in
    both, too: callers compare the two lists, whose length is that of a few
    pages where the sequences come from one shelf.
    """
    old, new = {id(page) for page in before.pages}, {id(page) for page in after.pages}
    return (
        list(chain.from_iterable(page.items for page in before.pages if id(page) not in new)),
        list(chain.from_iterable(page.items for page in after.pages if id(page) not in old)),
    )


class Shelf(Generic[K, T]):
    """Items in the order of their keys, which must be comparable and unique. Not for several threads at once."""

    def __init__(self, items: Iterable[tuple[K, T]] = ()) -> None:
        ordered = sorted(items, key=lambda item: cast("Any", item[0]))
        cuts = range(0, len(ordered), PAGE_SIZE)
        self._keys: list[list[K]] = [[key for key, _ in ordered[cut : cut + PAGE_SIZE]] for cut in cuts]
        self._items: list[list[T]] = [[item for _, item in ordered[cut : cut + PAGE_SIZE]] for cut in cuts]
        # The page of each list, and None where the list has changed since.
        self._pages: list[Page[T] | None] = [None] * len(self._keys)
        self._firsts: list[Any] = [keys[0] for keys in self._keys]

    def __len__(self) -> int:
        return sum(map(len, self._keys))

    def put(self, key: K, item: T) -> None:
        """Put *item* at *key*, in place of what is there."""
        if not self._keys:
            self._insert_page(0, [key], [item])
            return
        page = max(0, bisect_right(self._firsts, key) - 1)
        keys, items = self._keys[page], self._items[page]
        place = bisect_left(cast("list[Any]", keys), key)
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
        """Remove what is at *key*; nothing there is fine."""
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
        """Return the items as they are now; pages without a change are those of the last call."""
        for number, page in enumerate(self._pages):
            if page is None:
                self._pages[number] = Page(tuple(self._items[number]))
        return Paged(cast("list[Page[T]]", self._pages))

    def _insert_page(self, number: int, keys: list[K], items: list[T]) -> None:
        self._keys.insert(number, keys)
        self._items.insert(number, items)
        self._pages.insert(number, None)
        self._firsts.insert(number, keys[0])
