"""One iteration after another: backoff, start timeout, drain, and never two at once."""

import threading
from typing import Any

import msgspec
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio import cancellation
from haptic_trio.dataplane.local.check import CheckDirectory
from haptic_trio.k8s.resource import ResourceType
from haptic_trio.messages import (
    ConfigChanged,
    ConfigInvalid,
    DeploymentCompleted,
    InstanceDeployed,
    IterationEnded,
    ProblemsReported,
    StageReached,
)
from tests.support.components.controller import SERVICES, ControllerRig, config_map, raw_config_map
from tests.support.components.endpoints import MemoryEndpoint
from tests.support.kubernetes import service

pytestmark = pytest.mark.process

HANGING = ResourceType("v2", "services")


def watching(resource_type: ResourceType, **fields: Any) -> Any:
    watched = {"apiVersion": resource_type.api_version, "resources": resource_type.plural}
    return config_map(watchedResources={"services": watched}, **fields)


async def test_iteration_that_does_not_start_in_time_gives_way_to_the_last_good_configuration(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.cluster.put(config_map(number=10), service("web"))
    rig.cluster.silence(HANGING)

    async with rig.running():
        await rig.deployed("maxconn 10")
        rig.cluster.break_watches(SERVICES, OSError("no route to host"))
        await rig.ended(1)
        # Not a candidate: nothing is served while it is opened.
        rig.cluster.put(watching(HANGING, number=20))
        await rig.reached(2, 2)
        mock_clock.jump(59)
        await wait_all_tasks_blocked(0.01)
        assert rig.iteration is not None
        assert rig.iteration.number == 2

        mock_clock.jump(1)
        ended = await rig.ended(2)
        await rig.reached(5, 3)
        rig.cluster.put(service("api"))
        await rig.deployed("backend api")
        assert "maxconn 10" in rig.endpoint.text
        # Its kind answers now.
        rig.cluster.answer(HANGING)
        await rig.deployed("maxconn 20")

    assert (ended.reason, ended.seconds) == ("start timed out", 60)
    assert rig.stages(2) == [1, 2]
    report = rig.events.all(ProblemsReported)
    assert [(event.source, event.problems[0].message) for event in report] == [
        ("iteration 1", "no route to host"),
        ("iteration 2", "stage `watch_resources` was not ready within 60 s"),
    ]


async def test_first_iteration_that_does_not_start_in_time_is_opened_again(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.cluster.put(config_map(controller={"startTimeout": "5s"}))
    rig.cluster.silence(SERVICES)

    async with rig.running():
        await rig.reached(2, 1)
        mock_clock.jump(5)
        await rig.reached(2, 2)
        rig.cluster.answer(SERVICES)
        await rig.deployed("global")

    assert rig.stages(2) == [1, 2, 3, 4, 5]


async def test_failing_iterations_are_tried_again_later_each_time(mock_clock: MockClock, rig: ControllerRig) -> None:
    rig.cluster.put(config_map())
    rig.cluster.failures[SERVICES] = [OSError("no route to host")] * 8

    async with rig.running():
        for number, delay in enumerate((0.5, 1, 2, 4, 8, 16, 30, 30), start=1):
            ended = await rig.ended(number)
            await wait_all_tasks_blocked(0.001)
            mock_clock.jump(delay - 0.01)
            await wait_all_tasks_blocked(0.001)
            assert rig.iteration is None, number
            mock_clock.jump(0.02)
            await rig.reached(1, number + 1)
            assert ended.reason == "failed"
        await rig.deployed("global")


async def test_configuration_change_resets_the_delay(mock_clock: MockClock, rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=10))
    rig.cluster.failures[SERVICES] = [OSError("no route to host")] * 3

    async with rig.running():
        for number, delay in enumerate((0.5, 1, 2), start=1):
            await rig.ended(number)
            await wait_all_tasks_blocked(0.001)
            mock_clock.jump(delay)
        await rig.reached(5, 4)
        rig.cluster.put(config_map(number=20))
        await rig.deployed("maxconn 20")
        rig.cluster.break_watches(SERVICES, OSError("no route to host"))
        await rig.ended(5)
        await wait_all_tasks_blocked(0.001)
        mock_clock.jump(0.5)
        await rig.reached(5, 6)


async def test_healthy_iteration_resets_the_delay(mock_clock: MockClock, rig: ControllerRig) -> None:
    rig.cluster.put(config_map())

    async with rig.running():
        for number, (seconds, delay) in enumerate([(40, 0.5), (40, 0.5), (1, 1), (1, 2), (40, 0.5)], start=1):
            await rig.reached(5, number)
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(seconds)
            await wait_all_tasks_blocked(0.01)
            rig.cluster.break_watches(SERVICES, OSError("cut off"))
            await rig.ended(number)
            await wait_all_tasks_blocked(0.01)
            mock_clock.jump(delay)

    reported = rig.events.all(ProblemsReported)
    assert [event.problems[0].hint for event in reported] == [
        f"next attempt in {delay:g} s" for delay in (0.5, 0.5, 1, 2, 0.5)
    ]


async def test_corrected_configuration_is_opened_during_the_delay(mock_clock: MockClock, rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=10))
    rig.cluster.failures[SERVICES] = [OSError("no route to host")] * 5

    async with rig.running():
        for number, delay in enumerate((0.5, 1, 2, 4), start=1):
            await rig.ended(number)
            await wait_all_tasks_blocked(0.001)
            mock_clock.jump(delay)
        await rig.ended(5)
        await wait_all_tasks_blocked(0.01)
        assert rig.iteration is None
        rig.cluster.put(config_map(number=20))
        await rig.deployed("maxconn 20")
        assert trio.current_time() == 7.5


async def test_invalid_configuration_during_the_delay_is_reported_once_and_the_last_good_one_runs(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.cluster.put(config_map(number=10))

    async with rig.running():
        await rig.deployed("maxconn 10")
        rig.cluster.break_watches(SERVICES, OSError("no route to host"))
        await rig.ended(1)
        rig.cluster.put(raw_config_map("dataplane: {port: many}\n"))
        await rig.reached(5, 2)
        await rig.wait(ConfigInvalid)
        rig.cluster.put(service("web"))
        await rig.deployed("backend web")

        assert "maxconn 10" in rig.endpoint.text
        rig.cluster.put(config_map(number=30))
        await rig.deployed("maxconn 30")

    assert len(rig.events.all(ConfigInvalid)) == 1


async def test_failure_is_reported_with_its_reason_and_when_it_is_tried_again(rig: ControllerRig) -> None:
    rig.cluster.put(config_map())
    rig.cluster.failures[SERVICES] = [OSError("no route to host")]

    async with rig.running():
        report = await rig.wait(ProblemsReported)

    assert report.source == "iteration 1"
    assert [str(problem) for problem in report.problems] == ["no route to host (next attempt in 0.5 s)"]


async def test_fault_of_the_program_is_not_tried_again(rig: ControllerRig) -> None:
    rig.cluster.put(config_map())
    rig.cluster.failures[SERVICES] = [ZeroDivisionError("a bug")]

    with pytest.RaisesGroup(pytest.RaisesExc(ZeroDivisionError), flatten_subgroups=True):
        async with rig.running():
            with trio.fail_after(5):
                await trio.sleep_forever()

    assert rig.iteration is None
    assert rig.cluster.watches == 0


async def test_next_iteration_opens_only_after_the_deployment_in_flight_has_ended(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.cluster.put(config_map(number=10))
    rig.endpoint.seconds = 3

    async with rig.running():
        await rig.endpoint.begun.wait_newer(0)
        rig.cluster.put(config_map(number=20))
        # It is loaded and rendered in threads.
        await rig.wait(ConfigChanged)
        await wait_all_tasks_blocked(0.05)
        assert rig.iteration is not None
        assert rig.iteration.number == 1
        assert rig.events.all(IterationEnded) == []

        mock_clock.jump(3)
        await rig.ended(1)
        assert "maxconn 10" in rig.endpoint.text
        await rig.reached(5, 2)
        await rig.endpoint.begun.wait_newer(1)
        mock_clock.jump(3)
        await rig.deployed("maxconn 20")


async def test_deployment_that_does_not_end_holds_an_iteration_no_longer_than_the_drain_timeout(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.cluster.put(config_map(number=10))
    rig.endpoint.seconds = 29

    async with rig.running():
        await rig.endpoint.begun.wait_newer(0)
        rig.cluster.put(config_map(number=20))
        # It is loaded and rendered in threads.
        await rig.wait(ConfigChanged)
        await wait_all_tasks_blocked(0.05)
        mock_clock.jump(4.9)
        await wait_all_tasks_blocked(0.01)
        assert rig.events.all(IterationEnded) == []
        mock_clock.jump(0.2)
        await rig.ended(1)
        rig.endpoint.seconds = 0
        await rig.deployed("maxconn 20")


async def test_iterations_never_overlap_however_fast_the_configuration_changes(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=1))

    async with rig.running():
        for number in range(2, 30):
            rig.cluster.put(config_map(number=number))
            for _ in range(number):
                await trio.lowlevel.checkpoint()
        await rig.deployed("maxconn 29")

    story = [
        (event.iteration, isinstance(event, IterationEnded))
        for event in rig.events.all(msgspec.Struct)
        if isinstance(event, StageReached | IterationEnded)
    ]
    # Nothing of an iteration comes before the end of the one before it.
    assert story == sorted(story)


async def test_every_deployment_belongs_to_the_iteration_that_runs(rig: ControllerRig) -> None:
    rig.cluster.put(config_map(number=1))

    async with rig.running():
        for number in range(2, 6):
            await rig.deployed(f"maxconn {number - 1}")
            await rig.wait(DeploymentCompleted, lambda event, n=number: event.correlation == f"{n - 1}-1")  # type: ignore[misc]
            rig.cluster.put(config_map(number=number))
        await rig.deployed("maxconn 5")


async def test_endpoint_gets_the_last_valid_configuration_although_the_new_one_renders_nothing_valid(
    rig: ControllerRig,
) -> None:
    rig.cluster.put(config_map(number=10), service("web"))
    late = MemoryEndpoint("late")

    async with rig.running():
        await rig.deployed("backend web")
        rig.cluster.put(config_map(haproxyConfig={"template": "{{ nothing.here }}"}))
        await rig.wait(ConfigInvalid)
        rig.process.endpoints.put((rig.endpoint, late))
        await rig.wait(InstanceDeployed, lambda event: event.result.endpoint == "late")

    assert late.text == rig.endpoint.text
    assert "maxconn 10" in late.text


async def test_next_iteration_does_not_wait_until_files_of_the_former_one_are_removed(
    rig: ControllerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, remove = threading.Event(), CheckDirectory.remove

    def remove_slowly(directory: CheckDirectory) -> None:
        gate.wait(cancellation.CLEANUP_LIMIT)
        remove(directory)

    monkeypatch.setattr(cancellation, "CLEANUP_LIMIT", 60.0)
    monkeypatch.setattr(CheckDirectory, "remove", remove_slowly)
    rig.cluster.put(config_map(number=20))
    async with rig.running():
        await rig.deployed("maxconn 20")
        for number in (30, 40, 50):
            rig.cluster.put(config_map(number=number))
            await rig.deployed(f"maxconn {number}")
        assert not gate.is_set()
        gate.set()

    assert [*rig.process.scratch.glob("haptic-trio-check-*")] == []
