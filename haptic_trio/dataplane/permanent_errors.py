"""Differences that a reload does not repair, so that they do not cause reloads again."""

from collections.abc import Sequence

from haptic_trio.haproxy.runtime.differences import Finding
from haptic_trio.logs import Logger


class PermanentFindings:
    """Differences that a reload did not repair: logged once, and no reason for another reload."""

    def __init__(self, log: Logger) -> None:
        """Warnings go to *log*."""
        self._log = log
        self._observed_worker = 0
        self._reported: frozenset[str] = frozenset()
        self._permanent: frozenset[str] = frozenset()

    def without_permanent(self, findings: Sequence[Finding], worker: int) -> list[Finding]:
        """Return *findings* about the process with pid *worker* without those that a reload did not repair."""
        lasting = frozenset(finding.what for finding in findings if finding.steps is None)
        again = lasting & self._reported if worker != self._observed_worker else frozenset()
        if again:
            self._log.warning("difference remains after a reload and is ignored", what=sorted(again))
        self._permanent = (self._permanent & lasting) | again
        self._reported, self._observed_worker = lasting - self._permanent, worker
        return [finding for finding in findings if finding.what not in self._permanent]
