"""An `ApiCluster` for tests, on the in-process API server or on a real one."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import trio

from haptic_trio.errors import Problem
from haptic_trio.k8s.api.auth import load_kubeconfig
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.api.watching import Pace
from haptic_trio.k8s.client import Deleted, Listed, Selection, Upserted, WatchEvent
from haptic_trio.k8s.resource import Resource
from tests.support.api_server.server import ApiServer

FAST = Pace(
    retry=0.01,
    retry_limit=0.05,
    recheck=0.02,
    recheck_limit=0.05,
    absence_grace=0.2,
    initial_silence=0.3,
    silence=5.0,
)
"""Short intervals, for tests on real sockets."""


class Reports:
    """Received events, and a way to wait for them."""

    def __init__(self) -> None:
        self.problems: dict[str, tuple[Problem, ...]] = {}
        self.reported = 0
        self._reported = trio.Event()

    def __call__(self, source: str, problems: tuple[Problem, ...]) -> None:
        self.problems[source] = problems
        self.reported += 1
        self._reported.set()
        self._reported = trio.Event()

    @property
    def messages(self) -> str:
        """Everything that is wrong now, in one text."""
        return "\n".join(str(problem) for found in self.problems.values() for problem in found)

    async def wait(self, claim: Callable[["Reports"], bool]) -> None:
        """Return once *claim* holds."""
        with trio.fail_after(10):
            while not claim(self):
                await self._reported.wait()


class View:
    """What a reader of a watch knows, as a store would keep it."""

    def __init__(self, events: AsyncIterator[WatchEvent]) -> None:
        self._events = events
        self.objects: dict[str, Resource] = {}
        self.lists = 0

    async def step(self) -> WatchEvent:
        """Take one event."""
        with trio.fail_after(10):
            event = await anext(self._events)
        match event:
            case Listed(objects):
                self.lists += 1
                self.objects = {name_of(resource): resource for resource in objects}
            case Upserted(resource):
                self.objects[name_of(resource)] = resource
            case Deleted(resource):
                self.objects.pop(name_of(resource), None)
        return event

    async def until(self, *names: str) -> None:
        """Take events until exactly the objects *names* are there."""
        while not self.lists or set(self.objects) != set(names):
            await self.step()


def name_of(resource: Resource) -> str:
    """Return the name of *resource*."""
    name: str = resource["metadata"]["name"]
    return name


@asynccontextmanager
async def connected(
    server: ApiServer, kubeconfig: Path, *, reports: Reports | None = None, pace: Pace = FAST, stream_lists: bool = True
) -> AsyncIterator[ApiCluster]:
    """Run a client of *server*, with the credentials of *kubeconfig*, which is written if it is not there."""
    if not await trio.Path(kubeconfig).exists():
        server.write_kubeconfig(kubeconfig)
    async with connected_by(kubeconfig, reports=reports, pace=pace, stream_lists=stream_lists) as cluster:
        yield cluster


@asynccontextmanager
async def connected_by(
    kubeconfig: Path, *, reports: Reports | None = None, pace: Pace = FAST, stream_lists: bool = True
) -> AsyncIterator[ApiCluster]:
    """Run a client of the server that *kubeconfig* names."""
    load = partial(load_kubeconfig, kubeconfig)
    cluster = ApiCluster(load, report=reports or Reports(), pace=pace, stream_lists=stream_lists)
    async with trio.open_nursery() as nursery:
        await nursery.start(cluster.run)
        yield cluster
        nursery.cancel_scope.cancel(reason="the test is over")


@asynccontextmanager
async def viewing(cluster: ApiCluster, selection: Selection) -> AsyncIterator[View]:
    """Open a watch and keep what it reports."""
    async with cluster.watch(selection) as events:
        yield View(events)
