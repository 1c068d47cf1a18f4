"""Drift monitor: triggers a comparison of the endpoints when nothing was deployed for a while."""

import trio

from haptic_trio.channels import Change, EventBuffer, Latest
from haptic_trio.heartbeat import Heartbeat
from haptic_trio.messages import DeploymentCompleted, DriftSuspected


async def run_drift_monitor(
    completed: Latest[DeploymentCompleted],
    changes: trio.MemorySendChannel[Change],
    *,
    interval: float,
    events: EventBuffer,
    heartbeat: Heartbeat,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Send `DriftSuspected` whenever *interval* seconds pass without a completed deployment.

    Runs on every replica: on followers it keeps caches warm. Ends when the
    receiver of *changes* is closed. Takes ownership of *changes*.
    """
    seen = completed.version
    with changes:
        task_status.started()
        while True:
            heartbeat.expect_beat(interval)
            with trio.move_on_after(interval) as quiet:
                seen, _newest = await completed.wait_newer(seen)
            if not quiet.cancelled_caught:
                continue
            suspicion = DriftSuspected(idle=interval)
            events.record(suspicion)
            try:
                await changes.send(suspicion)
            except trio.BrokenResourceError:
                return
