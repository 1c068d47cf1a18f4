"""An iteration that is not ready reports what is missing."""

from pathlib import Path

import pytest
from trio.testing import wait_all_tasks_blocked

from haptic_trio.channels import Channels, Latest
from haptic_trio.messages import (
    ConfigInvalid,
    ConfigValidated,
    DeploymentCompleted,
    LeadershipChanged,
    ReconcileFailed,
)
from haptic_trio.stages.process import IterationState
from tests.support.components.controller import SERVICES, ControllerRig, config_map, leading, raw_config_map
from tests.support.messages import example_of


def missing_of(rig: ControllerRig) -> tuple[str, ...]:
    """Return what the iteration lacks."""
    assert rig.iteration is not None
    assert rig.iteration.is_ready is not bool(rig.iteration.missing)
    return rig.iteration.missing


async def test_invalid_configuration_is_what_the_first_stage_waits_for(tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    rig.cluster.put(raw_config_map("nonsense: true"))
    async with rig.running():
        await rig.wait(ConfigInvalid)

        assert missing_of(rig) == ("stage `load_config` waits for a valid ConfigMap",)


async def test_kinds_that_have_no_list_yet_are_named(tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    rig.cluster.put(config_map())
    rig.cluster.silence(SERVICES)
    async with rig.running():
        await rig.reached(2, 1)
        await wait_all_tasks_blocked()

        assert missing_of(rig) == ("stage `watch_resources` waits for the first lists: services",)
        rig.cluster.answer(SERVICES)
        await rig.reached(3, 1)
        assert rig.iteration is not None
        assert not rig.iteration.pending_lists


async def test_rejected_configuration_is_reported_with_its_phase(tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    rig.cluster.put(config_map(haproxyConfig={"template": "{{ 1 / 0 }}"}))
    async with rig.running():
        await rig.wait(ReconcileFailed)

        assert missing_of(rig) == ("no valid configuration was made yet; the newest was rejected in phase render",)


@pytest.mark.process
async def test_leader_is_not_ready_before_an_instance_has_the_configuration(tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    rig.endpoint.fails = 1
    rig.cluster.put(config_map())
    async with rig.running():
        await rig.wait(DeploymentCompleted, lambda event: bool(event.failed))

        assert missing_of(rig) == ("the deployment of the configuration failed on: one",)


def test_follower_is_ready_with_a_valid_configuration_and_the_leader_is_not_without_an_instance() -> None:
    with Channels() as channels:
        leadership = Latest[LeadershipChanged]()
        state = IterationState(
            number=1,
            opened=0.0,
            stage=5,
            channels=channels,
            validated=channels.validated,
            completed=channels.completed,
            leadership=leadership,
        )
        leadership.put(leading(is_leader=False))
        assert state.missing == ("no valid configuration was made yet",)

        channels.validated.put(example_of(ConfigValidated))
        assert state.is_ready

        leadership.put(leading())
        assert state.missing == ("no HAProxy instance has the configuration yet",)
