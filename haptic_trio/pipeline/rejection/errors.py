"""Errors of a cycle that made no valid configuration."""

from collections.abc import Mapping

import trio

from haptic_trio.channels import Facts
from haptic_trio.errors import HapticError, Problem
from haptic_trio.httpstore.content import Content
from haptic_trio.messages import Phases, Reason, ReconcileFailed, ValidationFailed
from haptic_trio.templating.values.subjects import FragmentKey


class RejectedError(HapticError):
    """No valid configuration could be made; trying again helps only after something has changed."""

    def __init__(
        self, phase: str, problems: tuple[Problem, ...], suspects: Mapping[FragmentKey, Problem] | None = None
    ) -> None:
        self.phase = phase
        """`render`, `parse` or `check`."""
        self.problems = problems
        self.suspects = suspects or {}
        """The fragments that are known to have caused it, with the problem of each."""
        self.is_quarantined = False
        """What the suspects gave is in quarantine now: another cycle leaves it out."""
        self.contents: Mapping[str, Content] | None = None
        """What had been fetched for it, by key; None where that is not known."""
        self.phases = Phases()
        super().__init__(f"{phase}: " + "; ".join(str(problem) for problem in problems))


class CrashedError(RejectedError):
    """HAProxy crashes on the configuration, and has not named a line that leads to a fragment."""


class UndecidedError(RejectedError):
    """Phase 2 came to no verdict: it took too long, or could not be run.

    Nothing is to blame, and trying again helps.
    """


class TimedOutError(UndecidedError):
    """Phase 2 did not end in time, twice in succession for the same configuration."""

    cpu_seconds = 0.0
    """CPU time that the second check had taken when it was ended."""


def report_rejection(
    error: RejectedError, *, correlation: str, reason: Reason, started: float, facts: Facts
) -> ValidationFailed:
    """Tell *facts* that the cycle *correlation*, begun at the clock time *started*, has failed; return what to publish.

    *reason* is why the cycle ran.
    """
    message = ValidationFailed(
        correlation=correlation,
        reason=reason,
        phase=error.phase,
        problems=error.problems,
        is_verdict=not isinstance(error, UndecidedError),
    )
    facts.tell(message)
    facts.tell(
        ReconcileFailed(
            correlation=correlation,
            phase=error.phase,
            seconds=trio.current_time() - started,
            phases=error.phases,
        )
    )
    return message
