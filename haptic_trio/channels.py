"""Channels of one iteration: their messages, senders and receivers, and their behaviour when full.

| end         | carries                                  | from, to                               | size, full   |
|-------------|------------------------------------------|----------------------------------------|--------------|
| changes     | ResourceChanged, IndexSynchronized,      | reflectors, stage `watch_resources`,   | 100, wait    |
|             | DriftSuspected, HttpContentChanged,      | drift monitor, HTTP store, setbacks to |              |
|             | AttemptDue                               | debouncer                              |              |
| unread      | ResourceChanged, of stores that the      | stage `watch_resources` to status      | latest       |
|             | rendered output does not depend on       | writer                                 |              |
| triggers    | ReconcileTriggered                       | debouncer to coordinator, which treats | 50, wait     |
|             |                                          | all waiting triggers as one            |              |
| prepared    | ConfigPrepared                           | coordinator to scheduler and writers   | latest       |
|             |                                          | of status; only if data does not wait  |              |
|             |                                          | for `haproxy -c`                       |              |
| validated   | ConfigValidated                          | coordinator to scheduler, and writers  | latest       |
|             |                                          | of status and Kubernetes Events        |              |
| rejected    | ValidationFailed                         | coordinator to scheduler, and writers  | latest       |
|             |                                          | of status and Kubernetes Events        |              |
| endpoints   | EndpointsDiscovered                      | discovery to scheduler and deployer    | latest       |
| deployments | DeploymentScheduled                      | scheduler to deployer                  | 0, wait      |
| completed   | DeploymentCompleted                      | deployer to scheduler, drift monitor,  | latest       |
|             |                                          | coordinator                            |              |
| instances   | InstanceState of each instance           | deployer to the writer of published    | latest       |
|             |                                          | configurations                         |              |
| cycles      | ReconcileTriggered, ConfigPrepared,      | coordinator, deployer, leadership      | 50, wait     |
|             | ConfigValidated, ValidationFailed,       | to ledger                              |              |
|             | DeploymentCompleted, LeadershipChanged   |                                        |              |
| candidates  | ConfigSeen                               | the watch of ConfigMap and Secret to   | latest       |
|             |                                          | stages `load_config`, `watch_config`;  |              |
|             |                                          | process-wide                           |              |
| invalid     | ConfigInvalid                            | stage `watch_config` to the writer of  | latest       |
|             |                                          | Kubernetes Events; process-wide        |              |
| config      | ConfigChanged                            | stage `watch_config` to the iteration, | 1, wait      |
|             |                                          | which ends                             |              |
| events      | every message                            | all components to commentator;         | 500, counted |
|             |                                          | process-wide                           |              |

*latest*: the channel is state. A late receiver, such as a replica that has
just become leader, gets the present value; older values are not replayed.
*counted*: messages that do not fit are dropped and counted, and the
commentator reports the number.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Generic, Self, TypeAlias, TypeVar

import msgspec
import trio

from haptic_trio.config.load import joined_version
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import (
    ConfigChanged,
    ConfigPrepared,
    ConfigValidated,
    DeploymentCompleted,
    DriftSuspected,
    EndpointsDiscovered,
    HttpContentChanged,
    IndexSynchronized,
    LeadershipChanged,
    ReconcileTriggered,
    ResourceChanged,
    ValidationFailed,
)

CHANGE_BUFFER = 100
CYCLE_BUFFER = 50
EVENT_BUFFER = 500

T = TypeVar("T")


async def pass_on(channel: trio.MemorySendChannel[T], value: T) -> None:
    """Send *value* to *channel*; a checkpoint only if it is full: otherwise the sender goes on with its turn."""
    try:
        channel.send_nowait(value)
    except trio.WouldBlock:
        await channel.send(value)


class AttemptDue(msgspec.Struct, frozen=True, kw_only=True):
    """The hold of some objects has ended: their new versions may be tried."""


Change: TypeAlias = ResourceChanged | IndexSynchronized | DriftSuspected | HttpContentChanged | AttemptDue
CycleEvent: TypeAlias = (
    ReconcileTriggered | ConfigPrepared | ConfigValidated | ValidationFailed | DeploymentCompleted | LeadershipChanged
)


class Latest(Generic[T]):
    """A cell that keeps only the newest value.

    Slow readers skip values by design: a deployer that was busy during ten
    renders needs only the tenth. Any number of tasks may wait.
    """

    def __init__(self) -> None:
        self._value: T | None = None
        self._version = 0
        self._changed = trio.Event()
        self._others: set[trio.Event] = set()

    @property
    def value(self) -> T | None:
        """The newest value; None before the first `put`."""
        return self._value

    @property
    def version(self) -> int:
        """Number of values so far."""
        return self._version

    def put(self, value: T) -> None:
        """Replace the value and wake all waiting tasks. Never blocks."""
        self._value = value
        self._version += 1
        # An Event cannot be unset, so each version gets a new one.
        self._changed.set()
        self._changed = trio.Event()
        for event in self._others:
            event.set()

    async def wait_newer(self, seen: int) -> tuple[int, T]:
        """Return the newest version and its value as soon as the version exceeds *seen*; safe to cancel.

        Always a checkpoint, so a loop over it lets other tasks run.
        """
        if self._version > seen:
            await trio.lowlevel.checkpoint()
        while self._version <= seen:
            await self._changed.wait()
        value: Any = self._value
        return self._version, value


class AnyChange:
    """Waits for new values in any of several cells, for one task. Values from before its creation do not count."""

    def __init__(self, cells: Sequence[Latest[Any]]) -> None:
        self._seen = {cell: cell.version for cell in cells}

    async def wait(self) -> list[Any]:
        """Return the new values in the order of the cells, as soon as there is one; always a checkpoint.

        Safe to cancel: values are taken after the last checkpoint.
        """
        if self._is_behind():
            await trio.lowlevel.checkpoint()
        while not (found := self._take()):
            event = trio.Event()
            for cell in self._seen:
                cell._others.add(event)  # noqa: SLF001  both classes share this state
            try:
                await event.wait()
            finally:
                for cell in self._seen:
                    cell._others.discard(event)  # noqa: SLF001
        return found

    def _is_behind(self) -> bool:
        return any(cell.version > seen for cell, seen in self._seen.items())

    def _take(self) -> list[Any]:
        found = [cell for cell, seen in self._seen.items() if cell.version > seen]
        self._seen.update((cell, cell.version) for cell in found)
        return [cell.value for cell in found]


class ConfigSeen(msgspec.Struct, frozen=True):
    """The present ConfigMap and Secret; None for an absent object."""

    config_map: Resource | None
    secret: Resource | None

    @property
    def version(self) -> str:
        """Both resourceVersions, joined; equal to `version` of a configuration loaded from these objects."""
        return joined_version(self.config_map, self.secret)


class InstanceState(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of the deployments to one instance."""

    wanted: str
    """Id of the newest generation that was scheduled for it."""
    generation: str = ""
    """Id of the generation of its last successful deployment; empty before the first."""
    held: tuple[str, ...] = ()
    """Why the changes of this generation that it holds back need a reload; empty if it holds back none."""
    is_partial: bool = False
    """Whether it got only a part of the changes; the next deployment continues."""
    error: str = ""
    """Error of its last deployment; empty if that succeeded."""

    @property
    def is_in_sync(self) -> bool:
        """Whether it runs all of the newest generation."""
        return self.generation == self.wanted and not (self.held or self.is_partial or self.error)


class EventBuffer:
    """Bounded buffer of events for the commentator; never blocks a component, and counts dropped events."""

    def __init__(self, size: int = EVENT_BUFFER) -> None:
        self._in, self._out = trio.open_memory_channel[msgspec.Struct](size)
        self._lost = 0

    def record(self, event: msgspec.Struct) -> None:
        """Add *event*, or count it as dropped if the buffer is full."""
        try:
            self._in.send_nowait(event)
        except trio.WouldBlock:
            self._lost += 1
        except trio.BrokenResourceError:
            # The commentator has ended, so the process is ending.
            return

    def take_lost(self) -> int:
        """Return the number of events dropped since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    @property
    def receiver(self) -> trio.MemoryReceiveChannel[msgspec.Struct]:
        """The end that the commentator reads."""
        return self._out


class Channels:
    """All channels of one iteration.

    A component gets clones of the ends that it needs, and owns them; the
    `with` block closes the originals. Each leadership term opens its own
    channel from scheduler to deployer.
    """

    def __init__(self) -> None:
        self.changes_in, self.changes_out = trio.open_memory_channel[Change](CHANGE_BUFFER)
        self.triggers_in, self.triggers_out = trio.open_memory_channel[ReconcileTriggered](CYCLE_BUFFER)
        self.cycles_in, self.cycles_out = trio.open_memory_channel[CycleEvent](CYCLE_BUFFER)
        self.config_in, self.config_out = trio.open_memory_channel[ConfigChanged](1)
        self.unread = Latest[ResourceChanged]()
        self.prepared = Latest[ConfigPrepared]()
        self.validated = Latest[ConfigValidated]()
        self.rejected = Latest[ValidationFailed]()
        self.endpoints = Latest[EndpointsDiscovered]()
        self.completed = Latest[DeploymentCompleted]()
        self.instances = Latest[Mapping[str, InstanceState]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for end in vars(self).values():
            if isinstance(end, trio.MemorySendChannel | trio.MemoryReceiveChannel):
                end.close()
