"""Delays before retries."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.workqueue.limiter import ExponentialLimiter


def test_exponential_doubles_each_key_on_its_own_and_starts_again_after_forget() -> None:
    limiter = ExponentialLimiter[str](0.001, 1000.0)
    assert [limiter.next_retry("one") for _ in range(5)] == [0.001, 0.002, 0.004, 0.008, 0.016]
    assert [limiter.next_retry("two") for _ in range(2)] == [0.001, 0.002]
    assert limiter.failures("one") == 5

    limiter.forget("one")

    assert limiter.failures("one") == 0
    assert limiter.next_retry("one") == 0.001
    assert limiter.next_retry("two") == 0.004


@pytest.mark.parametrize("longest", [1000.0, 3_600_000.0])
def test_exponential_stays_at_its_cap_after_thousands_of_failures(longest: float) -> None:
    limiter = ExponentialLimiter[str](0.001, longest)
    for _ in range(5000):
        limiter.next_retry("key")
    assert limiter.next_retry("key") == longest
    limiter.forget("key")
    assert limiter.next_retry("key") == 0.001


def test_exponential_with_a_base_above_the_cap_gives_the_cap() -> None:
    assert ExponentialLimiter[str](5.0, 2.0).next_retry("key") == 2.0


def test_exponential_with_base_zero_never_waits() -> None:
    limiter = ExponentialLimiter[str](0.0, 2.0)
    assert {limiter.next_retry("key") for _ in range(100)} == {0.0}


@pytest.mark.parametrize(
    ("base", "longest", "jitter"),
    [(-1.0, 1.0, 0.0), (1.0, -1.0, 0.0), (math.nan, 1.0, 0.0), (1.0, math.inf, 0.0), (1.0, 2.0, 1.5), (1.0, 2.0, -0.1)],
)
def test_exponential_rejects_senseless_settings(base: float, longest: float, jitter: float) -> None:
    with pytest.raises(ValueError, match="must be"):
        ExponentialLimiter[str](base, longest, jitter)


@settings(max_examples=500)
@given(
    base=st.floats(0, 10),
    longest=st.floats(0, 10_000),
    jitter=st.floats(0, 1),
    shares=st.lists(st.floats(0, 1, exclude_max=True), min_size=1, max_size=80),
)
def test_delays_of_a_key_never_decrease_nor_pass_the_cap(
    base: float, longest: float, jitter: float, shares: list[float]
) -> None:
    rest = iter(shares)
    limiter = ExponentialLimiter[str](base, longest, jitter, rand=lambda: next(rest, 0.5))
    delays = [limiter.next_retry("key") for _ in shares]
    assert delays == sorted(delays)
    assert all(0 <= delay <= longest for delay in delays)
