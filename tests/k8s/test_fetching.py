"""Retries of failed fetches."""

from functools import partial

from haptic_trio.backoff import Backoff
from haptic_trio.k8s.fetching import Failures, FetchFailure
from haptic_trio.k8s.resource import ResourceRef

REF = ResourceRef("Secret", "x", "a")
FAILURE = FetchFailure(REF, "403 no", "grant it")


def failures() -> Failures:
    """Return failures with delays of 1, 2 and 4 s, without jitter."""
    return Failures(partial(Backoff, base=1.0, limit=4.0, jitter=lambda: 0.0))


def test_failure_holds_for_its_version_until_its_retry_is_due() -> None:
    known = failures()
    known.note("1", FAILURE, now=10)
    found = known.find(REF, "1")
    assert found is not None
    assert (found.message, found.hint) == ("Secret x/a could not be fetched: 403 no", "grant it")
    assert known.find(REF, "2") is None
    assert known.next_retry == 11
    assert [known.take_due(now) for now in (10.9, 11, 99)] == [(), (REF,), ()]
    assert known.find(REF, "1") is None


def test_due_retry_is_not_due_again_before_another_failure() -> None:
    known = failures()
    known.note("1", FAILURE, now=10)
    known.take_due(11)
    assert known.next_retry is None


def test_delays_double_until_a_fetch_succeeds() -> None:
    known = failures()
    delays = []
    for now in (0, 100, 200, 300):
        known.note("1", FAILURE, now)
        assert known.next_retry is not None
        delays.append(known.next_retry - now)
    assert delays == [1, 2, 4, 4]
    known.forget(REF)
    known.note("1", FAILURE, now=0)
    assert known.next_retry == 1
