"""A deployment patches the running generation where it can, and reloads HAProxy where it must."""

import pytest
import trio

from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    DriftReport,
    Endpoint,
    EndpointInfo,
    EndpointUnreachableError,
    ObservedState,
    PatchRejectedError,
    SyncResult,
)
from haptic_trio.dataplane.planner import Planner
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.shares import SERVERS_AT_ONCE
from haptic_trio.haproxy.plan.split import SplitPlan
from tests.support.processes.haproxy import answering, forwarding, mapping


class FakeEndpoint:
    """Runs every generation it gets; the methods named with `fail` raise it."""

    def __init__(self, running: Generation | None, **fail: Exception) -> None:
        self.running = running
        self.calls: list[str] = []
        self.report = DriftReport()
        self._fail = fail
        self._later: dict[str, tuple[int, Exception]] = {}

    @property
    def name(self) -> str:
        return "fake-1"

    async def describe(self) -> EndpointInfo:
        return EndpointInfo(name=self.name, version="2.8.25", generation=self.running.id if self.running else "")

    async def fetch_running(self) -> Generation | None:
        return self.running

    async def observe(self) -> ObservedState:
        return ObservedState(running=self.running)

    async def activate(self, generation: Generation) -> None:
        self._call("activate")
        self.running = generation

    async def patch(self, generation: Generation, plan: Plan) -> None:
        self._call("patch")
        assert not plan.reloads
        self.running = generation

    async def repair(self) -> DriftReport:
        self._call("repair")
        return self.report

    def fails_from(self, name: str, number: int, error: Exception) -> None:
        """Have the method *name* raise *error* at its call *number*, and after that."""
        self._later[name] = number, error

    def _call(self, name: str) -> None:
        self.calls.append(name)
        number, error = self._later.get(name, (0, None))
        if error is not None and self.calls.count(name) >= number:
            raise error
        if name in self._fail:
            raise self._fail[name]


async def test_the_first_generation_is_activated() -> None:
    endpoint = FakeEndpoint(None)
    result = await sync_endpoint(endpoint, answering(1, "one"))
    assert endpoint.calls == ["activate"]
    assert result.changed
    assert result.reloaded
    assert result.reasons


async def test_the_running_generation_is_not_written_again() -> None:
    endpoint = FakeEndpoint(answering(1, "one"))
    result = await sync_endpoint(endpoint, answering(1, "one"))
    assert endpoint.calls == []
    assert not result.changed


async def test_a_server_address_is_patched() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2))
    result = await sync_endpoint(endpoint, forwarding(1, 3))
    assert endpoint.calls == ["patch"]
    assert (result.reloaded, result.operations, result.reasons) == (False, 1, ())


async def test_a_structural_change_is_activated_with_its_reason() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2))
    result = await sync_endpoint(endpoint, forwarding(1, 2, balance="leastconn"))
    assert endpoint.calls == ["activate"]
    assert "backend app" in result.reasons[0]


async def test_rejected_patch_becomes_an_activation_with_the_reason() -> None:
    endpoint = FakeEndpoint(mapping(1, {"a": "1"}), patch=PatchRejectedError("fake-1", "entry not found"))
    result = await sync_endpoint(endpoint, mapping(1, {"a": "2"}))
    assert endpoint.calls == ["patch", "activate"]
    assert (result.reloaded, result.operations) == (True, 0)
    assert "entry not found" in result.reasons[0]


@pytest.mark.parametrize("error", [EndpointUnreachableError("fake-1", "gone"), DeploymentRejectedError("fake-1", "no")])
async def test_other_failures_are_the_callers(error: Exception) -> None:
    with pytest.raises(type(error)):
        await sync_endpoint(FakeEndpoint(None, activate=error), answering(1, "one"))


def test_the_fake_is_an_endpoint() -> None:
    endpoint: Endpoint = FakeEndpoint(None)
    assert endpoint.name == "fake-1"


def mixed(server_port: int) -> Generation:
    """Return a generation of which a part needs a reload."""
    return forwarding(1, server_port, balance="leastconn")


async def test_what_needs_no_reload_is_patched_before_the_reload() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2))
    result = await sync_endpoint(endpoint, mixed(3))
    assert endpoint.calls == ["patch", "activate"]
    assert (result.reloaded, result.operations, len(result.reasons)) == (True, 1, 1)


async def test_a_rejected_runtime_part_is_left_to_the_reload() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2), patch=PatchRejectedError("fake-1", "no such server"))
    result = await sync_endpoint(endpoint, mixed(3))
    assert endpoint.calls == ["patch", "activate"]
    assert (result.reloaded, result.operations) == (True, 0)
    assert "no such server" in result.reasons[0]
    assert "backend app" in result.reasons[1]


async def test_a_rejected_reload_takes_the_runtime_part_back() -> None:
    running = forwarding(1, 2)
    endpoint = FakeEndpoint(running, activate=DeploymentRejectedError("fake-1", "no room"))
    with pytest.raises(DeploymentRejectedError, match="no room"):
        await sync_endpoint(endpoint, mixed(3))
    assert endpoint.calls == ["patch", "activate", "patch"]
    assert endpoint.running == running


async def test_failed_rollback_is_reported_with_the_rejection() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2), activate=DeploymentRejectedError("fake-1", "no room"))
    endpoint.fails_from("patch", 2, EndpointUnreachableError("fake-1", "gone"))
    with pytest.raises(DeploymentRejectedError, match=r"no room; the rollback failed too: .*gone"):
        await sync_endpoint(endpoint, mixed(3))


async def test_what_is_not_known_to_be_undone_is_left_for_the_next_deployment() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2), activate=EndpointUnreachableError("fake-1", "gone"))
    with pytest.raises(EndpointUnreachableError):
        await sync_endpoint(endpoint, mixed(3))
    assert endpoint.calls == ["patch", "activate"]


async def test_without_leave_to_reload_the_structure_is_held_back() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2))
    result = await sync_endpoint(endpoint, mixed(3), may_reload=False)
    assert endpoint.calls == ["patch"]
    assert (result.changed, result.reloaded, result.operations) == (True, False, 1)
    assert "backend app" in result.held[0]
    again = await sync_endpoint(endpoint, mixed(3), may_reload=False)
    assert (again.changed, again.held) == (False, result.held)


def many_servers(first: int, *lines: str) -> Generation:
    """Return a generation of 300 servers with addresses of network *first*, and a backend with *lines*."""
    servers = (f"  server s{number} 10.{first}.{number // 100}.{number % 100}:80\n" for number in range(300))
    more = "".join(f"  {line}\n" for line in lines)
    return make_generation(parse_config(f"backend a_app\n{''.join(servers)}backend b_web\n{more}"), [])


async def test_very_many_changes_of_servers_are_deployed_in_parts() -> None:
    endpoint, desired = FakeEndpoint(many_servers(1)), many_servers(2)

    results = [await sync_endpoint(endpoint, desired) for _ in range(3)]

    assert [(result.operations, result.is_partial, result.changed) for result in results] == [
        (250, True, True),
        (50, False, True),
        (0, False, False),
    ]
    assert endpoint.calls == ["patch", "patch"]


async def test_a_reload_completes_what_was_deployed_in_part() -> None:
    endpoint, desired = FakeEndpoint(many_servers(1)), many_servers(2, "balance source")

    held = await sync_endpoint(endpoint, desired, may_reload=False)
    # The changed line of the other namespace is no server, so it takes no room.
    assert (held.operations, held.is_partial, len(held.held)) == (250, True, 1)
    assert endpoint.running is not None
    assert endpoint.running.id not in {many_servers(1).id, desired.id}

    result = await sync_endpoint(endpoint, desired)
    assert (result.reloaded, result.is_partial, result.held) == (True, False, ())
    assert endpoint.running == desired


async def test_the_first_generation_needs_no_leave_to_load() -> None:
    endpoint = FakeEndpoint(None)
    assert (await sync_endpoint(endpoint, answering(1, "one"), may_reload=False)).reloaded


async def test_only_a_verifying_deployment_observes_the_process() -> None:
    endpoint = FakeEndpoint(answering(1, "one"))
    await sync_endpoint(endpoint, answering(1, "one"))
    assert endpoint.calls == []
    endpoint.report = DriftReport(found={"server": 2}, operations=2)
    result = await sync_endpoint(endpoint, answering(1, "one"), verify=True)
    assert endpoint.calls == ["repair"]
    assert (result.changed, result.reloaded, result.operations, result.drift) == (True, False, 2, {"server": 2})


async def test_drift_that_needs_a_load_is_loaded_and_compared_again() -> None:
    endpoint = FakeEndpoint(forwarding(1, 2))
    endpoint.report = DriftReport(found={"backend": 1}, reasons=("drift: backend app removed",))
    result = await sync_endpoint(endpoint, forwarding(1, 3), verify=True)
    assert endpoint.calls == ["repair", "activate", "repair"]
    assert result.reasons == ("drift: backend app removed",)


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

    async def patch_former(self, running: Generation, generation: Generation, plan: Plan) -> None:
        self.number += 1
        if self.number in self._fail_former:
            raise self._fail_former[self.number]
        assert plan.operations
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

    async def split(
        self,
        running: Generation | None,
        desired: Generation,
        capabilities: Capabilities,
        room: int = SERVERS_AT_ONCE,
    ) -> SplitPlan:
        is_first, self._is_first = self._is_first, False
        if is_first:
            await self._until.wait()
        return await super().split(running, desired, capabilities, room)


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
    assert endpoint.running == mixed(2)


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
