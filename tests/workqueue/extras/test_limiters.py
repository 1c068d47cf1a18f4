"""Delays of the further limiters."""

import math

import pytest

from haptic_trio.workqueue.extras.limiters import BucketLimiter, FastSlow, MaxOf, MaxWait
from haptic_trio.workqueue.limiter import ExponentialLimiter


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
def test_bucket_rejects_senseless_settings(rate: float, burst: int) -> None:
    with pytest.raises(ValueError, match="must be"):
        BucketLimiter[str](rate, burst)


def test_fast_slow_is_fast_for_n_failures_of_a_key_then_slow() -> None:
    limiter = FastSlow[str](0.005, 10.0, 3)
    assert [limiter.next_retry("one") for _ in range(5)] == [0.005, 0.005, 0.005, 10.0, 10.0]
    assert limiter.next_retry("two") == 0.005
    assert limiter.failures("one") == 5
    limiter.forget("one")
    assert limiter.next_retry("one") == 0.005


def test_fast_slow_rejects_negative_settings() -> None:
    with pytest.raises(ValueError, match="slow must be"):
        FastSlow[str](1.0, -1.0, 3)


def test_max_of_takes_the_longest_and_counts_in_all() -> None:
    limiter = MaxOf[str](FastSlow(0.005, 3.0, 3), ExponentialLimiter(0.001, 1000.0))
    assert [limiter.next_retry("one") for _ in range(5)] == [0.005, 0.005, 0.005, 3.0, 3.0]
    assert limiter.failures("one") == 5
    limiter.forget("one")
    assert limiter.failures("one") == 0
    assert limiter.next_retry("one") == 0.005


def test_max_of_nothing_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least one"):
        MaxOf[str]()


def test_max_wait_cuts_the_delays_of_another_limiter() -> None:
    limiter = MaxWait[str](FastSlow(0.005, 1000.0, 2), 60.0)
    assert [limiter.next_retry("one") for _ in range(3)] == [0.005, 0.005, 60.0]
    assert limiter.failures("one") == 3
    limiter.forget("one")
    assert limiter.next_retry("one") == 0.005


def test_max_wait_rejects_a_negative_limit() -> None:
    with pytest.raises(ValueError, match="must be"):
        MaxWait[str](ExponentialLimiter(), -1.0)
