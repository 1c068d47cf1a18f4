"""How much output the objects of each namespace have together, so that no tenant uses all memory."""

from collections import Counter

from haptic_trio.templating.limits import LimitReachedError
from haptic_trio.templating.outputs import FragmentOutput
from haptic_trio.templating.records import Dependency
from haptic_trio.templating.subjects import FragmentKey


class NamespaceShares:
    """Counts outputs of fragments by namespace. Objects without a namespace are the administrator's: no limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: Counter[str] = Counter()
        self._freed: set[str] = set()

    def check(self, key: FragmentKey, more: int) -> None:
        """Raise `LimitReachedError` if the namespace of *key* has no room for *more* bytes."""
        if key.namespace and more > 0 and self._held[key.namespace] + more > self._limit:
            raise LimitReachedError(
                f"the output of all objects of the namespace {key.namespace} grew beyond {self._limit:,} bytes",
                "have fewer or smaller objects in this namespace, or raise templating.maxNamespaceBytes",
            )

    def change(self, key: FragmentKey, before: FragmentOutput | None, after: FragmentOutput | None) -> None:
        """Note that the fragment *key* gave *before*, and gives *after* now."""
        difference = (after.size if after else 0) - (before.size if before else 0)
        self._held[key.namespace] += difference
        if difference < 0:
            self._freed.add(key.namespace)

    def take_freed(self) -> list[Dependency]:
        """Return the questions of fragments that there may be room for since this was last asked."""
        freed, self._freed = self._freed, set()
        return [question_of(namespace) for namespace in sorted(freed)]


def question_of(namespace: str) -> Dependency:
    """Return what a fragment depends on that found no room in *namespace*."""
    return "room", namespace
