"""Which way a deployment takes."""

import pytest

from haptic_trio.dataplane.endpoint import (
    DeploymentRefusedError,
    Endpoint,
    EndpointInfo,
    EndpointUnreachableError,
    PatchRefusedError,
)
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.model import Generation
from haptic_trio.haproxy.operations import Plan
from tests.support.haproxy import answering, forwarding, mapping


class FakeEndpoint:
    """Runs what it is told to; `fail` is raised by the methods named with it."""

    def __init__(self, running: Generation | None, **fail: Exception) -> None:
        self.running = running
        self.calls: list[str] = []
        self._fail = fail

    @property
    def name(self) -> str:
        return "fake-1"

    async def describe(self) -> EndpointInfo:
        return EndpointInfo(name=self.name, version="2.8.25", generation=self.running.id if self.running else "")

    async def fetch_running(self) -> Generation | None:
        return self.running

    async def activate(self, generation: Generation) -> None:
        self._call("activate")
        self.running = generation

    async def patch(self, generation: Generation, plan: Plan) -> None:
        self._call("patch")
        assert not plan.reloads
        self.running = generation

    def _call(self, name: str) -> None:
        self.calls.append(name)
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


async def test_a_refused_patch_becomes_an_activation_that_says_why() -> None:
    endpoint = FakeEndpoint(mapping(1, {"a": "1"}), patch=PatchRefusedError("fake-1", "entry not found"))
    result = await sync_endpoint(endpoint, mapping(1, {"a": "2"}))
    assert endpoint.calls == ["patch", "activate"]
    assert (result.reloaded, result.operations) == (True, 0)
    assert "entry not found" in result.reasons[0]


@pytest.mark.parametrize("error", [EndpointUnreachableError("fake-1", "gone"), DeploymentRefusedError("fake-1", "no")])
async def test_other_failures_are_the_callers(error: Exception) -> None:
    with pytest.raises(type(error)):
        await sync_endpoint(FakeEndpoint(None, activate=error), answering(1, "one"))


def test_the_fake_is_an_endpoint() -> None:
    endpoint: Endpoint = FakeEndpoint(None)
    assert endpoint.name == "fake-1"
