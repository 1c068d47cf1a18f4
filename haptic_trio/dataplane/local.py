"""HAProxy instances on this machine, side by side below a state directory."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import trio

from haptic_trio.dataplane.agent import LocalAgent
from haptic_trio.dataplane.check import PRELUDE_NAME
from haptic_trio.dataplane.process import find_masters
from haptic_trio.dataplane.supervisor import OnExit

DEFAULT_GRACE = 5.0


class LocalInstances:
    """*count* instances, `local-1` and so on, in `<state>/instances/`.

    They may bind the same ports; the kernel then spreads connections over
    them. So an HAProxy of an earlier controller with more instances, which
    would go on serving what it was given then, is ended.
    """

    def __init__(
        self, state: Path, binary: Path, *, count: int = 1, on_exit: OnExit = "leave", grace: float = DEFAULT_GRACE
    ) -> None:
        names = [f"local-{number}" for number in range(1, count + 1)]
        self._root = state.absolute() / "instances"
        self._binary = binary
        self._agents = [LocalAgent(name, self._root / name, binary) for name in names]
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
            for directory in await trio.to_thread.run_sync(self._find_surplus):
                nursery.start_soon(self._end, LocalAgent(directory.name, directory, self._binary))

    def _find_surplus(self) -> list[Path]:
        """Return the directories of instances that are not ours and have a live HAProxy."""
        ours = {agent.name for agent in self._agents}
        others = [directory for directory in self._root.glob("local-*") if directory.name not in ours]
        return sorted(directory for directory in others if find_masters(str(directory / PRELUDE_NAME)))

    async def _end(self, agent: LocalAgent) -> None:
        async with trio.open_nursery() as nursery:
            await nursery.start(partial(agent.run, on_exit="stop", grace=self._grace))
            nursery.cancel_scope.cancel(reason="fewer instances are wanted")
