"""Idle is healthy, busy for too long is stalled, and a timer that stops firing is."""

import pytest

from haptic_trio.heartbeat import Heartbeat, Heartbeats


class Clock:
    """A clock that stands where the test puts it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_idle_component_is_healthy_however_long_it_idles(clock: Clock) -> None:
    heartbeat = Heartbeat("coordinator", 10, clock=clock)
    clock.now += 1e6

    state = heartbeat.state()

    assert (state.name, state.stalled, state.busy_for, state.limit) == ("coordinator", False, 0.0, 10.0)


def test_component_that_makes_progress_is_not_stalled(clock: Clock) -> None:
    heartbeat = Heartbeat("checker", 10, clock=clock)
    with heartbeat.busy() as progress:
        clock.now += 9
        progress()
        clock.now += 9
        assert not heartbeat.state().stalled
        clock.now += 2
        assert heartbeat.state().stalled


def test_component_is_stalled_once_it_is_busy_beyond_its_limit(clock: Clock) -> None:
    heartbeat = Heartbeat("coordinator", 10, clock=clock)
    with heartbeat.busy():
        clock.now += 10
        assert not heartbeat.state().stalled
        clock.now += 0.5
        assert heartbeat.state().stalled
        assert heartbeat.state().detail == "busy for 10.5 s, limit 10.0 s"
    assert not heartbeat.state().stalled


def test_each_piece_of_work_has_the_whole_limit(clock: Clock) -> None:
    heartbeat = Heartbeat("coordinator", 10, clock=clock)
    for _ in range(5):
        with heartbeat.busy():
            clock.now += 8
            assert not heartbeat.state().stalled


def test_component_that_fails_is_not_busy_any_more(clock: Clock) -> None:
    heartbeat = Heartbeat("coordinator", 10, clock=clock)
    with pytest.raises(ValueError, match="broken"), heartbeat.busy():
        raise ValueError("broken")

    clock.now += 100

    assert not heartbeat.state().stalled


def test_timer_is_stalled_when_it_is_late_by_its_limit(clock: Clock) -> None:
    heartbeat = Heartbeat("drift monitor", 10, clock=clock)
    heartbeat.expect_beat(60)
    clock.now += 70
    assert not heartbeat.state().stalled

    clock.now += 1

    assert heartbeat.state().stalled
    assert heartbeat.state().detail == "timer is 11.0 s late"


def test_timer_that_fires_is_healthy(clock: Clock) -> None:
    heartbeat = Heartbeat("drift monitor", 10, clock=clock)
    for _ in range(5):
        heartbeat.expect_beat(60)
        clock.now += 65
        assert not heartbeat.state().stalled


def test_oldest_of_several_pieces_of_work_counts(clock: Clock) -> None:
    heartbeat = Heartbeat("deployer", 10, clock=clock)
    with heartbeat.busy():
        clock.now += 8
        with heartbeat.busy():
            clock.now += 1
            assert heartbeat.state().busy_for == 9
        clock.now += 2
        assert heartbeat.state().stalled
    assert heartbeat.state().busy_for == 0


async def test_pulses_are_listed_in_order_and_a_new_one_replaces_that_of_the_same_name() -> None:
    heartbeats = Heartbeats()
    heartbeats.add("deployer", limit=1)
    heartbeats.add("scheduler", limit=1)
    heartbeats.add("deployer", limit=5)

    assert [(state.name, state.limit) for state in heartbeats.states()] == [("deployer", 5.0), ("scheduler", 1.0)]


def test_steps_renew_the_limit_and_silence_ends_it(clock: Clock) -> None:
    steps = 7
    heartbeat = Heartbeat("coordinator", 10, steps=lambda: steps, clock=clock)
    with heartbeat.busy():
        for _ in range(5):
            clock.now += 9
            steps += 1
            assert not heartbeat.state().stalled
        clock.now += 10
        assert not heartbeat.state().stalled
        clock.now += 1
        assert heartbeat.state().detail == "busy for 11.0 s without progress, limit 10.0 s"
        steps += 1
        assert not heartbeat.state().stalled


def test_steps_of_earlier_work_do_not_count_for_the_next(clock: Clock) -> None:
    steps = 0
    heartbeat = Heartbeat("coordinator", 10, steps=lambda: steps, clock=clock)
    with heartbeat.busy():
        steps += 1
    with heartbeat.busy():
        clock.now += 11
        assert heartbeat.state().stalled
