"""Numbered events about an agent's HAProxy, for subscribers.

Events are changes, not state. A subscriber that is too slow loses its unread
events and receives `resync` instead; a new connection begins with a `hello`
that has the present state. In both cases the subscriber then queries the API.
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
"""Unread events of one subscriber."""
OBSERVE_INTERVAL: Final = 1.0
"""Seconds between two observations of HAProxy; its exit is noticed at once."""
STALLED_AFTER: Final = 240.0
"""Seconds without an observation after which the agent is stalled; a deployment delays observations."""


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """State of HAProxy at one observation."""

    pid: int = 0
    reloads: int = 0
    old_workers: int = 0
    generation: str = ""
    version: str = ""


def compare_observations(before: Observation, after: Observation, *, deployed: bool) -> tuple[EventKind, ...]:
    """Return the events between two observations; *deployed*: a controller's request was the cause."""
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
    """Queue of one subscriber."""

    def __init__(self) -> None:
        self._events: deque[AgentEvent] = deque()
        self._overflow: AgentEvent | None = None
        self._arrived = trio.Event()

    def put(self, event: AgentEvent) -> None:
        """Queue *event*; if too many are unread, one `resync` replaces them all."""
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
    """Observes *endpoint* at intervals and publishes changes as events.

    `turn` is held during an observation and during a deployment, so an
    observation never sees a deployment half done or takes it for drift. With
    *local* the process runs on this machine, and its exit wakes the observer.
    """

    def __init__(self, endpoint: Endpoint, *, boot: str, local: bool = True) -> None:
        self.turn = trio.Lock()
        self.boot = boot
        self.sequence = 0
        self._endpoint = endpoint
        self._local = local
        self._observation: Observation | None = None
        self._answers = False
        self._observed_at = 0.0
        self._subscriptions: set[Subscription] = set()

    @property
    def subscribers(self) -> int:
        """Number of subscribers."""
        return len(self._subscriptions)

    def health(self) -> AgentHealth:
        """Return the health according to the last observation."""
        observation = self._observation or Observation()
        return AgentHealth(
            ready=bool(self._answers and observation.pid and observation.generation),
            live=trio.current_time() - self._observed_at < STALLED_AFTER,
            generation=observation.generation,
            haproxy=observation.version if self._answers and observation.pid else "",
        )

    @contextlib.contextmanager
    def subscribe(self) -> Iterator[Subscription]:
        """Subscribe while the block runs; the first event is a hello."""
        subscription = Subscription()
        subscription.put(self.present(EventKind.HELLO))
        self._subscriptions.add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions.discard(subscription)

    def present(self, kind: EventKind, *, deployed: bool = False) -> AgentEvent:
        """Return an event of *kind* with the present state."""
        observation = self._observation or Observation()
        return AgentEvent(
            kind=kind,
            sequence=self.sequence,
            boot=self.boot,
            generation=observation.generation,
            pid=observation.pid,
            reloads=observation.reloads,
            old_workers=observation.old_workers,
            deployed=deployed,
        )

    async def run(self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED) -> None:
        """Observe until cancelled; started() after the first observation."""
        async with self.turn:
            await self.observe()
        task_status.started()
        while True:
            with trio.move_on_after(OBSERVE_INTERVAL):
                await self._wait_exit()
            async with self.turn:
                await self.observe()

    async def _wait_exit(self) -> None:
        pid = self._observation.pid if self._observation is not None and self._local else 0
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

    async def observe(self, *, deployed: bool = False) -> None:
        """Observe HAProxy and publish changes; the caller holds `turn`."""
        try:
            info = await self._endpoint.describe()
        except HapticError:
            # HAProxy is starting, ending or busy: the next observation shows its state.
            self._answers = False
        else:
            self._answers = True
            self._take(info, deployed=deployed)
        self._observed_at = trio.current_time()

    def _take(self, info: EndpointInfo, *, deployed: bool) -> None:
        after = Observation(
            pid=info.pid,
            reloads=info.reloads,
            old_workers=info.old_workers,
            generation=info.generation,
            version=info.version,
        )
        before, self._observation = self._observation, after
        if before is None:
            return
        for kind in compare_observations(before, after, deployed=deployed):
            self.publish(kind, deployed=deployed)

    def publish(self, kind: EventKind, *, deployed: bool, detail: str = "") -> None:
        """Send an event of *kind* to all subscribers."""
        self.sequence += 1
        event = msgspec.structs.replace(self.present(kind, deployed=deployed), detail=detail)
        for subscription in self._subscriptions:
            subscription.put(event)
