"""Idle is healthy, busy for too long is stalled, and a timer that stops firing is."""

import pytest

from haptic_trio.heartbeat import Pulse, Pulses


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
    pulse = Pulse("coordinator", 10, clock=clock)
    clock.now += 1e6

    state = pulse.state()

    assert (state.name, state.stalled, state.busy_for, state.limit) == ("coordinator", False, 0.0, 10.0)


def test_component_that_makes_progress_is_not_stalled(clock: Clock) -> None:
    pulse = Pulse("checker", 10, clock=clock)
    with pulse.busy() as progress:
        clock.now += 9
        progress()
        clock.now += 9
        assert not pulse.state().stalled
        clock.now += 2
        assert pulse.state().stalled


def test_component_is_stalled_once_it_is_busy_beyond_its_limit(clock: Clock) -> None:
    pulse = Pulse("coordinator", 10, clock=clock)
    with pulse.busy():
        clock.now += 10
        assert not pulse.state().stalled
        clock.now += 0.5
        assert pulse.state().stalled
        assert pulse.state().detail == "busy for 10.5 s, limit 10.0 s"
    assert not pulse.state().stalled


def test_each_piece_of_work_has_the_whole_limit(clock: Clock) -> None:
    pulse = Pulse("coordinator", 10, clock=clock)
    for _ in range(5):
        with pulse.busy():
            clock.now += 8
            assert not pulse.state().stalled


def test_component_that_fails_is_not_busy_any_more(clock: Clock) -> None:
    pulse = Pulse("coordinator", 10, clock=clock)
    with pytest.raises(ValueError, match="broken"), pulse.busy():
        raise ValueError("broken")

    clock.now += 100

    assert not pulse.state().stalled


def test_timer_is_stalled_when_it_is_late_by_its_limit(clock: Clock) -> None:
    pulse = Pulse("drift monitor", 10, clock=clock)
    pulse.expect_beat(60)
    clock.now += 70
    assert not pulse.state().stalled

    clock.now += 1

    assert pulse.state().stalled
    assert pulse.state().detail == "timer is 11.0 s late"


def test_timer_that_fires_is_healthy(clock: Clock) -> None:
    pulse = Pulse("drift monitor", 10, clock=clock)
    for _ in range(5):
        pulse.expect_beat(60)
        clock.now += 65
        assert not pulse.state().stalled


def test_oldest_of_several_pieces_of_work_counts(clock: Clock) -> None:
    pulse = Pulse("deployer", 10, clock=clock)
    with pulse.busy():
        clock.now += 8
        with pulse.busy():
            clock.now += 1
            assert pulse.state().busy_for == 9
        clock.now += 2
        assert pulse.state().stalled
    assert pulse.state().busy_for == 0


async def test_pulses_are_listed_in_order_and_a_new_one_replaces_that_of_the_same_name() -> None:
    pulses = Pulses()
    pulses.add("deployer", limit=1)
    pulses.add("scheduler", limit=1)
    pulses.add("deployer", limit=5)

    assert [(state.name, state.limit) for state in pulses.states()] == [("deployer", 5.0), ("scheduler", 1.0)]
