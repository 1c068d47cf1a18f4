"""Errors of a reconciliation are classified: requests for another attempt, permanent errors, and all others."""

import math

import pytest
import trio

from haptic_trio.workqueue.outcome import PermanentError, RequeueAfter, contained, read_error, requeue_now


def wrap(inner: Exception, how: str) -> Exception:
    """Return an error that carries *inner* in the way *how* says."""
    if how == "group":
        return ExceptionGroup("outer", [inner])
    outer = OSError("outer")
    outer.__context__ = inner
    if how == "cause":
        outer.__cause__ = inner
    outer.__suppress_context__ = how != "context"
    return outer


@pytest.mark.parametrize("how", ["cause", "context", "group"])
@pytest.mark.parametrize("inner", [RequeueAfter(3.0), PermanentError("rejected")])
def test_a_wrapped_request_or_verdict_is_found(inner: Exception, how: str) -> None:
    assert read_error(wrap(inner, how)) is inner
    assert read_error(wrap(wrap(inner, how), how)) is inner


def test_a_suppressed_context_does_not_count() -> None:
    assert read_error(wrap(RequeueAfter(3.0), "suppressed")) is None


def test_a_group_with_other_errors_is_an_error() -> None:
    assert read_error(ExceptionGroup("", [RequeueAfter(1.0), OSError("x")])) is None
    assert read_error(ExceptionGroup("", [PermanentError("x"), RequeueAfter(1.0)])) is None
    assert read_error(ExceptionGroup("", [PermanentError("x"), OSError("x")])) is None


def test_of_a_group_of_requests_the_soonest_holds() -> None:
    soon = RequeueAfter(1.0)
    assert read_error(ExceptionGroup("", [RequeueAfter(5.0), ExceptionGroup("", [soon])])) is soon
    rejected = PermanentError("a")
    assert read_error(ExceptionGroup("", [rejected, PermanentError("b")])) is rejected


def test_a_chain_that_bites_its_tail_ends() -> None:
    first, second = OSError("first"), OSError("second")
    first.__cause__, second.__cause__ = second, first
    assert read_error(first) is None


def test_negative_delays_are_zero_and_others_must_be_numbers() -> None:
    assert RequeueAfter(-5.0).after == 0.0
    assert requeue_now().after == 0.0
    for after in (math.nan, math.inf):
        with pytest.raises(ValueError, match="finite"):
            RequeueAfter(after)


def test_a_permanent_error_speaks_with_the_words_of_its_cause() -> None:
    cause = OSError("no such host")
    assert str(PermanentError(cause)) == "no such host"
    assert PermanentError(cause).err is cause


async def test_contained_reports_errors_and_lets_a_cancellation_through_without_them() -> None:
    reported: list[Exception] = []

    async def fail_in_cleanup() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise OSError("cleanup")

    async def block() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(fail_in_cleanup)
            nursery.start_soon(trio.sleep_forever)

    with trio.CancelScope() as scope:
        scope.cancel()
        with contained(reported.append):
            await block()
    assert scope.cancelled_caught
    assert len(reported) == 1


@pytest.mark.parametrize("error", [OSError("plain"), ExceptionGroup("", [OSError("grouped")])])
def test_contained_reports_an_error_instead_of_raising_it(error: Exception) -> None:
    reported: list[Exception] = []

    def fail() -> None:
        raise error

    with contained(reported.append):
        fail()
    assert reported == [error]


def test_contained_lets_through_what_is_not_an_exception() -> None:
    reported: list[Exception] = []
    with pytest.raises(KeyboardInterrupt), contained(reported.append):
        raise KeyboardInterrupt
    assert reported == []
