"""Setbacks: increasing delays for new versions of objects that HAProxy rejects, or fails on, repeatedly.

The search for an object that crashes HAProxy or makes `haproxy -c` slow
delays structural changes of all objects. An owner who changes such an object
faster than a search takes, or recreates it under another name, would delay
them indefinitely. So does an owner of very many objects that only
`haproxy -c` rejects: it may name one in each check. Findings are therefore
counted per object, and per namespace. From the second finding of an object,
and the third of a namespace, new versions wait; rejections with a named line,
which cost one check and no search, count from the fourth of an object and the
eighth of a namespace. Meanwhile the last good version is served.
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
"""From this finding on, new versions of the object, or of all objects of the namespace, wait."""
OBJECT_REJECTIONS: Final = 4
NAMESPACE_REJECTIONS: Final = 8
"""The same for checks that HAProxy ends by naming a line of the object."""
FIRST_HOLD: Final = 60.0
LONGEST_HOLD: Final = 960.0
"""Seconds until the next attempt; each finding doubles the time, up to `LONGEST_HOLD`."""
GOOD_PERIOD: Final = 3600.0
"""Seconds without a finding after which findings are forgotten, counted from the end of the last hold or finding."""

_Place = tuple[str, ...]
"""Kind, namespace and name of an object, or only a namespace."""


class _Setback(msgspec.Struct, frozen=True):
    findings: int
    found: float
    """Time of the last finding."""
    until: float
    """End of the hold; equal to `found` if there is none."""
    problem: Problem


class Setbacks:
    """Counts findings and decides what waits. Has no clock: times are seconds of any monotonic clock."""

    def __init__(self) -> None:
        self._setbacks: dict[_Place, _Setback] = {}
        self.changes = Latest[None]()
        """Gets a value whenever a hold begins."""

    def record(self, findings: Mapping[ResourceRef, Problem], now: float, *, is_named: bool = False) -> None:
        """Record the *findings* of one search, or of one check if it names them (*is_named*), each with its problem.

        A namespace counts one finding per search or check, and only if an object
        is found for the first time: an object with earlier findings waits by itself.
        """
        of_object = OBJECT_REJECTIONS if is_named else OBJECT_FINDINGS
        of_namespace = NAMESPACE_REJECTIONS if is_named else NAMESPACE_FINDINGS
        self._setbacks = {place: one for place, one in self._setbacks.items() if now < one.until + GOOD_PERIOD}
        fresh = [ref for ref in findings if (ref.kind, ref.namespace, ref.name) not in self._setbacks]
        for ref, problem in findings.items():
            self._count((ref.kind, ref.namespace, ref.name), problem, of_object, now)
        for namespace, ref in {ref.namespace: ref for ref in fresh if ref.namespace}.items():
            self._count((namespace,), findings[ref], of_namespace, now)

    def _count(self, place: _Place, problem: Problem, free: int, now: float) -> None:
        former = self._setbacks.get(place)
        findings = former.findings + 1 if former is not None else 1
        until = now
        if findings >= free:
            hold = min(FIRST_HOLD * 2.0 ** min(findings - free, 30), LONGEST_HOLD)
            until, problem = now + hold, _hold_problem(place, problem, findings, hold)
        self._setbacks[place] = _Setback(findings, now, until, problem)
        if until > now:
            self.changes.put(None)

    def released(self) -> "Setbacks":
        """Return these setbacks without holds, for another configuration; earlier findings still count.

        May be called from another thread.
        """
        released, known = Setbacks(), dict(self._setbacks)
        released._setbacks = {place: msgspec.structs.replace(one, until=one.found) for place, one in known.items()}
        return released

    def paused(self, now: float) -> Paused:
        """Return the objects and namespaces whose new versions wait *now*."""
        paused = {place: one.problem for place, one in self._setbacks.items() if one.until > now}
        return Paused(
            objects={place: problem for place, problem in paused.items() if len(place) > 1},
            namespaces={place[0]: problem for place, problem in paused.items() if len(place) == 1},
        )

    def next_end(self, after: float) -> float | None:
        """Return when the first hold that lasts longer than *after* ends."""
        return min((one.until for one in self._setbacks.values() if one.until > after), default=None)


def _hold_problem(place: _Place, problem: Problem, findings: int, hold: float) -> Problem:
    # Formatted once, so that the message stays the same until the hold ends.
    until = datetime.now(UTC) + timedelta(seconds=hold)
    whose = f"objects of the namespace {place[0]}" if len(place) == 1 else "it"
    return Problem(
        message=f"new versions are held back until {until:%Y-%m-%dT%H:%M:%SZ}: HAProxy has rejected {whose}"
        f" {findings} times, most recently because: {problem.message}",
        hint="correct the object now: the next attempt follows automatically at that time, and another failure doubles"
        " the delay",
    )


async def run_attempts(
    setbacks: Setbacks,
    changes: trio.MemorySendChannel[Change],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Send `AttemptDue` whenever a hold ends, until the receiver is closed. Takes ownership of *changes*."""
    seen, reported = setbacks.changes.version, trio.current_time()
    with changes:
        task_status.started()
        while True:
            due = setbacks.next_end(reported)
            if due is None:
                seen, _ = await setbacks.changes.wait_newer(seen)
                continue
            with trio.move_on_at(due) as waiting:
                seen, _ = await setbacks.changes.wait_newer(seen)
            if not waiting.cancelled_caught:
                continue
            reported = due
            try:
                await changes.send(AttemptDue())
            except trio.BrokenResourceError:
                return
