"""Presence of a followed endpoint: whether it answers, when its source removes it, and which problem is reported.

A follower observes one agent or one Data Plane API. The source of its address
decides what a loss means: a fixed list keeps the endpoint, pods remove it.
"""

from collections.abc import Callable, Iterable
from typing import Final, TypeAlias

import trio

from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.errors import Problem

SILENCE_REPORTED: Final = 5.0
"""Seconds without an answer after which a problem is reported: a restart is not a problem."""
LOST_AFTER: Final = 30.0
"""Seconds without an answer after which the endpoint is lost."""

Publish: TypeAlias = Callable[[Endpoint | None], None]
"""Called with a new endpoint object if its HAProxy may run something else than was deployed, with None if it is lost.

The new object makes the deployer observe and deploy to the endpoint at once, outside of `minDeploymentInterval`.
"""
Report: TypeAlias = Callable[[str, tuple[Problem, ...]], None]
"""Called with a source and its problems when these have changed; without problems when all are solved."""


class Presence:
    """Published endpoint and reported problem of one follower; *source* names the endpoint in problems."""

    def __init__(self, source: str, publish: Publish, report: Report) -> None:
        self.publish = publish
        self._source = source
        self._report = report
        self._problems: tuple[Problem, ...] = ()
        self._rival = ""
        self._answers = False
        self._is_silence_reported = False
        self._last_answer = trio.current_time()

    def answered(self) -> None:
        """Record an answer; it solves a reported silence."""
        self._last_answer = trio.current_time()
        self._answers = True
        if self._is_silence_reported:
            self.clear_problem()

    def failed(self, reason: str) -> bool:
        """Record that there was no answer; return whether there was one the time before.

        Reports the silence after SILENCE_REPORTED seconds, and publishes the loss after LOST_AFTER.
        """
        silent = trio.current_time() - self._last_answer
        if silent >= SILENCE_REPORTED:
            self._is_silence_reported = True
            self.report_problem(f"does not answer: {reason}")
        if silent >= LOST_AFTER:
            self.publish(None)
        answered, self._answers = self._answers, False
        return answered

    def report_problem(self, message: str, hint: str = "") -> None:
        """Report *message* unless it was the last report."""
        problems = (Problem(message=message, hint=hint),)
        if problems != self._problems:
            self._problems = problems
            self._report(self._source, problems)

    def report_rival(self, rival: str) -> None:
        """Report that the controller *rival* deploys to the endpoint as well; empty: no other one does."""
        if rival != self._rival:
            self._rival = rival
            hint = "end one of both, or give them different agents: the last deployment counts"
            message = f"another controller, {rival}, deploys to it in turns with this one"
            problems = (Problem(message=message, hint=hint),) if rival else ()
            self._report(f"controllers of {self._source}", problems)

    def clear_problem(self) -> None:
        """Report that the last problem is solved, if there is one."""
        self._is_silence_reported = False
        if self._problems:
            self._problems = ()
            self._report(self._source, ())


class Renewal:
    """Requests to probe one endpoint again; requests before the next probe count as one."""

    def __init__(self) -> None:
        self._requested = trio.Event()

    def request(self) -> None:
        """Ask for a probe as soon as possible."""
        self._requested.set()

    async def wait(self) -> None:
        """Return once a probe was requested since the last return."""
        await self._requested.wait()
        self._requested = trio.Event()


class FixedEndpoints:
    """Endpoints of a fixed list: present from the start and never removed, whether they answer or not."""

    def __init__(self, endpoints: Iterable[Endpoint], publish: Callable[[tuple[Endpoint, ...]], None]) -> None:
        """*publish* is called with all endpoints whenever one was renewed."""
        self._endpoints = {endpoint.name: endpoint for endpoint in endpoints}
        self._publish = publish

    @property
    def present(self) -> tuple[Endpoint, ...]:
        """All endpoints, in the order of the list."""
        return tuple(self._endpoints.values())

    def renew(self, endpoint: Endpoint | None) -> None:
        """Replace the endpoint of the same name by *endpoint*; ignore a loss (None)."""
        if endpoint is not None:
            self._endpoints[endpoint.name] = endpoint
            self._publish(self.present)
