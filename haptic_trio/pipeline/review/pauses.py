"""Pauses between reviews for namespaces whose reviews take much CPU time: a cycle waits for each review."""

from collections.abc import Callable

from haptic_trio.pipeline.review.dry_run_object import DryRunError
from haptic_trio.templating.values.limits import clock

FREE = 0.2
"""Seconds of CPU time of a review that lead to no pause."""
PAUSE = 10.0
"""Seconds of pause for each second beyond: reviews of a namespace take about a tenth of the pipeline's time."""


class ReviewPauses:
    """Namespaces whose objects are not reviewed for some time; for any thread."""

    def __init__(self, *, now: Callable[[], float] = clock) -> None:
        self._now = now
        self._until: dict[str, float] = {}

    def check(self, namespace: str) -> None:
        """Raise `DryRunError` during a pause of *namespace*."""
        left = self._until.get(namespace, 0.0) - self._now()
        if left > 0:
            raise DryRunError(
                f"an earlier review of an object of its namespace took long, so there is none for {left:.1f} s"
            )

    def note(self, namespace: str, seconds: float) -> None:
        """Begin a pause of *namespace* if a review of one of its objects took long: *seconds* of CPU time.

        Objects without namespace belong to administrators.
        """
        if namespace and seconds > FREE:
            now = self._now()
            self._until = {known: until for known, until in self._until.items() if until > now}
            self._until[namespace] = now + PAUSE * (seconds - FREE)
