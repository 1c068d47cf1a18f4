"""`haproxy -c` in the background: checks the newest configuration while its data is already being deployed.

A check of everything takes as long as HAProxy needs to read everything, so
there is one at a time, of data at idle priority, and not more often than the
interval says; what is prepared meanwhile is covered by the next. A check
that somebody waits for is not put off: when endpoints hold back a change
that reloads, when one of them has refused something, and as long as nothing
has been valid yet.
"""

from collections.abc import Awaitable, Callable
from math import inf

import msgspec
import trio

from haptic_trio.channels import CycleEvent, Facts, Latest
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Pulse
from haptic_trio.messages import (
    ConfigValidated,
    DeploymentCompleted,
    Reason,
    ValidationFailed,
)
from haptic_trio.pipeline.cycle import Pipeline, Prepared
from haptic_trio.pipeline.rejection.errors import RefusedError, tell_refusal

OnlyData = Callable[[Generation, Generation], bool]
"""Whether the second generation changes nothing of the first one but data."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A prepared configuration and the cycle that made it."""

    correlation: str
    reason: Reason
    prepared: Prepared
    started: float


async def run_checker(
    candidates: Latest[Candidate],
    cycles: trio.MemorySendChannel[CycleEvent],
    validated: Latest[ConfigValidated],
    refused: Latest[ValidationFailed],
    completed: Latest[DeploymentCompleted],
    *,
    pipeline: Pipeline,
    interval: float,
    only_data: OnlyData,
    retry: Callable[[], Awaitable[None]],
    facts: Facts,
    pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Check the newest of *candidates*, one after another, until cancelled.

    *interval* is the least time in seconds between the starts of two checks.
    A refusal that leads to fragments puts these into quarantine and calls
    *retry*, which reconciles again; any other goes to *refused*. Takes
    ownership of *cycles*.
    """
    last_start, last_valid, seen = -inf, None, 0
    with cycles:
        task_status.started()
        while True:
            await candidates.wait_newer(seen)
            await _wait_turn(candidates, completed, last_valid, last_start + interval, only_data)
            seen, candidate = await candidates.wait_newer(seen)
            generation = candidate.prepared.generation
            # Structure waits for its check: on a machine without a processor to spare an idle one might never end.
            is_beside = last_valid is not None and only_data(last_valid, generation)
            urgent = trio.current_time() < last_start + interval or not is_beside
            with pulse.busy() as progress:
                if last_valid is None or last_valid.id != generation.id:
                    last_start = trio.current_time()
                try:
                    valid = await pipeline.check(candidate.prepared, idle=not urgent, progress=progress)
                except RefusedError as exc:
                    if exc.blocked:
                        await retry()
                        continue
                    refusal = tell_refusal(
                        exc,
                        correlation=candidate.correlation,
                        reason=candidate.reason,
                        started=candidate.started,
                        facts=facts,
                    )
                    await cycles.send(refusal)
                    refused.put(refusal)
                    continue
                last_valid = generation
                message = ConfigValidated(
                    correlation=candidate.correlation,
                    reason=candidate.reason,
                    generation=generation,
                    phases=valid.phases,
                    warnings=valid.warnings,
                    started=candidate.started,
                )
                facts.tell(message)
                # The ledger first: it has to know before a deployment completes.
                await cycles.send(message)
                validated.put(message)


async def _wait_turn(
    candidates: Latest[Candidate],
    completed: Latest[DeploymentCompleted],
    last_valid: Generation | None,
    due: float,
    only_data: OnlyData,
) -> None:
    """Wait until *due*, or until somebody waits for the check."""
    if last_valid is None:
        return
    with trio.move_on_at(due):
        seen = 0
        while True:
            seen, news = await completed.wait_newer(seen)
            newest = candidates.value
            assert newest is not None
            if news.correlation == newest.correlation and (
                news.failed or (news.standing.held and not only_data(last_valid, newest.prepared.generation))
            ):
                return
