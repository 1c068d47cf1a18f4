"""Setbacks: objects on which HAProxy has failed again and again wait for their next attempt, longer each time.

A search for an object that HAProxy crashes on, or that makes its check slow,
holds up the structural changes of all. An owner who changes such an object
faster than a search takes, or recreates it under another name, would hold
them up for ever. So findings are counted by object, and by namespace where
it has another such object. From the second finding of an object, and the
third of a namespace, on, new versions wait; what was good before is served
meanwhile.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

import msgspec
import trio

from haptic_trio.channels import AttemptDue, Change, Latest
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import ResourceRef
from haptic_trio.templating.incremental.outputs import Paused

OBJECT_FINDINGS: Final = 2
NAMESPACE_FINDINGS: Final = 3
"""From this finding on, an object or all of a namespace is held back."""
FIRST_HOLD: Final = 60.0
LONGEST_HOLD: Final = 960.0
"""Seconds until the next attempt: doubled with each finding up to the longest."""
GOOD_PERIOD: Final = 3600.0
"""Seconds after a hold, or after a finding without one, without another finding until all is forgotten."""

_Place = tuple[str, ...]
"""Kind, namespace and name of an object; or a namespace alone."""


class _Setback(msgspec.Struct, frozen=True):
    findings: int
    found: float
    """When it was found last."""
    until: float
    """Nothing new is tried before; that of the last finding where it is not held back."""
    problem: Problem


class Setbacks:
    """The decision; no clock of its own. Times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._setbacks: dict[_Place, _Setback] = {}
        self.changes = Latest[None]()
        """Put to whenever a hold begins."""

    def record(self, findings: Mapping[ResourceRef, Problem], now: float) -> None:
        """Note the *findings* of one search, each with the problem.

        For a namespace they count as one, and only with an object that has
        not been found before: one that has waits by itself.
        """
        self._setbacks = {place: one for place, one in self._setbacks.items() if now < one.until + GOOD_PERIOD}
        fresh = [ref for ref in findings if (ref.kind, ref.namespace, ref.name) not in self._setbacks]
        for ref, problem in findings.items():
            self._count((ref.kind, ref.namespace, ref.name), problem, OBJECT_FINDINGS, now)
        for namespace, ref in {ref.namespace: ref for ref in fresh if ref.namespace}.items():
            self._count((namespace,), findings[ref], NAMESPACE_FINDINGS, now)

    def _count(self, place: _Place, problem: Problem, free: int, now: float) -> None:
        former = self._setbacks.get(place)
        findings = former.findings + 1 if former is not None else 1
        until = now
        if findings >= free:
            hold = min(FIRST_HOLD * 2.0 ** min(findings - free, 30), LONGEST_HOLD)
            until, problem = now + hold, _held_back(place, problem, findings, hold)
        self._setbacks[place] = _Setback(findings, now, until, problem)
        if until > now:
            self.changes.put(None)

    def release(self) -> None:
        """Hold nothing back any more, as for another configuration; what has been found still counts."""
        self._setbacks = {place: msgspec.structs.replace(one, until=one.found) for place, one in self._setbacks.items()}

    def paused(self, now: float) -> Paused:
        """Return what is held back *now*."""
        held = {place: one.problem for place, one in self._setbacks.items() if one.until > now}
        return Paused(
            objects={place: problem for place, problem in held.items() if len(place) > 1},
            namespaces={place[0]: problem for place, problem in held.items() if len(place) == 1},
        )

    def next_end(self, after: float) -> float | None:
        """Return when the first hold that lasts longer than *after* ends."""
        return min((one.until for one in self._setbacks.values() if one.until > after), default=None)


def _held_back(place: _Place, problem: Problem, findings: int, hold: float) -> Problem:
    # Once, so that the message stays the same for as long as the hold lasts.
    until = datetime.now(UTC) + timedelta(seconds=hold)
    whose = f"objects of the namespace {place[0]}" if len(place) == 1 else "it"
    return Problem(
        message=f"new versions are held back until {until:%Y-%m-%dT%H:%M:%SZ}: HAProxy has failed on {whose}"
        f" {findings} times, the last time because: {problem.message}",
        hint="mend the object now: the next attempt is made at that time by itself, and a further failure doubles the"
        " time of the one after it",
    )


async def run_attempts(
    setbacks: Setbacks,
    changes: trio.MemorySendChannel[Change],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Send `AttemptDue` whenever a hold ends, until the reader of *changes* is gone. Takes ownership of *changes*."""
    seen, announced = setbacks.changes.version, trio.current_time()
    with changes:
        task_status.started()
        while True:
            due = setbacks.next_end(announced)
            if due is None:
                seen, _ = await setbacks.changes.wait_newer(seen)
                continue
            with trio.move_on_at(due) as waiting:
                seen, _ = await setbacks.changes.wait_newer(seen)
            if not waiting.cancelled_caught:
                continue
            announced = due
            try:
                await changes.send(AttemptDue())
            except trio.BrokenResourceError:
                return
