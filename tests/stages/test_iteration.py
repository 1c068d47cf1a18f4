"""Five stages, one after another, and what ends them."""

import threading
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from haptic_trio.config.load import LoadedConfig, load_config
from haptic_trio.deployment.reload_pacing import FREE
from haptic_trio.k8s.resource import Resource
from haptic_trio.messages import (
    ConfigChanged,
    ConfigInvalid,
    DeploymentCompleted,
    IndexSynchronized,
    IterationEnded,
    ReconcileCompleted,
    ReconcileTriggered,
    StageReached,
)
from tests.support.components.controller import SERVICES, ControllerRig, config_map, credentials, raw_config_map
from tests.support.kubernetes import service

pytestmark = pytest.mark.process


async def test_stages_are_ready_one_after_another_and_then_the_configuration_is_deployed(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(), service("web"))

    async with rig.running():
        await rig.deployed("backend web")

    stages = [(event.iteration, event.stage, event.name) for event in rig.events.all(StageReached)]
    assert stages == [
        (1, 1, "load_config"),
        (1, 2, "components"),
        (1, 3, "watch_resources"),
        (1, 4, "watch_config"),
        (1, 5, "reconcile"),
    ]
    assert [event.counts for event in rig.events.all(IndexSynchronized)] == [{"services": 1}]


async def test_nothing_is_reconciled_before_every_first_list_is_in_its_store(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(), service("web"))
    rig.cluster.silence(SERVICES)

    async with rig.running():
        await rig.reached(2, 1)
        await wait_all_tasks_blocked(0.01)
        assert rig.stages(1) == [1, 2]
        assert rig.iteration is not None
        assert not rig.iteration.is_ready

        rig.cluster.answer(SERVICES)
        await rig.deployed("backend web")

    assert rig.stages(1) == [1, 2, 3, 4, 5]
    triggers = rig.events.all(ReconcileTriggered)
    assert [(event.correlation, event.reason.value) for event in triggers] == [("1-1", "index synchronized")]


async def test_kind_that_is_not_required_does_not_hold_back_the_start(rig: ControllerRig) -> None:
    kind = {"apiVersion": "v1", "resources": "services", "required": False}
    rig.cluster.put(config_map(watchedResources={"services": kind}), service("web"))
    rig.cluster.silence(SERVICES)

    async with rig.running():
        await rig.deployed("global")
        assert "backend web" not in rig.endpoint.text

        rig.cluster.answer(SERVICES)
        rig.cluster.put(service("api"))
        await rig.deployed("backend api")


async def test_first_list_that_comes_after_the_start_is_rendered_without_another_change(rig: ControllerRig) -> None:
    kind = {"apiVersion": "v1", "resources": "services", "required": False}
    rig.cluster.put(config_map(watchedResources={"services": kind}), service("web"))
    rig.cluster.silence(SERVICES)

    async with rig.running():
        await rig.deployed("global")
        rig.cluster.answer(SERVICES)

        await rig.deployed("backend web")


async def test_iteration_is_ready_once_its_first_configuration_is_deployed(rig: ControllerRig) -> None:
    rig.cluster.put(config_map())

    async with rig.running():
        await rig.wait(ReconcileCompleted)
        assert rig.iteration is not None
        assert rig.iteration.is_ready
        assert rig.iteration.stage == 5


async def test_absent_configmap_is_reported_and_waited_for(rig: ControllerRig) -> None:
    async with rig.running():
        invalid = await rig.wait(ConfigInvalid)
        rig.cluster.put(config_map())
        await rig.deployed("global")

    assert [str(problem) for problem in invalid.problems] == [
        "ConfigMap default/haptic-trio: not found (create it, or name another one with --config-map)"
    ]
    assert {event.iteration for event in rig.events.all(StageReached)} == {1}


async def test_invalid_configuration_at_the_start_is_reported_and_a_valid_one_waited_for(rig: ControllerRig) -> None:
    rig.cluster.put(raw_config_map("reconciler: {debounceIntervall: 5s}\n"))

    async with rig.running():
        invalid = await rig.wait(ConfigInvalid)
        await wait_all_tasks_blocked(0.01)
        assert rig.stages(1) == []
        rig.cluster.put(config_map())
        await rig.deployed("global")

    assert [problem.path for problem in invalid.problems] == ["reconciler.debounceIntervall"]
    assert len(rig.events.all(ConfigInvalid)) == 1
    assert rig.events.all(IterationEnded) == []


async def test_changed_configmap_ends_the_iteration_and_the_next_one_runs_it(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.deployed("maxconn 10")
        rig.cluster.put(config_map(number=20))
        ended = await rig.ended(1)
        await rig.deployed("maxconn 20")

    assert ended.reason == "configuration changed"
    assert rig.stages(2) == [1, 2, 3, 4, 5]


async def test_reloads_of_a_namespace_are_counted_on_when_the_configuration_changes(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.deployed("maxconn 10")
        for _reload in range(FREE + 1):
            rig.process.retained.reload_pacing.record({"shop"}, trio.current_time())
        rig.cluster.put(config_map(number=20))
        completed = await rig.wait(
            DeploymentCompleted, lambda _event: "maxconn 20" in rig.endpoint.text, since=len(rig.events)
        )

    assert [namespace for namespace, _ in completed.state.slowed] == ["shop"]


async def test_changed_secret_ends_the_iteration(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(), credentials("one"))

    async with rig.running():
        await rig.reached(5, 1)
        rig.cluster.put(credentials("two"))
        await rig.reached(5, 2)
        assert rig.iteration is not None
        assert rig.iteration.loaded is not None
        assert rig.iteration.loaded.credentials is not None
        assert rig.iteration.loaded.credentials.dataplane_password == "two"


async def test_secret_that_appears_or_goes_away_ends_the_iteration(rig: ControllerRig) -> None:
    rig.cluster.put(config_map())

    async with rig.running():
        await rig.reached(5, 1)
        rig.cluster.put(credentials("one"))
        await rig.reached(5, 2)
        rig.cluster.remove(credentials("one"))
        await rig.reached(5, 3)


async def test_invalid_change_is_reported_once_and_changes_nothing(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(), service("web"))

    async with rig.running():
        await rig.deployed("backend web")
        rig.cluster.put(raw_config_map("dataplane: {port: many}\n"))
        invalid = await rig.wait(ConfigInvalid)
        rig.cluster.put(service("api"))
        await rig.deployed("backend api")

    assert [problem.path for problem in invalid.problems] == ["dataplane.port"]
    assert len(rig.events.all(ConfigInvalid)) == 1
    assert rig.events.all(IterationEnded) == []


async def test_version_that_is_known_changes_nothing_and_is_not_reported_again(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(), credentials("one"), service("web"))

    async with rig.running():
        await rig.deployed("backend web")
        rig.cluster.relist()
        await wait_all_tasks_blocked(0.02)
        assert rig.events.all(ConfigInvalid) == []
        rig.cluster.put(raw_config_map("dataplane: {port: many}\n"))
        await rig.wait(ConfigInvalid)
        rig.cluster.relist()
        rig.cluster.put(service("api"))
        await rig.deployed("backend api")

    assert len(rig.events.all(ConfigInvalid)) == 1
    assert rig.events.all(IterationEnded) == []
    assert len(rig.events.all(ReconcileTriggered)) == 2


async def test_change_back_to_what_runs_is_a_change_of_version_all_the_same(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.reached(5, 1)
        rig.cluster.put(raw_config_map("dataplane: {port: many}\n"))
        await rig.wait(ConfigInvalid)
        rig.cluster.put(config_map(number=10))
        await rig.reached(5, 2)


async def test_stores_of_equal_selection_share_one_watch_and_others_have_their_own(rig: ControllerRig) -> None:
    services = {"apiVersion": "v1", "resources": "services"}
    watched = {
        "services": services,
        "byName": {**services, "indexBy": ["metadata.name"]},
        "labelled": {**services, "labelSelector": "app=web"},
    }
    rig.cluster.put(config_map(watchedResources=watched), service("web"))

    async with rig.running():
        await rig.deployed("backend web")
        # Of the ConfigMap, of the Secret, and two of Services.
        assert rig.cluster.watches == 4
        [synchronized] = rig.events.all(IndexSynchronized)

    assert synchronized.counts == {"services": 1, "byName": 1, "labelled": 0}


async def test_deleted_configmap_is_reported_and_changes_nothing(rig: ControllerRig) -> None:
    rig.cluster.put(config_map())

    async with rig.running():
        await rig.deployed("global")
        rig.cluster.remove(config_map())
        invalid = await rig.wait(ConfigInvalid)
        rig.cluster.put(service("web"))
        await rig.deployed("backend web")

    assert invalid.problems[0].message == "the ConfigMap was deleted"
    assert rig.events.all(IterationEnded) == []


async def test_change_ends_an_iteration_whose_start_is_held_up(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(), service("web"))
    rig.cluster.silence(SERVICES)

    async with rig.running():
        await rig.reached(2, 1)
        rig.cluster.put(config_map(watchedResources={"services": {"apiVersion": "v2", "resources": "services"}}))
        await rig.deployed("global")

    assert rig.stages(1) == [1, 2]
    assert rig.stages(2) == [1, 2, 3, 4, 5]


async def test_change_during_the_very_load_of_the_start_reopens(tmp_path: Path) -> None:
    changed = threading.Event()

    def load_while_it_changes(configmap: Resource, secret: Resource | None) -> LoadedConfig:
        if not changed.is_set():
            changed.set()
            trio.from_thread.run_sync(rig.cluster.put, config_map(number=20))
            trio.from_thread.run(wait_all_tasks_blocked)
        return load_config(configmap, secret)

    rig = ControllerRig(tmp_path, load=load_while_it_changes)
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.deployed("maxconn 20")

    assert [event.reason for event in rig.events.all(IterationEnded)] == ["configuration changed"]
    assert len(rig.events.all(ConfigChanged)) == 1


async def test_end_of_an_iteration_closes_every_watch(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.reached(5, 1)
        assert rig.cluster.watches == 3
        rig.cluster.put(config_map(number=20))
        await rig.reached(5, 2)
        assert rig.cluster.watches == 3

    assert rig.cluster.watches == 0


@pytest.mark.parametrize("stage", [1, 2, 3, 4, 5])
async def test_controller_that_is_cancelled_at_any_stage_leaves_nothing_open(rig: ControllerRig, stage: int) -> None:
    rig.cluster.put(config_map(), service("web"))

    with trio.fail_after(5):
        async with rig.running():
            await rig.reached(stage, 1)

    assert rig.cluster.watches == 0
    assert rig.iteration is None


async def test_changed_configuration_is_loaded_and_checked_once(tmp_path: Path) -> None:
    versions = list[str]()

    def load(configmap: Resource, secret: Resource | None) -> LoadedConfig:
        loaded = load_config(configmap, secret)
        versions.append(loaded.version)
        return loaded

    rig = ControllerRig(tmp_path, load=load)
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.deployed("maxconn 10")
        rig.cluster.put(config_map(number=20))
        await rig.deployed("maxconn 20")
        rig.cluster.put(config_map(number=30))
        await rig.deployed("maxconn 30")

    assert len(versions) == len(set(versions)) == 3
