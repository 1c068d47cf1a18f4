"""Delays before retries."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haptic_trio.workqueue.limiter import BucketLimiter, ExponentialLimiter, FastSlow, MaxOf, MaxWait


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
def test_exponential_refuses_senseless_settings(base: float, longest: float, jitter: float) -> None:
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


def test_bucket_lets_a_burst_through_then_spaces_all_keys_by_the_rate() -> None:
    now = 100.0
    limiter = BucketLimiter[str](rate=10.0, burst=3, clock=lambda: now)
    delays = [limiter.next_retry(f"key-{n}") for n in range(6)]
    assert delays == pytest.approx([0.0, 0.0, 0.0, 0.1, 0.2, 0.3])

    now += 0.3
    assert limiter.next_retry("key") == pytest.approx(0.1)
    now += 60.0
    assert [limiter.next_retry("key") for _ in range(4)] == pytest.approx([0.0, 0.0, 0.0, 0.1])
    limiter.forget("key")
    assert limiter.failures("key") == 0


@pytest.mark.parametrize(("rate", "burst"), [(0.0, 1), (-1.0, 1), (math.inf, 1), (1.0, 0)])
def test_bucket_refuses_senseless_settings(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        BucketLimiter[str](rate, burst)


def test_fast_slow_is_fast_for_n_failures_of_a_key_then_slow() -> None:
    limiter = FastSlow[str](0.005, 10.0, 3)
    assert [limiter.next_retry("one") for _ in range(5)] == [0.005, 0.005, 0.005, 10.0, 10.0]
    assert limiter.next_retry("two") == 0.005
    assert limiter.failures("one") == 5
    limiter.forget("one")
    assert limiter.next_retry("one") == 0.005


def test_fast_slow_refuses_negative_settings() -> None:
    with pytest.raises(ValueError, match="slow must be"):
        FastSlow[str](1.0, -1.0, 3)


def test_max_of_takes_the_longest_and_counts_in_all() -> None:
    limiter = MaxOf[str](FastSlow(0.005, 3.0, 3), ExponentialLimiter(0.001, 1000.0))
    assert [limiter.next_retry("one") for _ in range(5)] == [0.005, 0.005, 0.005, 3.0, 3.0]
    assert limiter.failures("one") == 5
    limiter.forget("one")
    assert limiter.failures("one") == 0
    assert limiter.next_retry("one") == 0.005


def test_max_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one"):
        MaxOf[str]()


def test_max_wait_cuts_the_delays_of_another_limiter() -> None:
    limiter = MaxWait[str](FastSlow(0.005, 1000.0, 2), 60.0)
    assert [limiter.next_retry("one") for _ in range(3)] == [0.005, 0.005, 60.0]
    assert limiter.failures("one") == 3
    limiter.forget("one")
    assert limiter.next_retry("one") == 0.005


def test_max_wait_refuses_a_negative_limit() -> None:
    with pytest.raises(ValueError, match="must be"):
        MaxWait[str](ExponentialLimiter(), -1.0)
