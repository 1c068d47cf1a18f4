from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import Channels, Latest
from haptic_trio.k8s.api.cluster import ApiCluster
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import ConfigValidated, DeploymentCompleted, ValidationFailed
from haptic_trio.stages.process import StatusAccess
from haptic_trio.stages.status_writers import DEPLOYMENT_LIMIT, VERDICT_LIMIT, wait_for_deployment
from tests.support.components.controller import ControllerRig, config_map
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.kubernetes import ingress, ingress_class
from tests.support.messages import example_of


@pytest.fixture
def channels() -> Iterator[Channels]:
    with Channels() as channels:
        yield channels


async def test_statuses_wait_for_the_first_deployment(channels: Channels, autojump_clock: MockClock) -> None:
    began = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_deployment, channels)
        await trio.sleep(30)
        channels.validated.put(example_of(ConfigValidated))
        await trio.sleep(2)
        channels.completed.put(example_of(DeploymentCompleted))

    assert trio.current_time() - began == pytest.approx(32)


async def test_statuses_of_a_later_term_wait_for_nothing(channels: Channels, autojump_clock: MockClock) -> None:
    channels.validated.put(example_of(ConfigValidated))
    channels.completed.put(example_of(DeploymentCompleted))
    began = trio.current_time()

    await wait_for_deployment(channels)

    assert trio.current_time() == pytest.approx(began)


async def test_a_rejected_configuration_is_enough(channels: Channels, autojump_clock: MockClock) -> None:
    began = trio.current_time()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait_for_deployment, channels)
        await trio.sleep(3)
        channels.rejected.put(example_of(ValidationFailed))

    assert trio.current_time() - began == pytest.approx(3)


@pytest.mark.parametrize(("is_valid", "limit"), [(False, VERDICT_LIMIT), (True, DEPLOYMENT_LIMIT)])
async def test_statuses_do_not_wait_for_ever(
    channels: Channels, autojump_clock: MockClock, is_valid: bool, limit: float
) -> None:
    if is_valid:
        channels.validated.put(example_of(ConfigValidated))
    began = trio.current_time()

    await wait_for_deployment(channels)

    assert trio.current_time() - began == pytest.approx(limit)


class StatusServer:
    """Takes statuses, and notes how many deployments there were before each."""

    def __init__(self, endpoint: MemoryEndpoint) -> None:
        self._endpoint = endpoint
        self.written: Latest[int] = Latest()

    async def apply(self, resource: Resource, **_how: Any) -> Resource:
        await trio.lowlevel.checkpoint()
        self.written.put(len(self._endpoint.taken))
        return resource


@pytest.mark.process
async def test_no_status_is_written_while_the_first_deployment_is_under_way(rig: ControllerRig) -> None:
    server = StatusServer(rig.endpoint)
    access = StatusAccess(server=cast("ApiCluster", server), instance="me", addresses=("192.0.2.1",))
    rig.process = replace(rig.process, status_access=access)
    rig.endpoint.seconds = 0.2
    rig.cluster.put(
        config_map(templating={"libraries": ["base", "ssl", "ingress"]}),
        ingress_class("haptic", "haptic-trio/ingress-controller"),
        ingress("shop"),
    )

    async with rig.running():
        await server.written.wait_newer(0)

    assert server.written.value == 1
