"""HAProxy instances on this machine, side by side below a state directory."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.agent import LocalAgent
from haptic_trio.dataplane.supervisor import OnExit

DEFAULT_GRACE = 5.0


class LocalInstances:
    """*count* instances, `local-1` and so on, in `<state>/instances/`.

    They may bind the same ports; the kernel then spreads connections over
    them.
    """

    def __init__(
        self, state: Path, binary: Path, *, count: int = 1, on_exit: OnExit = "leave", grace: float = DEFAULT_GRACE
    ) -> None:
        names = [f"local-{number}" for number in range(1, count + 1)]
        self._agents = [LocalAgent(name, state.absolute() / "instances" / name, binary) for name in names]
        self._on_exit = on_exit
        self._grace = grace

    async def run(self, *, task_status: trio.TaskStatus[Sequence[LocalAgent]] = trio.TASK_STATUS_IGNORED) -> None:
        """Keep the instances until cancelled; started() gives their endpoints, once each is adopted or started.

        Cancelled, it leaves the HAProxy processes to be adopted, or ends
        them: softly, and after the grace, in seconds, by force. Raises
        InstanceLockedError when another controller has one of them.
        """
        async with trio.open_nursery() as nursery:
            for agent in self._agents:
                await nursery.start(partial(agent.run, on_exit=self._on_exit, grace=self._grace))
            task_status.started(tuple(self._agents))
