"""`haproxy -c` in parallel: checks the newest configuration while its runtime changes are being deployed.

A full check takes as long as HAProxy needs to read the whole configuration.
So one check runs at a time, at idle priority for data, and not more often than
the interval says; the next check covers every configuration prepared
meanwhile. A check is not delayed when endpoints hold back a change that
reloads, when an endpoint has rejected a change, and as long as no
configuration has been valid yet.
"""

from collections.abc import Awaitable, Callable
from math import inf

import msgspec
import trio

from haptic_trio.channels import CycleEvent, EventBuffer, Latest, pass_on
from haptic_trio.dataplane.planner import AddData, KeepServers, OnlyData
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import (
    ConfigValidated,
    DeploymentCompleted,
    ValidationFailed,
)
from haptic_trio.pipeline.cycle import Pipeline, Prepared
from haptic_trio.pipeline.rejection.errors import RejectedError, report_rejection


async def run_checker(
    candidates: Latest[Prepared],
    cycles: trio.MemorySendChannel[CycleEvent],
    validated: Latest[ConfigValidated],
    rejected: Latest[ValidationFailed],
    completed: Latest[DeploymentCompleted],
    *,
    pipeline: Pipeline,
    interval: float,
    only_data: OnlyData,
    add_data: AddData,
    keep_servers: KeepServers,
    last_valid: Generation | None = None,
    retry: Callable[[], Awaitable[None]],
    events: EventBuffer,
    heartbeat: Heartbeat,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Check the newest of *candidates*, one after another, until cancelled.

    *interval* is the minimum time in seconds between the starts of two checks;
    *last_valid* was checked before.
    A rejection that leads to fragments quarantines these and calls *retry*,
    which reconciles again; any other one goes to *rejected*. If the rejection
    is due to structure, the data that was prepared with it stays: the last
    valid structure with this data is checked and replaces it. If the data
    itself is rejected, it is checked without the files that the rejection
    names, and replaces it; or else the last valid configuration with the
    present servers, or else that without the servers that are gone;
    if neither passes, the last valid one replaces it. Takes ownership of
    *cycles*.
    """
    last_start, seen = -inf, 0
    with cycles:
        task_status.started()
        while True:
            await candidates.wait_newer(seen)
            await _wait_turn(candidates, completed, last_valid, last_start + interval, only_data)
            seen, candidate = await candidates.wait_newer(seen)
            generation = candidate.generation
            # Structure waits for its check, which might never end at idle priority on a busy machine.
            is_only_data = last_valid is not None and await only_data(last_valid, generation)
            urgent = trio.current_time() < last_start + interval or not is_only_data
            with heartbeat.busy() as progress:
                if last_valid is None or last_valid.id != generation.id:
                    last_start = trio.current_time()
                try:
                    valid = await pipeline.check(candidate, idle=not urgent, progress=progress)
                except RejectedError as exc:
                    if exc.is_quarantined:
                        await retry()
                        continue
                    message = candidate.message
                    rejection = report_rejection(
                        exc,
                        correlation=message.correlation,
                        reason=message.reason,
                        started=message.started,
                        events=events,
                    )
                    await pass_on(cycles, rejection)
                    if last_valid is not None and rejection.is_verdict:
                        part = await add_data(last_valid, generation)
                        kept = await _check_part(pipeline, candidate, last_valid, part)
                        if kept is None and part.id != last_valid.id:
                            # The data itself is rejected: what the check names is undone, else all but the servers.
                            for rest in await keep_servers(last_valid, generation, part, str(exc)):
                                if kept is None and rest.id != part.id:
                                    kept = await _check_part(pipeline, candidate, last_valid, rest)
                        if kept is not None:
                            last_valid = kept.generation
                            validated.put(kept)
                        rejection = msgspec.structs.replace(rejection, keeps_data=part.id == last_valid.id)
                    rejected.put(rejection)
                    continue
                last_valid = generation
                events.record(valid)
                # The ledger first: it has to know before a deployment completes.
                await pass_on(cycles, valid)
                validated.put(valid)


async def _check_part(
    pipeline: Pipeline, rejected: Prepared, valid: Generation, part: Generation
) -> ConfigValidated | None:
    """Return *part*: *valid* with the data of *rejected*; None if it is one of the two, or rejected as well."""
    if part.id in {valid.id, rejected.generation.id}:
        return None
    try:
        return await pipeline.check_part(rejected, part)
    except RejectedError:
        return None


async def _wait_turn(
    candidates: Latest[Prepared],
    completed: Latest[DeploymentCompleted],
    last_valid: Generation | None,
    due: float,
    only_data: OnlyData,
) -> None:
    """Wait until *due*, or until an endpoint waits for the check."""
    if last_valid is None:
        return
    with trio.move_on_at(due):
        seen = 0
        while True:
            seen, results = await completed.wait_newer(seen)
            newest = candidates.value
            assert newest is not None
            if results.correlation == newest.message.correlation and (
                results.failed or (results.state.held and not await only_data(last_valid, newest.generation))
            ):
                return
