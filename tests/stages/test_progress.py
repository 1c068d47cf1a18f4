"""Work of any size is healthy as long as it goes on, and its progress is visible."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.cli.serving.probes import health_of
from haptic_trio.messages import ConfigInvalid, IterationEnded, ProgressMade
from haptic_trio.templating.incremental import each
from tests.support.components.controller import SERVICES, ControllerRig, config_map
from tests.support.kubernetes import service

pytestmark = pytest.mark.process

TEMPLATE = """\
global
    maxconn 10
{% each service in resources.services %}
backend {{ ident(service.metadata.name) }}
    mode http
{% endeach %}
"""


class Gate:
    """Lets fragments render one by one, when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._permits = threading.Semaphore(0)
        self._arrivals = threading.Semaphore(0)
        render = each._render_child

        def render_when_permitted(*arguments: object) -> None:
            self._arrivals.release()
            self._permits.acquire()
            render(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(each, "_render_child", render_when_permitted)

    async def arrived(self) -> None:
        """Return once another fragment waits."""
        await trio.to_thread.run_sync(self._arrivals.acquire)

    async def pass_one(self) -> None:
        """Let one fragment render; return once the next one waits."""
        self._permits.release()
        await self.arrived()

    def open(self) -> None:
        """Let all fragments render."""
        self._permits.release(1000)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    return Gate(monkeypatch)


async def test_render_that_makes_progress_is_live_for_any_time_and_one_that_hangs_is_not(
    mock_clock: MockClock, rig: ControllerRig, gate: Gate
) -> None:
    rig.cluster.put(
        config_map(haproxyConfig={"template": TEMPLATE}, templating={"renderTimeout": "10s"}),
        *(service(f"web{number}") for number in range(20)),
    )
    async with rig.running():
        await gate.arrived()
        for number in range(10):
            assert health_of(rig.process).is_live, number
            mock_clock.jump(6)
            await gate.pass_one()
        assert health_of(rig.process).is_live
        assert health_of(rig.process).missing == ("no valid configuration was made yet; rendered 10 of 20 fragments",)
        mock_clock.jump(11)
        assert health_of(rig.process).stalled == ("coordinator: busy for 11.0 s without progress, limit 10.0 s",)
        gate.open()
        await rig.deployed("backend web19")
        assert health_of(rig.process).is_live


async def test_long_render_reports_its_progress_in_the_log(
    mock_clock: MockClock, rig: ControllerRig, gate: Gate
) -> None:
    rig.cluster.put(config_map(haproxyConfig={"template": TEMPLATE}), *(service(f"web{number}") for number in range(3)))
    async with rig.running():
        await gate.arrived()
        for _ in range(2):
            await gate.pass_one()
            for _ in range(2):
                # Twice the interval: nothing is repeated without progress.
                mock_clock.jump(5)
                await wait_all_tasks_blocked(0.01)
        gate.open()
        await rig.deployed("backend web2")

    reports = [event.progress for event in rig.events.all(ProgressMade)]
    assert reports == ["rendered 1 of 3 fragments", "rendered 2 of 3 fragments"]


async def test_start_goes_on_as_long_as_the_first_lists_make_progress(
    mock_clock: MockClock, rig: ControllerRig
) -> None:
    rig.cluster.put(config_map(controller={"startTimeout": "60s"}))
    rig.cluster.silence(SERVICES)
    async with rig.running():
        await rig.reached(2, 1)
        await wait_all_tasks_blocked()
        await pass_time(mock_clock, 300, lambda: set_listed(rig))

        assert rig.iteration is not None
        assert rig.iteration.missing == (
            "stage `watch_resources` waits for the first lists: services; listed 300 objects",
        )
        assert not rig.events.all(IterationEnded)
        await pass_time(mock_clock, 58)
        assert not rig.events.all(IterationEnded)
        await pass_time(mock_clock, 4)
        ended = await rig.ended(1)

    assert ended.reason == "start timed out"
    assert "listed 300 objects" in {event.progress for event in rig.events.all(ProgressMade)}


async def test_candidate_waits_as_long_as_the_lists_make_progress(mock_clock: MockClock, tmp_path: Path) -> None:
    rig = ControllerRig(tmp_path)
    pods = {"apiVersion": "v1", "resources": "pods"}
    rig.cluster.put(config_map())
    async with rig.running():
        await rig.deployed("maxconn 10")
        rig.cluster.silence(SERVICES)
        services = {"apiVersion": "v1", "resources": "services", "labelSelector": "app=web"}
        rig.cluster.put(config_map(number=20, watchedResources={"services": services, "pods": pods}))
        await wait_all_tasks_blocked(0.05)
        await pass_time(mock_clock, 120, lambda: set_listed(rig))
        assert not rig.events.all(ConfigInvalid)
        rig.cluster.answer(SERVICES)
        await rig.deployed("maxconn 20")


def set_listed(rig: ControllerRig) -> None:
    rig.cluster.listed += 1


async def pass_time(clock: MockClock, seconds: int, each_second: Callable[[], None] = lambda: None) -> None:
    for _ in range(seconds):
        each_second()
        clock.jump(1)
        await wait_all_tasks_blocked()
