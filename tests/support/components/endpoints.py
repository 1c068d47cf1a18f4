"""Builders of generations and endpoints that live in memory."""

from dataclasses import dataclass, field

import trio

from haptic_trio.channels import Latest
from haptic_trio.dataplane.endpoint import (
    DriftReport,
    Endpoint,
    EndpointInfo,
    EndpointUnreachableError,
    ObservedState,
    SyncResult,
)
from haptic_trio.dataplane.sync import WaitNewer
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import FileKind, Generation, make_file, make_generation
from haptic_trio.haproxy.plan.operations import Plan


def generation(text: str) -> Generation:
    """Return a generation whose identity is *text*."""
    return make_generation(parse_config(f"# {text}\n"), [make_file(FileKind.MAP, "maps/a.map", "a b\n")])


@dataclass(eq=False)
class MemoryEndpoint:
    """An endpoint that takes whatever it gets, or hangs, or fails, as the test says."""

    name: str
    running: Generation | None = None
    taken: list[str] = field(default_factory=list)
    drift: dict[str, int] = field(default_factory=dict)
    """What each look finds."""
    looked_at: list[float] = field(default_factory=list)
    seconds: float = 0.0
    fails: int = 0
    """How many of the next deployments fail."""
    begun: Latest[int] = field(default_factory=Latest)
    """How many deployments have begun."""

    @property
    def text(self) -> str:
        """The haproxy.cfg that it runs; empty before the first."""
        return self.running.text if self.running else ""

    async def describe(self) -> EndpointInfo:
        return EndpointInfo(name=self.name, version="0", generation=self.running.id if self.running else "")

    async def fetch_running(self) -> Generation | None:
        return self.running

    async def observe(self) -> ObservedState:
        return ObservedState(running=await self.fetch_running())

    async def activate(self, generation: Generation) -> None:
        self.begun.put(self.begun.version + 1)
        await trio.sleep(self.seconds)
        if self.fails:
            self.fails -= 1
            raise EndpointUnreachableError(self.name, "told to fail")
        self.running = generation
        self.taken.append(generation.id)

    async def patch(self, generation: Generation, plan: Plan) -> None:
        await self.activate(generation)

    async def repair(self) -> DriftReport:
        self.looked_at.append(trio.current_time())
        return DriftReport(found=self.drift, operations=len(self.drift))


async def sync_in_memory(
    endpoint: Endpoint,
    desired: Generation,
    *,
    verify: bool = False,
    may_reload: bool = True,
    slowed: frozenset[str] = frozenset(),
    checked: Generation | None = None,
    wait_newer: WaitNewer | None = None,
) -> SyncResult:
    """Deploy as `sync_endpoint` does, without a plan."""
    report = await endpoint.repair() if verify else DriftReport()
    running = await endpoint.fetch_running()
    changed = running is None or running.id != desired.id
    if changed:
        await endpoint.activate(desired)
    return SyncResult(endpoint=endpoint.name, changed=changed, reloaded=changed, drift=report.found)
