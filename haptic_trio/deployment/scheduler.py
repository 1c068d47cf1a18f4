"""Deployment scheduler: feeds a `Schedule` and sends the deployments that are due."""

from math import inf

import trio

from haptic_trio.channels import EventBuffer, Latest, News
from haptic_trio.deployment.schedule import Input, Schedule
from haptic_trio.heartbeat import Pulse
from haptic_trio.messages import (
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DeploymentScheduled,
    EndpointsDiscovered,
    ValidationFailed,
)


async def run_scheduler(
    prepared: Latest[ConfigPrepared],
    validated: Latest[ConfigValidated],
    rejected: Latest[ValidationFailed],
    endpoints: Latest[EndpointsDiscovered],
    completed: Latest[DeploymentCompleted],
    deployments: trio.MemorySendChannel[DeploymentScheduled],
    *,
    schedule: Schedule,
    events: EventBuffer,
    pulse: Pulse,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Schedule deployments until the receiving end of *deployments*, the deployer, is closed.

    A scheduler that starts late, with a new leadership term, deploys the
    present values at once. *prepared* stays empty without the fast lane. Takes
    ownership of *deployments*.
    """
    with deployments:
        # Endpoints first: the values at the beginning of a term lead to one deployment, not two.
        states = (endpoints, validated, prepared)
        for cell in states:
            if cell.value is not None:
                schedule.take(cell.value, trio.current_time())
        # Rejections and completions from before this term do not count.
        news = News((*states, rejected, completed))
        task_status.started()
        while True:
            due = schedule.due()
            messages: list[Input] = []
            with trio.move_on_at(inf if due is None else max(due, trio.current_time())):
                messages = await news.wait()
            with pulse.busy():
                for message in messages:
                    schedule.take(message, trio.current_time())
                if messages:
                    continue
                deployment = schedule.start(trio.current_time())
                events.record(deployment)
                try:
                    await deployments.send(deployment)
                except trio.BrokenResourceError:
                    # The deployer has ended.
                    return
