"""Numbered events about an agent's HAProxy, for subscribers.

Events are news, not state: a listener that is too slow loses those it has
not read and is told so by a `resync`, one that comes (back) gets a `hello`
with the present state. Either way it then asks what it wants to know.
"""

import contextlib
from collections import deque
from collections.abc import Iterator
from typing import Final

import msgspec
import trio

from haptic_trio.dataplane.agent.messages import AgentEvent, AgentHealth, EventKind
from haptic_trio.dataplane.endpoint import Endpoint, EndpointInfo
from haptic_trio.dataplane.local.process import MasterProcess
from haptic_trio.errors import HapticError

QUEUE: Final = 64
"""Events that wait for one listener."""
LOOK_INTERVAL: Final = 1.0
"""Seconds between two looks at HAProxy; its end is noticed at once."""
STALLED_AFTER: Final = 240.0
"""Seconds without a look after which the agent counts as stalled; a deployment may hold one up."""


class Sight(msgspec.Struct, frozen=True, kw_only=True):
    """What one look at HAProxy shows."""

    pid: int = 0
    reloads: int = 0
    generation: str = ""
    version: str = ""


def compare_sights(before: Sight, after: Sight, *, deployed: bool) -> tuple[EventKind, ...]:
    """Return what has happened between two looks; *deployed* says that a controller's request was carried out."""
    kinds = []
    if before.pid and after.pid != before.pid:
        kinds.append(EventKind.CRASHED)
    if after.pid and after.pid != before.pid:
        kinds.append(EventKind.STARTED)
    elif after.pid and after.reloads > before.reloads:
        kinds.append(EventKind.RELOADED)
    if after.generation != before.generation:
        kinds.append(EventKind.GENERATION if deployed else EventKind.DRIFT)
    return tuple(kinds)


class Subscription:
    """One listener's queue."""

    def __init__(self) -> None:
        self._events: deque[AgentEvent] = deque()
        self._overflow: AgentEvent | None = None
        self._arrived = trio.Event()

    def put(self, event: AgentEvent) -> None:
        """Queue *event*; when too many wait, they all give way to the mark that says so."""
        if self._overflow is not None or len(self._events) >= QUEUE:
            self._events.clear()
            self._overflow = event
        else:
            self._events.append(event)
        self._arrived.set()

    async def receive(self) -> AgentEvent:
        """Return the next event."""
        await self._arrived.wait()
        if self._overflow is not None:
            event, self._overflow = self._overflow, None
            event = msgspec.structs.replace(event, kind=EventKind.RESYNC, detail="events were dropped")
        else:
            event = self._events.popleft()
        if not self._events:
            self._arrived = trio.Event()
        return event


class Observer:
    """Looks at *endpoint* now and then and tells what has changed.

    `turn` is held during a look, and by those who deploy: what they change is
    never seen half done, nor taken for somebody else's doing. With *local*
    the process is one of this machine, and its end wakes the observer.
    """

    def __init__(self, endpoint: Endpoint, *, boot: str, local: bool = True) -> None:
        self.turn = trio.Lock()
        self.boot = boot
        self.sequence = 0
        self._endpoint = endpoint
        self._local = local
        self._sight: Sight | None = None
        self._answers = False
        self._looked = 0.0
        self._subscriptions: set[Subscription] = set()

    @property
    def listeners(self) -> int:
        """How many subscriptions there are."""
        return len(self._subscriptions)

    def health(self) -> AgentHealth:
        """Return what the last look has shown."""
        sight = self._sight or Sight()
        return AgentHealth(
            ready=bool(self._answers and sight.pid and sight.generation),
            live=trio.current_time() - self._looked < STALLED_AFTER,
            generation=sight.generation,
            haproxy=sight.version if self._answers and sight.pid else "",
        )

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Listen from now on; the first event is a hello."""
        subscription = Subscription()
        subscription.put(self.present(EventKind.HELLO))
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def present(self, kind: EventKind, *, deployed: bool = False) -> AgentEvent:
        """Return an event of *kind* with the present state."""
        sight = self._sight or Sight()
        return AgentEvent(
            kind=kind,
            sequence=self.sequence,
            boot=self.boot,
            generation=sight.generation,
            pid=sight.pid,
            reloads=sight.reloads,
            deployed=deployed,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Look until cancelled; started() after the first look."""
        async with self.turn:
            await self.look()
        task_status.started()
        while True:
            with trio.move_on_after(LOOK_INTERVAL):
                await self._wait_gone()
            async with self.turn:
                await self.look()

    async def _wait_gone(self) -> None:
        pid = self._sight.pid if self._sight is not None and self._local else 0
        if not pid:
            await trio.sleep_forever()
        try:
            process = MasterProcess(pid)
        except ProcessLookupError:
            return
        try:
            await process.wait_exit()
        finally:
            process.close()

    async def look(self, *, deployed: bool = False) -> None:
        """Look, and tell what has changed; the caller holds `turn`."""
        try:
            info = await self._endpoint.describe()
        except HapticError:
            # It is just dying, coming up, or busy: the next look will tell.
            self._answers = False
        else:
            self._answers = True
            self._take(info, deployed=deployed)
        self._looked = trio.current_time()

    def _take(self, info: EndpointInfo, *, deployed: bool) -> None:
        after = Sight(pid=info.pid, reloads=info.reloads, generation=info.generation, version=info.version)
        before, self._sight = self._sight, after
        if before is None:
            return
        for kind in compare_sights(before, after, deployed=deployed):
            self.tell(kind, deployed=deployed)

    def tell(self, kind: EventKind, *, deployed: bool, detail: str = "") -> None:
        """Tell all listeners."""
        self.sequence += 1
        event = msgspec.structs.replace(self.present(kind, deployed=deployed), detail=detail)
        for subscription in self._subscriptions:
            subscription.put(event)
