"""Propagation time of a change: from the watch event to the last instance.

Cycles are numbered as they are triggered, and each takes in all changes of
those before it. So an instance that runs all of a cycle's configuration runs
every earlier change, too, and a change runs everywhere once the instance that
is furthest behind has reached its cycle.
"""

from collections import OrderedDict
from collections.abc import Collection

MOST_CYCLES = 1000
"""Maximum number of remembered cycles; older ones are dropped without a measurement."""


class Propagation:
    """Tracks changes until every instance runs them. No clock: times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._number = 0
        self._numbers: OrderedDict[str, int] = OrderedDict()
        # By number of the cycle, in order: time of its first change.
        self._waiting: dict[int, float] = {}
        self._reached: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        """Number of triggers with changes that some instance does not run yet."""
        return len(self._waiting)

    def oldest(self, now: float) -> float:
        """Return the age of the oldest pending change in seconds, or 0."""
        return now - min(self._waiting.values(), default=now)

    def trigger(self, correlation: str, changes: int, seen: float) -> None:
        """Number the cycle *correlation*; *seen* is the time of its first change. Not measured without *changes*."""
        self._number += 1
        self._numbers[correlation] = self._number
        if len(self._numbers) > MOST_CYCLES:
            _, oldest = self._numbers.popitem(last=False)
            self._waiting.pop(oldest, None)
        if changes:
            self._waiting[self._number] = seen

    def fail(self, correlation: str) -> None:
        """Drop *correlation*, which gave no configuration. Changes of other objects in it count with the next cycle."""
        self._waiting.pop(self._numbers.get(correlation, 0), None)

    def deploy(self, instance: str, correlation: str, now: float) -> list[float]:
        """Record that *instance* runs *correlation*; return the durations of changes that now run everywhere."""
        number = self._numbers.get(correlation)
        if number is None:
            return []
        self._reached[instance] = max(number, self._reached.get(instance, 0))
        return self._take_arrived(now)

    def keep(self, instances: Collection[str], now: float) -> list[float]:
        """Keep only *instances*; returns durations as `deploy`. Instances without a configuration are ignored."""
        gone = self._reached.keys() - set(instances)
        for name in gone:
            del self._reached[name]
        return self._take_arrived(now) if gone else []

    def clear(self) -> None:
        """Drop all state: a new iteration numbers from the start, or another replica deploys."""
        self._numbers.clear()
        self._waiting.clear()
        self._reached.clear()

    def _take_arrived(self, now: float) -> list[float]:
        if not self._reached:
            return []
        everywhere = min(self._reached.values())
        arrived = [number for number in self._waiting if number <= everywhere]
        return [now - self._waiting.pop(number) for number in arrived]
