from collections.abc import Iterator

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.channels import Channels
from haptic_trio.messages import ConfigValidated, DeploymentCompleted, ValidationFailed
from haptic_trio.stages.status_writers import DEPLOYMENT_LIMIT, VERDICT_LIMIT, wait_for_deployment
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
