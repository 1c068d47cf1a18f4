"""Deployment scheduler: feeds a `Schedule` and sends the deployments that are due."""

from math import inf

import trio

from haptic_trio.channels import AnyChange, EventBuffer, Latest, pass_on
from haptic_trio.dataplane.planner import AddData
from haptic_trio.deployment.schedule import Compared, Input, Schedule
from haptic_trio.haproxy.model import Generation
from haptic_trio.heartbeat import Heartbeat
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
    add_data: AddData,
    events: EventBuffer,
    heartbeat: Heartbeat,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Schedule deployments until the receiving end of *deployments*, the deployer, is closed.

    A scheduler that starts late, with a new leadership term, deploys the
    present values at once. *prepared* stays empty without the fast lane. While
    *add_data* compares two generations, deployments that do not need its result
    go on. Takes ownership of *deployments*.
    """
    compared = Latest[Compared]()

    async def compare(valid: Generation, prepared: Generation) -> None:
        compared.put(Compared(valid, prepared, await add_data(valid, prepared)))

    with deployments:
        # Endpoints first: the values at the beginning of a term lead to one deployment, not two.
        states = (endpoints, validated, prepared)
        for cell in states:
            if cell.value is not None:
                schedule.take(cell.value, trio.current_time())
        # Rejections and completions from before this term do not count.
        any_change = AnyChange((*states, rejected, completed, compared))
        async with trio.open_nursery() as nursery:
            task_status.started()
            while True:
                due = schedule.due()
                messages: list[Input] = []
                with trio.move_on_at(inf if due is None else max(due, trio.current_time())):
                    messages = await any_change.wait()
                with heartbeat.busy():
                    now = trio.current_time()
                    for message in messages:
                        schedule.take(message, now)
                    if messages:
                        continue
                    if (pair := schedule.comparison(now)) is not None:
                        if not schedule.is_late:
                            nursery.start_soon(compare, *pair)
                            continue
                        # No newer generations meanwhile: a fast sequence of them would put off the reload for ever.
                        schedule.take(Compared(*pair, await add_data(*pair)), now)
                        now, due = trio.current_time(), schedule.due()
                        if due is None or due > now:
                            continue
                    deployment = schedule.start(now)
                    events.record(deployment)
                    try:
                        await pass_on(deployments, deployment)
                    except trio.BrokenResourceError:
                        # The deployer has ended.
                        break
            nursery.cancel_scope.cancel(reason="the deployer ended")
