"""Errors of a cycle that made no valid configuration."""

from collections.abc import Mapping

import trio

from haptic_trio.channels import EventBuffer
from haptic_trio.errors import HapticError, Problem
from haptic_trio.httpstore.content import Content
from haptic_trio.messages import Phases, Reason, ReconcileFailed, ValidationFailed
from haptic_trio.templating.values.subjects import FragmentKey


class RejectedError(HapticError):
    """Validation rejected the configuration; a retry helps only after an input has changed."""

    def __init__(
        self, phase: str, problems: tuple[Problem, ...], suspects: Mapping[FragmentKey, Problem] | None = None
    ) -> None:
        self.phase = phase
        """`render`, `parse` or `check`."""
        self.problems = problems
        self.suspects = suspects or {}
        """Fragments that are known to have caused the rejection, with the problem of each."""
        self.is_quarantined = False
        """Whether the output at fault is quarantined now, so that another cycle omits it."""
        self.contents: Mapping[str, Content] | None = None
        """Fetched contents of the configuration, by key; None if unknown."""
        self.phases = Phases()
        super().__init__(f"{phase}: " + "; ".join(str(problem) for problem in problems))


class CrashedError(RejectedError):
    """HAProxy crashed on the configuration without naming a line of a fragment."""


class UndecidedError(RejectedError):
    """`haproxy -c` gave no verdict: it took too long, or could not be run.

    No object is at fault, and a retry may succeed.
    """


class TimedOutError(UndecidedError):
    """`haproxy -c` timed out twice in succession for the same configuration."""

    cpu_seconds = 0.0
    """CPU time of the second check until it was ended, in seconds."""


def report_rejection(
    error: RejectedError, *, correlation: str, reason: Reason, started: float, events: EventBuffer
) -> ValidationFailed:
    """Record that the cycle *correlation* failed, and return the message to publish.

    *started* is the clock time at which the cycle began; *reason* is why it ran.
    """
    message = ValidationFailed(
        correlation=correlation,
        reason=reason,
        phase=error.phase,
        problems=error.problems,
        is_verdict=not isinstance(error, UndecidedError),
    )
    events.record(message)
    events.record(
        ReconcileFailed(
            correlation=correlation,
            phase=error.phase,
            seconds=trio.current_time() - started,
            phases=error.phases,
        )
    )
    return message
