"""A fetch that fails is not repeated at once, nor forever for what is gone."""

from functools import partial

from haptic_trio.backoff import Backoff
from haptic_trio.k8s.fetching import Failures, FetchFailedError
from haptic_trio.k8s.resource import ResourceRef

REF = ResourceRef("Secret", "x", "a")
FAILURE = FetchFailedError(REF, "403 no", "grant it")


def failures() -> Failures:
    """Return failures without chance in their delays: 1 s, 2 s, 4 s."""
    return Failures(partial(Backoff, base=1.0, limit=4.0, jitter=lambda: 0.0))


def test_a_failure_holds_for_its_version_until_it_is_due() -> None:
    known = failures()
    known.note("1", FAILURE, now=10)
    found = known.find(REF, "1")
    assert found is not None
    assert (str(found), found.hint) == ("Secret x/a could not be fetched: 403 no", "grant it")
    assert known.find(REF, "2") is None
    assert known.next_retry == 11
    assert [known.take_due(now) for now in (10.9, 11, 99)] == [(), (REF,), ()]
    assert known.find(REF, "1") is None


def test_what_is_due_is_not_due_again_before_it_has_failed_again() -> None:
    known = failures()
    known.note("1", FAILURE, now=10)
    known.take_due(11)
    assert known.next_retry is None


def test_delays_grow_until_it_succeeds() -> None:
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


def test_an_error_is_a_new_one_each_time() -> None:
    known = failures()
    known.note("1", FAILURE, now=0)
    assert known.find(REF, "1") is not known.find(REF, "1")
