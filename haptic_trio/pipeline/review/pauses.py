"""CPU time of reviews, of each namespace and in all: a cycle waits for each review.

A namespace whose reviews take long has none for some time. If reviews of many
namespaces take long, the renders of all reviews are short for some time, which
is enough for usual objects.
"""

from collections.abc import Callable

from haptic_trio.pipeline.review.dry_run_object import LONGEST_RENDER, DryRunError
from haptic_trio.templating.values.limits import clock

FREE = 0.2
"""Seconds of CPU time of a review that lead to no pause."""
PAUSE = 10.0
"""Seconds of pause for each second beyond: reviews of a namespace take about a tenth of the pipeline's time."""
SHORT_RENDER = FREE
"""Seconds after which the render of a change is given up while the budget of all namespaces is spent."""
USUAL = 0.05
"""Seconds of CPU time of a review that do not count for the budget of all namespaces: most reviews take 0.01 s."""
BUDGET = 1.0
"""Seconds of CPU time that reviews of all namespaces have beyond `USUAL`, before their renders become short."""
REFILL = 0.1
"""Seconds of the budget that come back in a second."""


class ReviewPauses:
    """Namespaces whose objects are not reviewed for some time, and how long reviews may take; for any thread."""

    def __init__(self, *, now: Callable[[], float] = clock) -> None:
        self._now = now
        self._until: dict[str, float] = {}
        self._spent = 0.0
        self._spent_at = now()

    def check(self, namespace: str) -> None:
        """Raise `DryRunError` during a pause of *namespace*."""
        left = self._until.get(namespace, 0.0) - self._now()
        if left > 0:
            raise DryRunError(
                f"an earlier review of an object of its namespace took long, so there is none for {left:.1f} s"
            )

    def longest_render(self, namespace: str) -> float:
        """Return the seconds that the render of a review for *namespace* may take now."""
        return SHORT_RENDER if namespace and self._spent_now() >= BUDGET else LONGEST_RENDER

    def note(self, namespace: str, seconds: float) -> None:
        """Take note of a review for *namespace* that took *seconds* of CPU time; begin a pause if it took long.

        Objects without namespace belong to administrators.
        """
        if not namespace:
            return
        now = self._now()
        if seconds > USUAL:
            # No debt: after the last long review, renders are short for ten seconds at most.
            self._spent, self._spent_at = min(self._spent_now() + seconds - USUAL, 2 * BUDGET), now
        if seconds > FREE:
            self._until = {known: until for known, until in self._until.items() if until > now}
            self._until[namespace] = now + PAUSE * (seconds - FREE)

    def _spent_now(self) -> float:
        return max(0.0, self._spent - REFILL * (self._now() - self._spent_at))
