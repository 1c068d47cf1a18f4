"""Propagation time of a change: from the watch event to the last instance.

Cycles are numbered as they are triggered, and each takes in all changes of
those before it. So an instance that runs all of a cycle's configuration runs
every earlier change, too, and a change runs everywhere once the instance that
is furthest behind has reached its cycle.
"""

from collections import OrderedDict
from collections.abc import Collection

MOST_CYCLES = 1000
"""Cycles that are remembered; what has not run everywhere by then is given up."""


class Propagation:
    """The decision; no clock of its own. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._number = 0
        self._numbers: OrderedDict[str, int] = OrderedDict()
        # By number of the cycle: when the first of its changes was seen. In order.
        self._waiting: dict[int, float] = {}
        self._reached: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        """Triggers whose changes some instance does not run yet."""
        return len(self._waiting)

    def oldest(self, now: float) -> float:
        """Return how long the oldest of these waits, in seconds; 0 where there is none."""
        return now - min(self._waiting.values(), default=now)

    def trigger(self, correlation: str, changes: int, seen: float) -> None:
        """Number the cycle *correlation*, whose first change was *seen* then; without *changes* nothing is measured."""
        self._number += 1
        self._numbers[correlation] = self._number
        if len(self._numbers) > MOST_CYCLES:
            _, oldest = self._numbers.popitem(last=False)
            self._waiting.pop(oldest, None)
        if changes:
            self._waiting[self._number] = seen

    def fail(self, correlation: str) -> None:
        """Leave out what *correlation* took in: it gave no configuration. Others' changes among it count later."""
        self._waiting.pop(self._numbers.get(correlation, 0), None)

    def deploy(self, instance: str, correlation: str, now: float) -> list[float]:
        """Note that *instance* runs all of *correlation*; return how long each change took that now runs everywhere."""
        number = self._numbers.get(correlation)
        if number is None:
            return []
        self._reached[instance] = max(number, self._reached.get(instance, 0))
        return self._take_arrived(now)

    def keep(self, instances: Collection[str], now: float) -> list[float]:
        """Forget all but *instances*; return as `deploy` does. One without any configuration yet holds up nothing."""
        gone = self._reached.keys() - set(instances)
        for name in gone:
            del self._reached[name]
        return self._take_arrived(now) if gone else []

    def clear(self) -> None:
        """Forget everything: another iteration numbers anew, or another replica deploys."""
        self._numbers.clear()
        self._waiting.clear()
        self._reached.clear()

    def _take_arrived(self, now: float) -> list[float]:
        if not self._reached:
            return []
        everywhere = min(self._reached.values())
        arrived = [number for number in self._waiting if number <= everywhere]
        return [now - self._waiting.pop(number) for number in arrived]
