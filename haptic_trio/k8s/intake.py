"""Intake: how many changed objects a cycle takes in, of each namespace and in all; the others wait for later cycles.

One tenant may change thousands of objects at once. A cycle that rendered all
of them would hold up the changes of other namespaces. So each namespace has a
share of a cycle for each kind. A tenant who may create namespaces has
thousands of shares. So a cycle also has a total, and beyond it namespaces
without recent changes come first. A large object takes longer to render, so
it counts as several, and so does a route with many host names and matches. An
object that waits is as it was before in every store: its change seems to
arrive later. A deletion is a change, too.

A small object may be costly nevertheless. So the time of costly fragments is
measured. The namespace whose changes caused it owes this time: its changes
wait, and those of others come first, until other work has taken as long. An
object of it counts from then on as what its change took.
"""

from collections import Counter
from collections.abc import Mapping
from heapq import nsmallest
from itertools import chain, islice, zip_longest
from math import inf
from typing import Any, Final, TypeAlias

from haptic_trio.k8s.resource import Resource, ResourceRef

FIRST_SHARE: Final = 100
LEAST_SHARE: Final = 5
MOST_SHARE: Final = 1000
TOTAL: Final = 4
"""Shares that the changes of all namespaces have in a cycle; quiet namespaces have as many again."""
QUIET: Final = 3
"""Cycles without a change after which a namespace is quiet."""
SETTLING: Final = 100
"""Cycles after its first change in which a namespace counts as new, and ranks behind all others that wait."""
UNIT: Final = 4096
"""Bytes for which an object counts as another one. Most are smaller; an Ingress with 6,000 paths counts as 130."""
ENTRIES: Final = 64
"""Entries of maps for which a route counts as another object, one for each host name and match: as long as `UNIT`."""
LEAST_COST: Final = 0.01
"""CPU seconds of a change that are remembered."""
MOST_KNOWN: Final = 100_000
"""Namespaces that an intake remembers, since they may come and go without an end; others count as new. As many costly
objects."""

Queue: TypeAlias = tuple[str, str]
"""Kind and namespace."""


class Intake:
    """Decides which changes of objects wait. One for all stores of an iteration, so that these agree.

    Without the first `begin` nothing waits, so the first cycle takes in everything.
    """

    def __init__(self, seconds: float = inf) -> None:
        """Aim at cycles of *seconds* while changes wait; with infinity none ever waits."""
        self._seconds = seconds
        self._share = FIRST_SHARE
        self._is_open = seconds == inf
        self._has_begun = False
        self._is_first = False
        """Whether the present cycle is the first one, which renders everything, however few objects changed."""
        self._is_for_all = False
        self._taken: set[ResourceRef] = set()
        """The objects whose changes were admitted since this cycle began: all stores get the same answer for them."""
        self._returned: set[ResourceRef] = set()
        """The objects that the `begin` of this cycle returned."""
        self._counts: Counter[Queue] = Counter()
        """As how many objects those of each queue count. What exceeds the share of a cycle counts in the next ones."""
        self._total = 0
        """As how many objects those of this cycle count."""
        self._shown: set[ResourceRef] = set()
        """The objects whose changes this cycle renders, except those that were taken in after it had begun."""
        self._costs: dict[ResourceRef, float] = {}
        """CPU seconds that the last changes of costly objects took."""
        self._debts: dict[str, float] = {}
        """By namespace, CPU seconds that it owes."""
        self._charged = 0.0
        """CPU seconds of this cycle that a namespace owes."""
        self._cycle = 0
        self._last_cycles: dict[str, int] = {}
        """By namespace, the last cycle before this one that took in a change of it; for a new one, in the future."""
        self._waiting: dict[Queue, dict[ResourceRef, int]] = {}
        """As how many objects each one counts. The queues whose turn is next come first."""
        self._heavy: dict[ResourceRef, None] = {}
        self._turns: dict[str, int] = {}
        """By namespace, the number of its last turn to have a heavy object."""
        self._number = 0

    @property
    def seconds(self) -> float:
        """CPU time of a cycle to aim at."""
        return self._seconds

    @property
    def is_limited(self) -> bool:
        """Whether changes may have to wait now."""
        return self._has_begun and not self._is_open

    @property
    def waiting(self) -> Mapping[str, int]:
        """Number of waiting objects by namespace."""
        counts: Counter[str] = Counter()
        for (_, namespace), refs in self._waiting.items():
            counts[namespace] += len(refs)
        counts.update(ref.namespace for ref in self._heavy)
        return counts

    @property
    def is_waiting(self) -> bool:
        """Whether any object waits."""
        return self.is_due or bool(self._heavy)

    @property
    def is_due(self) -> bool:
        """Whether another `begin` would return an object."""
        return bool(self._waiting)

    def next_heavy(self) -> ResourceRef | None:
        """Return an object that `hold` was called for; its namespace has had its turn then.

        Namespaces take turns. Of each, the object that waits longest comes first.
        """
        found = min(self._heavy, key=lambda ref: self._turns.get(ref.namespace, 0), default=None)
        if found is not None:
            self._number += 1
            self._turns[found.namespace] = self._number
        return found

    def hold(self, ref: ResourceRef) -> None:
        """Let *ref* wait until `forget`: very many fragments depend on it."""
        self.forget(ref)
        self._heavy[ref] = None

    def holds_of_others(self, namespace: str) -> bool:
        """Whether an object of another namespace than *namespace* waits because of `hold`."""
        return any(ref.namespace != namespace for ref in self._heavy)

    def holds(self, ref: ResourceRef) -> bool:
        """Whether *ref* waits because of `hold`."""
        return ref in self._heavy

    def admits(self, ref: ResourceRef, *versions: Resource | None) -> bool:
        """Whether a change of *ref* between *versions* is taken in now; otherwise it waits until `begin` returns it.

        Stores that ask for the same object get the same answer until the next `begin`. If an object is deleted before
        any reader has seen it, its place among those that wait stays.
        """
        if not ref.namespace:
            if self.is_limited:
                self._taken.add(ref)
            return True
        if not self.is_limited:
            # Namespaces of the first cycle are not new.
            self._remember(ref.namespace, self._cycle)
            return True
        if ref in self._heavy:
            return False
        queue = ref.kind, ref.namespace
        if ref in self._taken:
            return True
        waiting, weight = self._waiting.get(queue), weight_of(*versions)
        has_room = self._counts[queue] < self._share and self._has_room(ref.namespace)
        if waiting is not None or ref.namespace in self._debts or not has_room:
            self._waiting.setdefault(queue, {})[ref] = weight
            return False
        self._count(ref, weight)
        self._taken.add(ref)
        return True

    def _has_room(self, namespace: str) -> bool:
        """Whether the total of the cycle leaves room for a change of *namespace*."""
        most = TOTAL * self._share
        if self._total < most:
            return True
        return self._total < 2 * most and self._cycle - self._last_cycle(namespace) >= QUIET

    def _last_cycle(self, namespace: str) -> float:
        return self._last_cycles.get(namespace, inf)

    def _count(self, ref: ResourceRef, weight: int) -> None:
        weight = max(weight, int(self._costs.get(ref, 0.0) / self._seconds * self._share))
        self._counts[ref.kind, ref.namespace] += weight
        # One large object leaves room for the changes of others.
        self._total += min(weight, self._share)

    def _doubt(self, ref: ResourceRef) -> None:
        """Halve the known cost of *ref*, which is rendered now: one version that costs little proves little."""
        if (cost := self._costs.pop(ref, 0.0) / 2) >= LEAST_COST:
            self._costs[ref] = cost

    def _remember(self, namespace: str, cycle: int) -> None:
        if not self._is_open and (namespace in self._last_cycles or len(self._last_cycles) < MOST_KNOWN):
            self._last_cycles[namespace] = cycle

    def forget(self, ref: ResourceRef) -> None:
        """Let *ref* wait no longer: it is taken in."""
        self._heavy.pop(ref, None)
        queue = ref.kind, ref.namespace
        waiting = self._waiting.get(queue)
        if waiting is not None and ref in waiting:
            del waiting[ref]
            if not waiting:
                del self._waiting[queue]

    def begin(self, *, is_for_others: bool = False, is_for_all: bool = False) -> tuple[ResourceRef, ...]:
        """Begin another cycle; return the objects that have waited and are taken in now: one share at most.

        The oldest changes of a queue come first. With *is_for_others* the cycle is for changes that have not waited,
        and none that has waited is taken in. With *is_for_all* everything is taken in, as in the first cycle.
        """
        for namespace in {ref.namespace for ref in self._taken | self._returned} - {""}:
            last = self._last_cycles.get(namespace, self._cycle + SETTLING)
            self._remember(namespace, max(last, self._cycle))
        for ref in self._taken:
            self._doubt(ref)
        self._shown = self._taken
        self._taken, self._returned = set(), set()
        # Without this, a large object that changes all the time would be in every cycle that other changes begin.
        rest = {queue: count - self._share for queue, count in self._counts.items()}
        self._counts = Counter({queue: count for queue, count in rest.items() if count > 0})
        self._total = 0
        self._cycle += 1
        self._is_first = not self._has_begun
        self._is_for_all = self._is_first or is_for_all
        if self._is_for_all:
            self._has_begun = True
            everything = tuple(chain.from_iterable(self._waiting.values()))
            self._waiting.clear()
            return everything
        if is_for_others:
            return ()
        ready = self._ready()
        # The share of a namespace is smaller if several wait, so that all of them together hold up others no longer.
        share = max(1, self._share // max(1, len(ready)))
        found: list[ResourceRef] = []
        for number, queue in enumerate(self._next_queues(ready)):
            # Few large objects may count as much as the share. The first queues of both kinds have a turn nevertheless.
            if number > 1 and self._total >= self._share:
                break
            before = self._total
            for ref, weight in list(islice(self._waiting[queue].items(), share)):
                self.forget(ref)
                self._count(ref, weight)
                self._doubt(ref)
                found.append(ref)
                if self._total - before >= share:
                    break
            if queue in self._waiting:
                self._waiting[queue] = self._waiting.pop(queue)
        self._returned.update(found)
        return tuple(found)

    def _ready(self) -> list[Queue]:
        """Return the waiting queues of namespaces that owe nothing; without any, those of the one that owes least."""
        ready = [queue for queue in self._waiting if queue[1] not in self._debts]
        if ready or not self._waiting:
            return ready
        least = min((namespace for _, namespace in self._waiting), key=self._debts.__getitem__)
        return [queue for queue in self._waiting if queue[1] == least]

    def _next_queues(self, ready: list[Queue]) -> list[Queue]:
        """Return those of *ready* that have a turn now, at most as many as a share has objects.

        One half are the first ones, so that none waits for ever. The other half are those of the namespaces whose last
        change is longest ago, so that very many new namespaces do not hold up those with a change now and then.
        """
        if len(ready) <= self._share:
            return ready
        first = ready[: self._share // 2]
        rest = islice(ready, len(first), None)
        others = nsmallest(self._share - len(first), rest, lambda one: self._last_cycle(one[1]))
        return [queue for pair in zip_longest(first, others) for queue in pair if queue is not None]

    def charge(self, spent: Mapping[str, float]) -> None:
        """Have namespaces owe the CPU seconds *spent* on costly fragments, by the namespace of their objects.

        A namespace owes those of its own objects if changes of it were taken in, or none of any object. Otherwise, if
        there are changes of one other namespace only, that one owes them. Objects without a namespace owe nothing.
        """
        if self._is_open or self._is_for_all:
            return
        shown: dict[str, list[ResourceRef]] = {}
        for ref in self._shown | self._returned | self._taken:
            shown.setdefault(ref.namespace, []).append(ref)
        for namespace, seconds in spent.items():
            owing = namespace
            if namespace not in shown and shown:
                owing = next(iter(shown)) if len(shown) == 1 else ""
            if not owing:
                continue
            self._debts[owing] = self._debts.get(owing, 0.0) + seconds
            self._charged += seconds
            refs = shown.get(owing, ())
            for ref in refs:
                cost = max(seconds / len(refs), self._costs.get(ref, 0.0))
                if cost >= LEAST_COST and (ref in self._costs or len(self._costs) < MOST_KNOWN):
                    self._costs[ref] = cost

    def note(self, seconds: float) -> None:
        """Take note that the cycle that just ended took *seconds*: adjust the shares, unless it was the first one."""
        if self._is_first:
            return
        paid, self._charged = max(seconds - self._charged, 0.0), 0.0
        self._debts = {namespace: debt - paid for namespace, debt in self._debts.items() if debt > paid}
        taken = self._total
        if seconds > self._seconds and taken > LEAST_SHARE:
            self._share = max(LEAST_SHARE, int(min(self._share, taken) * self._seconds / seconds))
        elif self._waiting and 2 * taken >= self._share and seconds < self._seconds / 2:
            self._share = min(MOST_SHARE, self._share * 2)

    def take_over(self, former: "Intake") -> None:
        """Let the objects wait that wait in *former*; the first `begin` takes them in."""
        self._cycle = former._cycle  # noqa: SLF001  the two are of one class
        self._costs = dict(former._costs)  # noqa: SLF001  the two are of one class
        self._debts = dict(former._debts)  # noqa: SLF001  the two are of one class
        self._last_cycles = dict(former._last_cycles)  # noqa: SLF001  the two are of one class
        self._waiting = {queue: dict(refs) for queue, refs in former._waiting.items()}  # noqa: SLF001  the two are of one class
        for ref in former._heavy:  # noqa: SLF001  the two are of one class
            self._waiting.setdefault((ref.kind, ref.namespace), {})[ref] = 1


def weight_of(*versions: Resource | None) -> int:
    """Return as how many objects a change between *versions* counts, by the size of the largest one."""
    return 1 + max(
        (_size_of(one) // UNIT + _entries_of(one) // ENTRIES for one in versions if one is not None), default=0
    )


def _entries_of(resource: Resource) -> int:
    """Return about how many entries of maps a route has for each listener: one for each host name and match."""
    # The content of an on-demand object may not have been fetched.
    spec = resource.get("spec") if type(resource) is dict else None
    hostnames, rules = (spec.get("hostnames"), spec.get("rules")) if isinstance(spec, dict) else (None, None)
    matches = [rule.get("matches") for rule in rules if isinstance(rule, dict)] if isinstance(rules, list) else ()
    count = sum(len(found) for found in matches if isinstance(found, list))
    return count * (len(hostnames) if isinstance(hostnames, list) else 1)


def _size_of(resource: Resource) -> int:
    """Return about how many bytes *resource* has as JSON, at any number of levels."""
    size = 0
    left: list[Any] = [resource]
    while left:
        value = left.pop()
        if isinstance(value, str):
            size += len(value)
        elif isinstance(value, dict):
            left += value.values()
        elif isinstance(value, list):
            left += value
        # Quotes, separators, and the name or the number.
        size += 8
    return size
