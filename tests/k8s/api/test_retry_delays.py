"""Delays of one watch."""

import pytest

from haptic_trio.k8s.api.retry_delays import INTERRUPTION_LIMIT, MAX_RETRY_AFTER, RetryDelays
from haptic_trio.k8s.errors import ApiError, ExpiredError, ThrottledError, UnreachableError

CUT = UnreachableError("watch", "cut off")
EXPIRED = ExpiredError("watch", "too old")


def delays_of(delays: RetryDelays, error: ApiError, *, count: int, accepted: bool = False) -> list[float]:
    found = []
    for _ in range(count):
        delays.begin()
        if accepted:
            delays.accept()
        found.append(delays.after_failure(error))
    return found


@pytest.fixture
def delays() -> RetryDelays:
    return RetryDelays(base=0.2, limit=15.0)


def test_failures_have_growing_delays_until_a_request_is_accepted(delays: RetryDelays) -> None:
    assert 7.5 <= delays_of(delays, CUT, count=10)[-1] <= 15
    before = delays.is_repeated

    delays.accept()

    assert (before, delays.is_repeated) == (True, False)
    assert delays_of(delays, CUT, count=1)[0] <= 0.2


def test_expiry_after_an_outage_leads_to_a_list_at_once(delays: RetryDelays) -> None:
    delays_of(delays, CUT, count=10)
    assert 0.1 <= delays.after_failure(EXPIRED) <= 0.2


def test_repeated_expiry_has_growing_delays_although_watches_and_lists_are_accepted(delays: RetryDelays) -> None:
    assert delays_of(delays, EXPIRED, count=10, accepted=True)[-1] >= 7.5
    delays.prosper()
    assert delays.after_failure(EXPIRED) <= 0.2


def test_watches_that_are_cut_after_they_were_accepted_are_opened_again_soon(delays: RetryDelays) -> None:
    found = delays_of(delays, CUT, count=20, accepted=True)
    assert found[0] <= 0.2
    assert max(found) == INTERRUPTION_LIMIT
    assert delays.is_repeated


def test_watches_that_end_at_once_have_growing_delays(delays: RetryDelays) -> None:
    assert [delays.after_end() for _ in range(10)][-1] >= 7.5
    delays.prosper()
    assert delays.after_end() <= 0.2


@pytest.mark.parametrize(("asked", "expected"), [(1.0, 1.0), (20.0, 20.0), (3600.0, MAX_RETRY_AFTER)])
def test_retry_after_replaces_the_delay_up_to_a_limit(delays: RetryDelays, asked: float, expected: float) -> None:
    delays_of(delays, CUT, count=10)
    throttled = ThrottledError("watch", "too many requests", status=429, retry_after=asked)
    assert delays_of(delays, throttled, count=3) == [expected] * 3


def test_retry_after_of_zero_causes_no_loop(delays: RetryDelays) -> None:
    throttled = ThrottledError("watch", "too many requests", status=429, retry_after=0.0)
    assert delays_of(delays, throttled, count=10)[-1] >= 7.5
