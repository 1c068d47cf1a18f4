"""Ordered lists that change at the cost of what changes."""

from bisect import bisect_left, insort
from typing import Any, Generic, TypeVar

K = TypeVar("K")
T = TypeVar("T", bound=tuple[Any, ...])


def put(items: list[T], item: T, *, is_there: bool) -> None:
    """Add *item* to *items*, which are in order, or remove it."""
    if is_there:
        insort(items, item)
    else:
        del items[bisect_left(items, item)]


def put_under(lists: dict[K, list[T]], key: K, item: T, *, is_there: bool) -> None:
    """Add *item* to the list at *key*, or remove it; *lists* has no empty ones."""
    items = lists.setdefault(key, [])
    put(items, item, is_there=is_there)
    if not items:
        del lists[key]


class ByNamespace(Generic[T]):
    """Items of each namespace in order, and the first ones: a change costs the same however many there are."""

    __slots__ = ("firsts", "lists")

    def __init__(self) -> None:
        self.lists: dict[str, list[T]] = {}
        """The items, by namespace; no list is empty."""
        self.firsts: list[T] = []
        """The first item of each namespace, in order."""

    def change(self, namespace: str, item: T, *, is_there: bool) -> None:
        """Add *item* of *namespace*, or remove it."""
        before = self.lists.get(namespace)
        former = before[0] if before else None
        put_under(self.lists, namespace, item, is_there=is_there)
        after = self.lists.get(namespace)
        first = after[0] if after else None
        if first != former:
            if former is not None:
                put(self.firsts, former, is_there=False)
            if first is not None:
                put(self.firsts, first, is_there=True)
