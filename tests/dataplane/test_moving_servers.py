"""Servers move in the process while a deployment to it is planned, and while a reload replaces it."""

import pytest
import trio

from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    EndpointUnreachableError,
    PatchRejectedError,
    SyncResult,
)
from haptic_trio.dataplane.planner import Planner
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.shares import SERVERS_AT_ONCE
from haptic_trio.haproxy.plan.split import SplitPlan
from tests.dataplane.test_sync import FakeEndpoint, mixed
from tests.support.processes.haproxy import forwarding, mapping


class ReplacedEndpoint(FakeEndpoint):
    """Changes its former process: the calls named in *fail* by number raise, and `activate` waits for the others."""

    def __init__(self, running: Generation, fail: dict[int, Exception], **errors: Exception) -> None:
        super().__init__(running, **errors)
        self.former: list[tuple[str, str]] = []
        """Addresses of the server before and after each change."""
        self.number = 0
        self.done = trio.Event()
        self._fail_former = fail

    async def activate(self, generation: Generation) -> None:
        await self.done.wait()
        await super().activate(generation)

    async def patch_former(
        self, running: Generation, generation: Generation, plan: Plan, successor: Generation | None = None
    ) -> None:
        self.number += 1
        if self.number in self._fail_former:
            raise self._fail_former[self.number]
        assert plan.operations
        assert successor is not None
        self.successor = successor
        self.former.append((address_of(running), address_of(generation)))


def address_of(generation: Generation) -> str:
    """Return the address of the only server."""
    return generation.text.split("server one ")[1].split()[0]


async def follow(endpoint: ReplacedEndpoint, *newer: Generation) -> None:
    """Deploy `mixed(2)` while *newer* generations arrive, each once the one before is taken in."""
    waiting = list(newer)

    async def wait_newer(known: Generation) -> Generation:
        if not waiting:
            endpoint.done.set()
            await trio.sleep_forever()
        return waiting.pop(0)

    await sync_endpoint(endpoint, mixed(2), wait_newer=wait_newer)


class SlowPlanner(Planner):
    """Compares the first generations only after *until*."""

    def __init__(self, until: trio.Event) -> None:
        super().__init__()
        self._until = until
        self._is_first = True

    def split_at_once(self, *_: object) -> None:
        """Leave every comparison to `split`."""

    async def split(
        self,
        running: Generation | None,
        desired: Generation,
        capabilities: Capabilities,
        room: int = SERVERS_AT_ONCE,
        withheld: frozenset[str] = frozenset(),
    ) -> SplitPlan:
        is_first, self._is_first = self._is_first, False
        if is_first:
            await self._until.wait()
        return await super().split(running, desired, capabilities, room, withheld)


async def sync_slowly(endpoint: FakeEndpoint, desired: Generation, *newer: Generation) -> tuple[list[str], SyncResult]:
    """Deploy *desired* while *newer* arrive before it is compared; return the addresses until then, and the result."""
    arrived, waiting, seen = trio.Event(), list(newer), list[str]()

    async def wait_newer(known: Generation) -> Generation:
        if known is not desired:
            assert endpoint.running is not None
            seen.append(address_of(endpoint.running))
        if not waiting:
            arrived.set()
            await trio.sleep_forever()
        await trio.lowlevel.checkpoint()
        return waiting.pop(0)

    with trio.fail_after(5):
        result = await sync_endpoint(endpoint, desired, planner=SlowPlanner(arrived), wait_newer=wait_newer)
    return seen, result


async def test_moved_server_reaches_the_process_while_the_deployment_is_planned() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2))
    seen, result = await sync_slowly(endpoint, mixed(2), mixed(3), mixed(4))
    assert seen == ["127.0.0.1:3", "127.0.0.1:4"]
    assert endpoint.calls == ["patch", "patch", "activate"]
    assert result.reloaded


async def test_data_since_the_check_does_not_wait_for_the_plan() -> None:
    endpoint, arrived = FakeEndpoint(forwarding(1, 2)), trio.Event()

    async def wait_newer(_known: Generation) -> Generation:
        assert endpoint.running is not None
        assert address_of(endpoint.running) == "127.0.0.1:3"
        arrived.set()
        await trio.sleep_forever()
        raise AssertionError

    with trio.fail_after(5):
        planner = SlowPlanner(arrived)
        await sync_endpoint(endpoint, mixed(3), planner=planner, checked=mixed(2), wait_newer=wait_newer)
    assert endpoint.calls == ["patch", "activate"]
    assert endpoint.running == mixed(3)


async def test_planned_change_does_not_take_back_what_moved_meanwhile() -> None:
    endpoint = FakeEndpoint(forwarding(1, 1))
    moved, result = await sync_slowly(endpoint, forwarding(1, 2), forwarding(1, 3))
    assert moved == ["127.0.0.1:3"]
    assert endpoint.running == forwarding(1, 3)
    assert (endpoint.calls, result.changed, result.reloaded) == (["patch"], True, False)


async def test_planned_entry_is_applied_with_what_moved_meanwhile() -> None:
    def site(port: int, target: str) -> Generation:
        return make_generation(forwarding(1, port).config, mapping(1, {"a": target}).files)

    endpoint = FakeEndpoint(site(1, "old"))
    await sync_slowly(endpoint, site(1, "new"), site(3, "new"))
    assert endpoint.running == site(3, "new")
    assert endpoint.calls == ["patch", "patch"]


async def test_rejected_move_while_the_deployment_is_planned_makes_it_a_reload() -> None:
    endpoint = FakeEndpoint(forwarding(1, 1), patch=PatchRejectedError("fake-1", "no such server"))
    arrived = trio.Event()

    async def wait_newer(known: Generation) -> Generation:
        if known.id == forwarding(1, 3).id:
            await trio.sleep_forever()
        trio.lowlevel.current_trio_token().run_sync_soon(arrived.set)
        return forwarding(1, 3)

    result = await sync_endpoint(endpoint, forwarding(1, 2), planner=SlowPlanner(arrived), wait_newer=wait_newer)
    assert (endpoint.calls, result.reloaded) == (["patch", "activate"], True)
    assert "no such server" in result.reasons[0]


async def test_failed_move_while_the_deployment_is_planned_is_the_callers() -> None:
    endpoint = FakeEndpoint(forwarding(1, 1), patch=EndpointUnreachableError("fake-1", "gone"))
    arrived = trio.Event()

    async def wait_newer(known: Generation) -> Generation:
        trio.lowlevel.current_trio_token().run_sync_soon(arrived.set)
        return forwarding(1, 3)

    with pytest.raises(EndpointUnreachableError):
        await sync_endpoint(endpoint, forwarding(1, 2), planner=SlowPlanner(arrived), wait_newer=wait_newer)


async def test_former_process_gets_the_servers_of_newer_generations() -> None:
    endpoint = ReplacedEndpoint(forwarding(1, 2), {})
    await follow(endpoint, mixed(3), mixed(4))
    assert endpoint.former == [("127.0.0.1:2", "127.0.0.1:3"), ("127.0.0.1:3", "127.0.0.1:4")]
    # What the new process runs is up to the endpoint.
    assert endpoint.running == mixed(2)
    assert endpoint.successor == mixed(4)


async def test_change_before_the_replacement_has_begun_is_part_of_the_next_one() -> None:
    endpoint = ReplacedEndpoint(forwarding(1, 2), {1: PatchRejectedError("fake-1", "not yet")})
    await follow(endpoint, mixed(3), mixed(3), mixed(4))
    assert endpoint.former == [("127.0.0.1:2", "127.0.0.1:3"), ("127.0.0.1:3", "127.0.0.1:4")]


async def test_rejected_reload_begins_its_rollback_from_the_moved_servers() -> None:
    """The runtime part of the rejected generation, port 2, was applied before; then the server moved to port 4."""
    running = forwarding(1, 1)
    endpoint = ReplacedEndpoint(running, {}, activate=DeploymentRejectedError("fake-1", "no room"))
    with pytest.raises(DeploymentRejectedError, match="no room"):
        await follow(endpoint, mixed(4))
    assert endpoint.former == [("127.0.0.1:2", "127.0.0.1:4")]
    assert endpoint.calls == ["patch", "activate", "patch"]
    assert endpoint.running == running
