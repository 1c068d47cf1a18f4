"""A deployment patches the running generation where it can, and reloads HAProxy where it must."""

import pytest

from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    DriftReport,
    Endpoint,
    EndpointInfo,
    EndpointUnreachableError,
    ObservedState,
    PatchRejectedError,
)
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.haproxy.plan.operations import Plan
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


def _tenant(balance: str, port: int, others: str = "backend bank_web_80\n") -> Generation:
    text = f"defaults\n  mode http\nbackend shop_web_80\n  balance {balance}\n  server s 127.0.0.1:{port}\n"
    return make_generation(parse_config(text + others), ())


async def test_changes_of_a_slowed_namespace_are_held_back_without_its_data() -> None:
    endpoint = FakeEndpoint(_tenant("roundrobin", 1))
    result = await sync_endpoint(endpoint, _tenant("leastconn", 2), slowed=frozenset({"shop", "bank"}))
    assert endpoint.calls == ["patch"]
    assert (result.reloaded, result.operations) == (False, 1)
    assert result.held[1:] == ("the namespace shop has caused many reloads",)
    assert result.causes == result.affected == {"shop"}

    result = await sync_endpoint(endpoint, _tenant("leastconn", 2), slowed=frozenset({"bank"}))
    assert (result.reloaded, result.held) == (True, ())


@pytest.mark.parametrize("others", ["", "backend no-route\n", "backend gateway::shop_api_80\n"])
async def test_a_namespace_without_others_is_not_held_back(others: str) -> None:
    endpoint = FakeEndpoint(_tenant("roundrobin", 1, others))
    desired, slowed = _tenant("leastconn", 1, others), frozenset({"shop"})
    held = await sync_endpoint(endpoint, desired, may_reload=False, slowed=slowed)
    assert held.held
    # What the interval holds back does not wait for the end of the namespace's hold, either.
    assert not held.affected <= slowed
    result = await sync_endpoint(endpoint, desired, slowed=slowed)
    assert (result.reloaded, result.held) == (True, ())


async def test_drift_that_needs_a_reload_does_not_wait_for_a_slowed_namespace() -> None:
    endpoint = FakeEndpoint(_tenant("roundrobin", 1))
    endpoint.report = DriftReport(found={"backend": 1}, reasons=("drift: backend app removed",))
    desired, slowed = _tenant("leastconn", 1), frozenset({"shop"})
    held = await sync_endpoint(endpoint, desired, verify=True, may_reload=False, slowed=slowed)
    assert held.held
    assert not held.affected <= slowed
    assert (await sync_endpoint(endpoint, desired, verify=True, slowed=slowed)).reloaded
