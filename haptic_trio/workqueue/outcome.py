"""Outcomes of a reconciliation besides success, and the classification of errors."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from haptic_trio.errors import HapticError


class RequeueAfter(Exception):  # noqa: N818 - a request, and no HapticError, so that handlers of errors let it pass
    """Raised or returned by a reconciler: not an error, run this key again in *after* seconds.

    Below 0 counts as 0; NaN and infinity raise ValueError.
    """

    def __init__(self, after: float) -> None:
        if not math.isfinite(after):
            raise ValueError(f"a delay must be finite, not {after}")
        self.after = max(0.0, after)
        super().__init__(f"run again in {self.after:g} s")


def requeue_now() -> RequeueAfter:
    """Return the request to run the key again at once, after the keys that are ready."""
    return RequeueAfter(0.0)


class PermanentError(HapticError):
    """A reconciliation failed permanently: the key runs only when it is added again; *err* is the cause."""

    def __init__(self, err: Exception | str) -> None:
        self.err = err
        super().__init__(str(err))


def read_error(error: BaseException) -> RequeueAfter | PermanentError | None:
    """Return the RequeueAfter or PermanentError that *error* is or wraps; None for any other error.

    Looks through causes, contexts that are not suppressed, and groups. A
    group counts as one only if each of its members is a request (the soonest
    is returned), or each is permanent.
    """
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        if isinstance(current, RequeueAfter | PermanentError):
            return current
        if isinstance(current, BaseExceptionGroup):
            return _read_group(current)
        current = current.__cause__ or (None if current.__suppress_context__ else current.__context__)
    return None


def _read_group(group: BaseExceptionGroup[BaseException]) -> RequeueAfter | PermanentError | None:
    readings = [read_error(member) for member in group.exceptions]
    requests = [reading for reading in readings if isinstance(reading, RequeueAfter)]
    if len(requests) == len(readings):
        return min(requests, key=lambda request: request.after)
    if all(isinstance(reading, PermanentError) for reading in readings):
        return readings[0]
    return None


@contextmanager
def contained(report: Callable[[Exception], None]) -> Iterator[None]:
    """Pass the errors of the block to *report* instead of raising them.

    Cancellation, and any other exception that is not an Exception, passes;
    errors in the same group are reported all the same.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001 - the boundary between a controller and the code it calls
        report(error)
    except BaseExceptionGroup as group:
        errors, rest = group.split(Exception)
        if errors is not None:
            report(errors)
        if rest is not None:
            raise rest from None
