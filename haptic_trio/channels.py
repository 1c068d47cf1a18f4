"""Topology of one iteration: every channel, its senders and receivers, and what happens when it is full.

| end         | carries                                  | from, to                               | size, full   |
|-------------|------------------------------------------|----------------------------------------|--------------|
| changes     | ResourceChanged, IndexSynchronized,      | reflectors, stage 3, drift monitor,    | 100, wait    |
|             | DriftSuspected, HttpContentChanged,      | HTTP store, attempts to debouncer      |              |
|             | AttemptDue                               |                                        |              |
| unread      | ResourceChanged, of what nothing that is | stage 3 to status writer               | latest       |
|             | rendered depends on                      |                                        |              |
| triggers    | ReconcileTriggered                       | debouncer to coordinator, which takes  | 50, wait     |
|             |                                          | all that wait as one                   |              |
| prepared    | ConfigPrepared                           | coordinator to scheduler; only where   | latest       |
|             |                                          | data does not wait for phase 2         |              |
| validated   | ConfigValidated                          | coordinator to scheduler               | latest       |
| rejected    | ValidationFailed                         | coordinator to scheduler               | latest       |
| endpoints   | EndpointsDiscovered                      | discovery to scheduler and deployer    | latest       |
| deployments | DeploymentScheduled                      | scheduler to deployer                  | 0, wait      |
| completed   | DeploymentCompleted                      | deployer to scheduler, drift monitor,  | latest       |
|             |                                          | coordinator                            |              |
| cycles      | ReconcileTriggered, ConfigPrepared,      | coordinator, deployer, leadership      | 50, wait     |
|             | ConfigValidated, ValidationFailed,       | to ledger                              |              |
|             | DeploymentCompleted, LeadershipChanged   |                                        |              |
| candidates  | ConfigSeen                               | stage 1 to stages 1 and 4              | latest       |
| config      | ConfigChanged                            | stage 4 to the iteration, which it     | 1, wait      |
|             |                                          | ends                                   |              |
| facts       | every message                            | everybody to commentator; process-wide | 500, counted |

*latest* is state: a late joiner, such as a replica that has just become
leader, finds the present value there, and nothing is replayed. *counted*:
what does not fit is counted, and the commentator reports the number.
"""

from collections.abc import Sequence
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
EVENT_BUFFER = 50
FACT_BUFFER = 500

T = TypeVar("T")


class AttemptDue(msgspec.Struct, frozen=True, kw_only=True):
    """The time is up for which new versions of some objects were held back: they may be tried again."""


Change: TypeAlias = ResourceChanged | IndexSynchronized | DriftSuspected | HttpContentChanged | AttemptDue
CycleEvent: TypeAlias = (
    ReconcileTriggered | ConfigPrepared | ConfigValidated | ValidationFailed | DeploymentCompleted | LeadershipChanged
)


class Latest(Generic[T]):
    """A one-slot cell that keeps only the newest value.

    Slow readers skip values on purpose: a deployer that was busy for ten
    renders wants the tenth, not the first.
    """

    def __init__(self) -> None:
        self._value: T | None = None
        self._version = 0
        self._changed = trio.Event()
        self._others: set[trio.Event] = set()

    @property
    def value(self) -> T | None:
        """The newest value; None before the first."""
        return self._value

    @property
    def version(self) -> int:
        """How many values have been put."""
        return self._version

    def put(self, value: T) -> None:
        """Replace the value and wake all who wait for a newer one."""
        self._value = value
        self._version += 1
        # An Event cannot be unset, so each version gets a new one.
        self._changed.set()
        self._changed = trio.Event()
        for event in self._others:
            event.set()

    async def wait_newer(self, seen: int) -> tuple[int, T]:
        """Return the newest value and its version once that exceeds *seen*."""
        while self._version <= seen:
            await self._changed.wait()
        value: Any = self._value
        return self._version, value


class News:
    """What is put into any of some cells from now on, for one task to wait for."""

    def __init__(self, cells: Sequence[Latest[Any]]) -> None:
        self._seen = {cell: cell.version for cell in cells}

    async def wait(self) -> list[Any]:
        """Return the newest values that were not returned before, in the order of the cells, once there are any."""
        while not (found := self._take()):
            event = trio.Event()
            for cell in self._seen:
                cell._others.add(event)  # noqa: SLF001  the two are one piece
            try:
                await event.wait()
            finally:
                for cell in self._seen:
                    cell._others.discard(event)  # noqa: SLF001
        return found

    def _take(self) -> list[Any]:
        found = [cell for cell, seen in self._seen.items() if cell.version > seen]
        self._seen.update((cell, cell.version) for cell in found)
        return [cell.value for cell in found]


class ConfigSeen(msgspec.Struct, frozen=True):
    """The ConfigMap and Secret as the cluster holds them now; None where the object is absent."""

    config_map: Resource | None
    secret: Resource | None

    @property
    def version(self) -> str:
        """Both resourceVersions; equal to the `version` of the configuration loaded from them."""
        return joined_version(self.config_map, self.secret)


class Facts:
    """What happened, for the commentator: never blocks a component, never loses a fact silently."""

    def __init__(self, size: int = FACT_BUFFER) -> None:
        self._in, self._out = trio.open_memory_channel[msgspec.Struct](size)
        self._lost = 0

    def tell(self, fact: msgspec.Struct) -> None:
        """Hand *fact* to the commentator; when it is far behind, count it as lost instead."""
        try:
            self._in.send_nowait(fact)
        except trio.WouldBlock:
            self._lost += 1
        except trio.BrokenResourceError:
            # The commentator is gone: the process is ending.
            return

    def take_lost(self) -> int:
        """Return how many facts were lost since the last call."""
        lost, self._lost = self._lost, 0
        return lost

    @property
    def receiver(self) -> trio.MemoryReceiveChannel[msgspec.Struct]:
        """The commentator's end."""
        return self._out


class Channels:
    """All channels of one iteration.

    Whoever starts a component hands it clones of the ends that it needs;
    leaving the `with` block closes the originals. The one from scheduler to
    deployer belongs to the leadership term, which opens a new one each time.
    """

    def __init__(self) -> None:
        self.changes_in, self.changes_out = trio.open_memory_channel[Change](CHANGE_BUFFER)
        self.triggers_in, self.triggers_out = trio.open_memory_channel[ReconcileTriggered](EVENT_BUFFER)
        self.cycles_in, self.cycles_out = trio.open_memory_channel[CycleEvent](EVENT_BUFFER)
        self.config_in, self.config_out = trio.open_memory_channel[ConfigChanged](1)
        self.unread = Latest[ResourceChanged]()
        self.prepared = Latest[ConfigPrepared]()
        self.validated = Latest[ConfigValidated]()
        self.rejected = Latest[ValidationFailed]()
        self.endpoints = Latest[EndpointsDiscovered]()
        self.completed = Latest[DeploymentCompleted]()
        self.candidates = Latest[ConfigSeen]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exc: object) -> None:
        for end in vars(self).values():
            if isinstance(end, trio.MemorySendChannel | trio.MemoryReceiveChannel):
                end.close()
