"""A change counts as propagated once the instance that is furthest behind runs it, and only then."""

from hypothesis import given
from hypothesis import strategies as st

from haptic_trio.telemetry.propagation import MOST_CYCLES, Propagation


def test_change_is_propagated_when_the_last_instance_runs_it() -> None:
    propagation = Propagation()
    propagation.deploy("a", "unknown", 0.0)
    propagation.trigger("1-1", 0, 0.0)
    for name in ("a", "b"):
        propagation.deploy(name, "1-1", 1.0)
    propagation.trigger("1-2", 3, 10.0)

    assert propagation.deploy("a", "1-2", 11.0) == []
    assert propagation.waiting == 1
    assert propagation.deploy("b", "1-2", 12.5) == [2.5]
    assert propagation.waiting == 0
    assert propagation.deploy("b", "1-2", 13.0) == []


def test_newer_cycle_brings_along_the_changes_of_those_that_it_superseded() -> None:
    propagation = Propagation()
    propagation.trigger("1-1", 1, 1.0)
    propagation.trigger("1-2", 1, 2.0)

    assert propagation.deploy("a", "1-2", 5.0) == [4.0, 3.0]
    # A late answer about the older one says nothing new.
    assert propagation.deploy("a", "1-1", 6.0) == []


def test_change_without_a_valid_configuration_is_left_out_and_the_next_one_counts() -> None:
    propagation = Propagation()
    propagation.trigger("1-1", 1, 1.0)
    propagation.fail("1-1")
    propagation.trigger("1-2", 1, 2.0)

    assert propagation.deploy("a", "1-2", 3.0) == [1.0]


def test_instance_that_goes_no_longer_holds_up_the_others() -> None:
    propagation = Propagation()
    propagation.trigger("1-1", 0, 0.0)
    for name in ("a", "b"):
        propagation.deploy(name, "1-1", 0.0)
    propagation.trigger("1-2", 1, 1.0)
    propagation.deploy("a", "1-2", 2.0)

    assert propagation.keep({"a", "b"}, 3.0) == []
    assert propagation.keep({"a"}, 4.0) == [3.0]


def test_new_instance_without_a_configuration_holds_up_nothing() -> None:
    propagation = Propagation()
    propagation.trigger("1-1", 0, 0.0)
    propagation.deploy("a", "1-1", 0.0)
    propagation.trigger("1-2", 1, 1.0)
    propagation.keep({"a", "new"}, 1.5)

    assert propagation.deploy("a", "1-2", 2.0) == [1.0]


def test_nothing_is_measured_before_any_instance_runs_anything() -> None:
    propagation = Propagation()
    propagation.trigger("1-1", 1, 1.0)

    assert propagation.keep(set(), 9.0) == []
    assert propagation.waiting == 1


def test_what_is_remembered_is_bounded() -> None:
    propagation = Propagation()
    for number in range(3 * MOST_CYCLES):
        propagation.trigger(f"1-{number}", 1, 0.0)

    assert propagation.waiting == MOST_CYCLES
    propagation.clear()
    assert propagation.waiting == 0


STEPS = st.lists(
    st.one_of(
        st.just(("trigger",)),
        st.tuples(st.just("deploy"), st.sampled_from("abc"), st.integers(0, 30)),
        st.tuples(st.just("fail"), st.integers(0, 30)),
    ),
    max_size=40,
)


@given(STEPS)
def test_each_change_is_measured_once_and_not_before_all_run_it(steps: list[tuple[object, ...]]) -> None:
    propagation = Propagation()
    instances = dict.fromkeys("abc", 0)
    propagation.trigger("0", 0, 0.0)
    for name in instances:
        propagation.deploy(name, "0", 0.0)
    waiting: dict[int, float] = {}
    triggered = 0
    for now, step in enumerate(steps, 1):
        durations: list[float] = []
        match step:
            case ("trigger",):
                triggered += 1
                waiting[triggered] = float(now)
                propagation.trigger(str(triggered), 1, float(now))
            case ("fail", int(number)):
                waiting.pop(number, None)
                propagation.fail(str(number))
            case ("deploy", str(name), int(number)):
                if number <= triggered:
                    instances[name] = max(instances[name], number)
                durations = propagation.deploy(name, str(number), float(now))
        everywhere = min(instances.values())
        expected = [now - waiting.pop(number) for number in list(waiting) if number <= everywhere]

        assert durations == expected
        assert propagation.waiting == len(waiting)
