"""Comparisons of 1,000 sections leave the event loop alone, and endpoints with equal states share one plan."""

import threading
from collections.abc import Callable
from functools import partial

import pytest
import trio

from haptic_trio.dataplane.endpoint import ObservedState
from haptic_trio.dataplane.planner import Planner
from haptic_trio.dataplane.sync import sync_endpoint
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Config, Generation, make_generation
from haptic_trio.haproxy.plan.capabilities import NEWEST
from haptic_trio.haproxy.plan.diff import diff_configs
from haptic_trio.haproxy.plan.split import SplitPlan, split_plan
from tests.dataplane.test_sync import FakeEndpoint

SECTIONS = 1000


def site(seconds: int, *, address: str = "10.0.0.1") -> Generation:
    """Return a generation in which each section has its own text for each value of *seconds*."""
    backends = (
        f"backend b{number} from http\n  timeout server {seconds}s\n  server s {address}:80\n"
        for number in range(SECTIONS)
    )
    return make_generation(parse_config("defaults http\n  mode http\n" + "".join(backends)), [])


ONE, TWO = site(1), site(2)
MOVED = site(1, address="10.0.0.2")


class Recorder:
    """Records the threads that compare configurations, and how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.threads: list[int] = []
        for module in ("plan", "split", "kept_servers"):
            monkeypatch.setattr(f"haptic_trio.haproxy.plan.{module}.diff_configs", self._record(diff_configs))

    def _record(self, compare: Callable[[Config, Config], object]) -> Callable[[Config, Config], object]:
        def recording(running: Config, desired: Config) -> object:
            self.threads.append(threading.get_ident())
            return compare(running, desired)

        return recording

    @property
    def is_off_the_loop(self) -> bool:
        return bool(self.threads) and threading.get_ident() not in self.threads


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    return Recorder(monkeypatch)


class SameEndpoint(FakeEndpoint):
    """An endpoint that reports the generation of its own process, an equal but not the same object."""

    async def observe(self) -> ObservedState:
        return ObservedState(running=self.running, capabilities=NEWEST)


async def test_changes_of_all_sections_are_compared_in_a_thread(recorder: Recorder) -> None:
    planner = Planner()

    assert not await planner.is_only_data(ONE, TWO)
    assert await planner.is_only_data(ONE, MOVED)
    assert (await planner.add_data(ONE, TWO)).id == ONE.id
    assert (await planner.add_data(ONE, MOVED)).id == MOVED.id
    assert (await planner.split(TWO, ONE, NEWEST)).reasons
    assert (await planner.plan(TWO, ONE, NEWEST)).reloads

    assert recorder.is_off_the_loop


async def test_the_same_generation_is_not_compared(recorder: Recorder) -> None:
    assert await Planner().add_data(ONE, ONE) is ONE
    assert not (await Planner().split(None, ONE, NEWEST)).operations

    assert recorder.threads == []


async def test_deployment_and_rollback_of_all_sections_are_planned_in_a_thread(recorder: Recorder) -> None:
    endpoint = SameEndpoint(ONE)

    await sync_endpoint(endpoint, MOVED)

    assert endpoint.calls == ["patch"]
    assert recorder.is_off_the_loop


async def test_endpoints_with_equal_states_share_one_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[str] = []

    def split(running: Generation, desired: Generation, *_rest: object) -> SplitPlan:
        computed.append(f"{running.id} to {desired.id}")
        return split_plan(running, desired, NEWEST)

    monkeypatch.setattr("haptic_trio.dataplane.planner.split_plan", split)
    planner = Planner()
    endpoints = [SameEndpoint(site(1)) for _ in range(5)]

    async with trio.open_nursery() as nursery:
        for endpoint in endpoints:
            nursery.start_soon(partial(sync_endpoint, endpoint, TWO, planner=planner))

    assert [endpoint.calls for endpoint in endpoints] == [["activate"]] * 5
    assert computed == [f"{ONE.id} to {TWO.id}"]


async def test_plans_of_different_states_are_kept_apart_and_only_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    planner = Planner()
    small = [make_generation(parse_config(f"global\n  maxconn {number}\n"), []) for number in range(10)]
    monkeypatch.setattr("haptic_trio.dataplane.planner.is_near", lambda *_: False)

    found = [await planner.split(small[0], desired, NEWEST) for desired in small[1:]]

    assert len({id(one) for one in found}) == 9
    assert (await planner.split(small[0], small[9], NEWEST)) is found[-1]
    assert (await planner.split(small[0], small[1], NEWEST)) is not found[0]


async def test_comparison_of_a_cancelled_caller_is_made_for_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def split(running: Generation, desired: Generation, *_rest: object) -> SplitPlan:
        begun.set()
        may_end.wait(30)
        return split_plan(running, desired, NEWEST)

    monkeypatch.setattr("haptic_trio.dataplane.planner.split_plan", split)
    planner = Planner()
    found: list[object] = []

    async def ask() -> None:
        found.append(await planner.split(ONE, TWO, NEWEST))

    first = trio.CancelScope()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_when, begun, first)
        with first:
            await ask()
        assert found == []
        nursery.start_soon(ask)
        may_end.set()

    assert len(found) == 1


async def cancel_when(event: threading.Event, scope: trio.CancelScope) -> None:
    await trio.to_thread.run_sync(event.wait, 30)
    scope.cancel()


async def test_servers_that_moved_are_taken_over_alone(recorder: Recorder) -> None:
    """*ONE* runs; from *TWO*, which replaces it, to the newest generation every server moves."""
    newest = site(2, address="10.0.0.2")

    running, moved, is_partial = ONE, 0, True
    while is_partial:
        split = await Planner().follow(running, TWO, newest, NEWEST)
        assert split.effective is not None
        assert split.reasons == ()
        running, moved, is_partial = split.effective, moved + len(split.operations), split.is_partial

    assert running == MOVED
    assert moved == SECTIONS
    assert recorder.is_off_the_loop
    assert await Planner().follow(ONE, TWO, TWO, NEWEST) == SplitPlan(None, (), ())


async def test_data_for_a_reload_is_complete_however_many_servers_changed() -> None:
    assert (await Planner().split(ONE, MOVED, NEWEST)).is_partial
    assert await Planner().add_data(ONE, MOVED) == MOVED
