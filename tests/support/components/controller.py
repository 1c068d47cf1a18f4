"""The whole controller in process: a cluster in memory, endpoints in memory, and `true` in place of HAProxy."""

import json
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import trio
from trio.testing import MockClock

from haptic_trio.channels import EventBuffer, Latest
from haptic_trio.config.load import ConfigSource, Load, load_config
from haptic_trio.dataplane.endpoint import Endpoint
from haptic_trio.demo.event_log import EventLog
from haptic_trio.k8s.resource import Resource, ResourceType
from haptic_trio.messages import InstanceDeployed, IterationEnded, LeadershipChanged, StageReached
from haptic_trio.stages.controller import run_controller
from haptic_trio.stages.process import IterationState, Process
from tests.support.components.cluster import MemoryCluster
from tests.support.components.endpoints import MemoryEndpoint

EventType = TypeVar("EventType", bound=msgspec.Struct)

CONFIG_MAPS = ResourceType("v1", "configmaps")
SERVICES = ResourceType("v1", "services")
SOURCE = ConfigSource("default", "haptic-trio", "haptic-trio")

FRAGMENT = """\
global
    maxconn {number}
{{% for service in resources.services.list() %}}
{{% fragment "backend" for service %}}
backend {{{{ ident(service.metadata.name) }}}}
    mode http
{{% endfragment %}}
{{% endfor %}}
"""


def accepting_binary() -> Path:
    """Return a program that accepts whatever it is asked to check."""
    found = shutil.which("true")
    assert found is not None
    return Path(found)


def config_map(**fields: Any) -> Resource:
    """Return a ConfigMap with a small configuration that watches Services, and *fields* over it."""
    number = fields.pop("number", 10)
    config: dict[str, Any] = {
        "reconciler": {"debounceInterval": "0s", "runtimeInterval": "0s"},
        "validation": {"interval": "0s"},
        "dataplane": {"minDeploymentInterval": "0s"},
        "templating": {"libraries": []},
        "watchedResources": {"services": {"apiVersion": "v1", "resources": "services"}},
        "haproxyConfig": {"template": FRAGMENT.format(number=number)},
    }
    for key, value in fields.items():
        config[key] = {**config.get(key, {}), **value} if isinstance(value, dict) else value
    return raw_config_map(json.dumps(config))


def raw_config_map(text: str) -> Resource:
    """Return the ConfigMap with *text* as its configuration."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": SOURCE.config_map, "namespace": SOURCE.namespace},
        "data": {"config": text},
    }


def credentials(password: str) -> Resource:
    """Return the credentials Secret."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SOURCE.secret, "namespace": SOURCE.namespace},
        "stringData": {"dataplane_username": "admin", "dataplane_password": password},
    }


def leading(is_leader: bool = True, transitions: int = 1) -> LeadershipChanged:
    """Return who leads."""
    return LeadershipChanged(is_leader=is_leader, identity="me", transitions=transitions)


def _let_time_pass() -> None:
    """Keep a virtual clock that stands still from holding up what is drained at the end."""
    clock = trio.lowlevel.current_clock()
    if isinstance(clock, MockClock):
        # No autojump: it would end the time limit for the end of a killed process, since trio waits idly for that.
        clock.rate = 10


@contextmanager
def _real_deadline(seconds: float, scope: trio.CancelScope) -> Iterator[list[bool]]:
    """Cancel *scope* after *seconds* that no virtual clock can hold back; the list is not empty then."""
    expired: list[bool] = []

    def expire() -> None:
        expired.append(True)
        _let_time_pass()
        scope.cancel(reason="the test takes too long")

    timer = threading.Timer(seconds, trio.lowlevel.current_trio_token().run_sync_soon, [expire])
    timer.start()
    try:
        yield expired
    finally:
        timer.cancel()
        timer.join()


class ControllerRig:
    """A controller with the test at all its ends."""

    def __init__(self, scratch: Path, *, load: Load = load_config) -> None:
        self.cluster = MemoryCluster()
        self.endpoint = MemoryEndpoint("one")
        self.events = EventLog()
        self.process = Process(
            client=self.cluster,
            source=SOURCE,
            load=load,
            haproxy=accepting_binary(),
            scratch=scratch,
            endpoints=Latest[tuple[Endpoint, ...]](),
            leadership=Latest[LeadershipChanged](),
            events=EventBuffer(),
        )
        self.process.endpoints.put((self.endpoint,))
        self.process.leadership.put(leading())

    @property
    def iteration(self) -> IterationState | None:
        """The iteration that runs; None between two."""
        return self.process.running.value

    @asynccontextmanager
    async def running(self, *, within: float = 20) -> AsyncIterator[None]:
        """Run the controller for as long as the block lasts, *within* so many seconds of real time."""
        try:
            async with trio.open_nursery() as nursery:
                with _real_deadline(within, nursery.cancel_scope) as expired:
                    nursery.start_soon(self._note_events)
                    nursery.start_soon(run_controller, self.process)
                    yield
                    _let_time_pass()
                    nursery.cancel_scope.cancel(reason="the test is over")
        finally:
            assert not expired, (
                f"still waiting after {within} s; the last events: {self.events.all(msgspec.Struct)[-5:]}"
            )

    async def _note_events(self) -> None:
        async for event in self.process.events.receiver:
            self.events.take(event)

    def forget(self) -> None:
        """Begin a new log of events and deployments, so that what is noted is no leak."""
        self.events = EventLog()
        self.endpoint.taken.clear()
        self.endpoint.looked_at.clear()

    async def wait(
        self, kind: type[EventType], where: Callable[[EventType], bool] = lambda _event: True, *, since: int = 0
    ) -> EventType:
        """Return the first such event after the first *since* events."""
        with trio.fail_after(60):
            return await self.events.wait_for(kind, where, since=since)

    async def reached(self, stage: int, iteration: int) -> StageReached:
        """Return once *stage* of *iteration* is ready."""
        return await self.wait(StageReached, lambda event: (event.stage, event.iteration) == (stage, iteration))

    async def deployed(self, text: str, *, since: int = 0) -> InstanceDeployed:
        """Return once the endpoint runs a configuration that holds *text*."""
        return await self.wait(InstanceDeployed, lambda _event: text in self.endpoint.text, since=since)

    async def ended(self, iteration: int) -> IterationEnded:
        """Return how *iteration* ended, once it has."""
        return await self.wait(IterationEnded, lambda event: event.iteration == iteration)

    def stages(self, iteration: int) -> list[int]:
        """Return the stages that *iteration* has reached, in order of time."""
        return [event.stage for event in self.events.all(StageReached) if event.iteration == iteration]
