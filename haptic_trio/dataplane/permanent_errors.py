"""Differences that a reload does not repair, so that they do not cause reloads again."""

from collections.abc import Sequence

from haptic_trio.haproxy.runtime.differences import Finding
from haptic_trio.logs import Logger


class FutileFindings:
    """What only a load could put right and none has: told in the log once, and no reason for another load."""

    def __init__(self, log: Logger) -> None:
        """*log* takes the warnings."""
        self._log = log
        self._looked_at = 0
        self._reported: frozenset[str] = frozenset()
        self._futile: frozenset[str] = frozenset()

    def weed_out(self, findings: Sequence[Finding], worker: int) -> list[Finding]:
        """Return *findings*, of a look at the process with pid *worker*, without those that are futile."""
        lasting = frozenset(finding.what for finding in findings if finding.steps is None)
        again = lasting & self._reported if worker != self._looked_at else frozenset()
        if again:
            self._log.warning("a reload has not put this right, so it is left as it is", what=sorted(again))
        self._futile = (self._futile & lasting) | again
        self._reported, self._looked_at = lasting - self._futile, worker
        return [finding for finding in findings if finding.what not in self._futile]
