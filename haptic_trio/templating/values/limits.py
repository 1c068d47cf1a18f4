"""Limits on templates: CPU time, output, and what a single operation may build.

A limit that a fragment reaches is a fault of its object, which is quarantined
while the render goes on. Template code outside of fragments has a budget of
its own; reaching that one fails the render. What the engine itself does for
each object has no limit, since it grows with the cluster.

Python cannot interrupt one long C call, so no template may start one: operations
that grow their input are bounded first, and repetitions look at the clock.
"""

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

clock = time.monotonic
cpu_clock = time.thread_time

CANCELLED: Final = float("-inf")
"""The deadline of a render that has been abandoned."""
MAX_ITEMS: Final = 100_000
"""Largest `range` and largest list made by an operator."""
MAX_INT_BITS: Final = 4_096
MAX_FORMAT_WIDTH: Final = 1_000
MAX_FORMAT_KEYS: Final = 100  # each `%(` without an end is compared with all of the text behind it
_UNMETERED: Final = 1_024
_MOST_PIECES: Final = 5_000_000
_SECONDS_PER_OBJECT: Final = 0.002
"""Time that a list of objects adds to the limit of template code outside of fragments, which may iterate over it."""
_REDUCTIONS: Final = ((50, 500), (5, 50), (0, 1))
"""A fragment that has reached the time limit for so many objects of one render, and has succeeded for none so far, is
likely to be at fault itself: its limit is divided by this. A normal object takes far less than that."""
_NAMESPACE_REDUCTION: Final = 10
_REDUCED_FOR: Final = 20
"""For so many times the limit, fragments of a namespace get less after one of them has reached it: who changes slow
objects again and again holds up others for a small part of the time."""
_LONGEST_SILENCE: Final = 1.0  # seconds of wall time after which template code that runs on counts as a step
_CPU_TOLERANCE: Final = 0.01
"""The part of its time limit by which a fragment may end early: reading the CPU time is a system call, and a render of
a large cluster would make tens of thousands."""
_FORMAT_SPEC: Final = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")


class RenderLimits(msgspec.Struct, frozen=True):
    """Limits of templates. Times are CPU time of the rendering thread, so a busy machine changes nothing."""

    seconds: float = 10.0
    """Of template code outside of fragments, in one render."""
    output_bytes: int = 256 * 1024 * 1024
    """Of text and files that are written outside of fragments, in one render."""
    fragment_seconds: float = 5.0
    """Of one fragment."""
    fragment_bytes: int = 8 * 1024 * 1024
    """Of text and files of one fragment."""
    namespace_bytes: int = 64 * 1024 * 1024
    """Of text and files of all fragments of one namespace's objects."""
    backend_servers: int = 20_000
    backend_rules: int = 5_000
    """Of one backend; see `FragmentOutput.rules`."""
    namespace_servers: int = 100_000
    """In the outputs of all fragments of one namespace's objects; see `FragmentOutput.servers`."""
    namespace_certificates: int = 10_000
    """Certificate lines of all fragments of one namespace's objects; see `Costs.certificates`."""
    namespace_table_entries: int = 2_000_000
    """Of stick tables in the outputs of all fragments of one namespace's objects."""
    namespace_rounds: int = 2_000_000
    """Of password hashes in all fragments of one namespace's objects."""
    total_rounds: int = 20_000_000
    """Of password hashes in all fragments of the objects of all namespaces."""


class LimitReachedError(BaseException):
    """A limit was reached inside a template: a fault of the current object, or of the template outside of fragments.

    Not an `Exception`, so that nothing between the template and the engine
    takes it for something that a template may handle.
    """

    def __init__(self, message: str, hint: str = "", *, is_time: bool = False) -> None:
        self.message = message
        self.hint = hint
        self.is_time = is_time
        super().__init__(message)


class RenderAbandonedError(BaseException):
    """The caller cancelled this render or its time is up; no object or template is at fault."""


class Budget:
    """Limits and use of a fragment, or of the template code outside of all fragments."""

    __slots__ = ("built", "output_bytes", "output_setting", "owner", "seconds", "time_setting", "used", "written")

    def __init__(self, seconds: float, output_bytes: int, owner: str, time_setting: str, output_setting: str) -> None:
        self.seconds = seconds
        self.output_bytes = output_bytes
        self.owner = owner
        self.time_setting = time_setting
        self.output_setting = output_setting
        self.used = 0.0
        """CPU seconds."""
        self.built = 0
        """Bytes of what operations have built on the way to the output."""
        self.written = 0
        """Bytes of registered files."""

    @classmethod
    def of_fragment(cls, limits: RenderLimits, divisor: int) -> "Budget":
        """Return the budget of one fragment, with the *divisor*-th part of the time limit."""
        seconds = limits.fragment_seconds / divisor
        return cls(seconds, limits.fragment_bytes, "the fragment", "fragmentTimeout", "maxFragmentBytes")

    @classmethod
    def outside(cls, limits: RenderLimits) -> "Budget":
        """Return the budget of template code outside of fragments, for one render."""
        owner = "template code outside of fragments"
        return cls(limits.seconds, limits.output_bytes, owner, "renderTimeout", "maxOutputBytes")

    def time_is_up(self) -> LimitReachedError:
        """Return the error for too much time."""
        return LimitReachedError(
            f"{self.owner} took longer than {self.seconds:g} s of CPU time",
            f"find the loop over too many items, or raise templating.{self.time_setting}",
            is_time=True,
        )

    def too_large(self) -> LimitReachedError:
        """Return the error for too much output."""
        return LimitReachedError(
            f"the output of {self.owner} grew beyond {self.output_bytes:,} bytes",
            f"find the text that is repeated or doubled, or raise templating.{self.output_setting}",
        )


class Meter:
    """The clock and the memory of one run.

    Compiled templates compare the wall clock, which is cheap to read, with
    `deadline`. CPU time never exceeds wall time: when the deadline has
    passed, `stop` reads the thread's CPU time and moves the deadline by what
    is left, at most by a second: other threads see `steps`. A fragment that
    ends before its deadline reads no CPU time.
    """

    __slots__ = (
        "_budget", "_cpu", "_granted", "_limits", "_outside", "_proven", "_read_at", "_reduced_until", "_since",
        "_slow", "deadline", "is_cancelled", "piece_limit", "steps", "until",
    )  # fmt: skip

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._budget: Budget | None = None
        self._since = 0.0
        self._cpu, self._read_at = 0.0, float("-inf")
        self._proven: set[str] = set()
        self._reduced_until: dict[str, float] = {}
        self.is_cancelled = False
        """For another thread to set; see `cancel`."""
        self.steps = 0  # how often template code has run on after its deadline; never reset
        self.until = float("inf")
        """When the whole render has to be done, by `clock`."""
        self.deadline = float("inf")
        self.piece_limit = _MOST_PIECES
        """Maximum number of pieces of text that wait in one macro or block."""
        self.reset()

    @property
    def limits(self) -> RenderLimits:
        """The limits of this run."""
        return self._limits

    def reset(self) -> None:
        """Begin another render, with new budgets and without an end that the caller has set."""
        self.until = float("inf")
        self.is_cancelled = False
        self._outside = Budget.outside(self._limits)
        self._granted: dict[str, int] = {}
        self._slow: Counter[str] = Counter()
        # The next render may run in another thread, with a CPU time of its own.
        self._read_at = float("-inf")
        self._budget = None
        self._aim()

    def cancel(self) -> None:
        """Have the rendering thread stop at its next loop or call; for other threads."""
        self.is_cancelled = True
        self.deadline = CANCELLED

    def switch(self, budget: Budget | None, *, tolerance: float = 0.0) -> Budget | None:
        """Count time and output for *budget* from now on, or for none; return the one before.

        *tolerance*: seconds of CPU time before now that may be counted, too,
        if no budget was in force.
        """
        outer, self._budget = self._budget, budget
        if outer is not None:
            now = self._read_cpu()
            outer.used += now - self._since
            self._since = now
        elif budget is not None:
            self._since = self._read_cpu(tolerance)
        self._aim()
        return outer

    def _read_cpu(self, max_age: float = 0.0) -> float:
        """Return the CPU time of this thread, at most *max_age* seconds ago."""
        now = clock()
        if now - self._read_at >= max_age:
            self._cpu, self._read_at = cpu_clock(), now
        return self._cpu

    def switch_outside(self) -> Budget | None:
        """Count for template code outside of fragments from now on; return the budget before."""
        return self.switch(self._outside)

    def switch_to_fragment(self, fragment: str, namespace: str) -> Budget | None:
        """Count for the *fragment* of another object of *namespace* from now on; return the budget before."""
        divisor = 1
        if self._slow and fragment not in self._proven:
            divisor = next(divisor for count, divisor in _REDUCTIONS if self._slow[fragment] >= count)
        if self._reduced_until and clock() < self._reduced_until.get(namespace, 0):
            divisor = max(divisor, _NAMESPACE_REDUCTION)
        budget = Budget.of_fragment(self._limits, divisor)
        return self.switch(budget, tolerance=budget.seconds * _CPU_TOLERANCE)

    def leave_fragment(self, outer: Budget | None) -> None:
        """Count for *outer*, as before `switch_to_fragment`."""
        self._budget = None
        self.switch(outer)

    def note_success(self, fragment: str) -> None:
        """Note that *fragment* stays within its limits for some object."""
        self._proven.add(fragment)

    def note_slow(self, fragment: str, namespace: str) -> None:
        """Note that *fragment* has reached the time limit for an object of *namespace*."""
        self._slow[fragment] += 1
        self._reduced_until[namespace] = clock() + _REDUCED_FOR * self._limits.fragment_seconds

    def _aim(self) -> None:
        budget = self._budget
        if budget is None:
            self.deadline = self.until
            self.piece_limit = _MOST_PIECES
        else:
            self.deadline = min(clock() + min(budget.seconds - budget.used, _LONGEST_SILENCE), self.until)
            self.piece_limit = min(budget.output_bytes, _MOST_PIECES)
        # Last: `cancel` may have come from another thread in between.
        if self.is_cancelled:
            self.deadline = CANCELLED

    def grant_list(self, store: str, count: int) -> None:
        """Give template code outside of fragments the time to go over the *count* objects of *store*, once a render."""
        more = count - self._granted.get(store, 0)
        if more > 0:
            self._granted[store] = count
            self._outside.seconds += more * _SECONDS_PER_OBJECT

    def grant_output(self, size: int) -> None:
        """Let the text outside of fragments hold *size* bytes that a fragment within has made."""
        self._outside.output_bytes += size

    def tick(self) -> bool:
        """Check the clock; always true, so that it can be part of a condition."""
        if clock() > self.deadline:
            self._check_time()
        return True

    def stop(self) -> None:
        """Raise for the limit that a loop has met; go on where that was the wall clock alone."""
        if clock() > self.deadline:
            self._check_time()
        else:
            raise self.too_large()

    def _check_time(self) -> None:
        if self.is_cancelled or clock() > self.until:
            raise RenderAbandonedError("the render was abandoned")
        budget = self._budget
        if budget is not None:
            now = self._read_cpu()
            budget.used += now - self._since
            self._since = now
            if budget.used >= budget.seconds:
                raise budget.time_is_up()
        self.steps += 1
        self._aim()

    @property
    def room(self) -> float:
        """Number of bytes of text that may still be written."""
        budget = self._budget
        return float("inf") if budget is None else budget.output_bytes - budget.written

    def write(self, size: int) -> None:
        """Count *size* bytes of a registered file."""
        budget = self._budget
        if budget is not None:
            budget.written += size
            if budget.written > budget.output_bytes:
                raise budget.too_large()

    def build(self, size: int) -> None:
        """Count *size* bytes that an operation is about to build on the way to the output."""
        budget = self._budget
        if size < _UNMETERED or budget is None:
            return
        budget.built += size
        if size > budget.output_bytes or budget.built > 4 * max(budget.output_bytes, self._limits.output_bytes):
            raise budget.too_large()
        self.tick()

    def too_large(self) -> LimitReachedError:
        """Return the error for output beyond the limit of the budget in force."""
        return (self._budget or self._outside).too_large()


def limited_range(*bounds: int) -> range:
    """`range` of at most `MAX_ITEMS` numbers; raises `LimitReachedError` for more."""
    numbers = range(*bounds)
    # Slicing instead of len(), which overflows on the numbers that this rejects.
    if numbers[MAX_ITEMS:]:
        raise LimitReachedError(f"range() of more than {MAX_ITEMS:,} numbers")
    return numbers


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """`left * right`; raises `LimitReachedError` for a result beyond the limits."""
    for body, factor in ((left, right), (right, left)):
        if isinstance(body, str | bytes | list | tuple) and isinstance(factor, int):
            size = len(body) * max(factor, 0)
            if isinstance(body, list | tuple) and size > MAX_ITEMS:
                raise LimitReachedError(f"a list of {_count(size)} items; at most {MAX_ITEMS:,} are allowed")
            meter.build(size)
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def power(left: Any, right: Any) -> Any:
    """`left ** right` within the limits."""
    if isinstance(left, int) and isinstance(right, int) and right > 1:
        _check_bits(left.bit_length() * right)
    return left**right


def modulo(meter: Meter, left: Any, right: Any) -> Any:
    """`left % right`; formatting is bounded."""
    return percent_format(meter, left, right) if isinstance(left, str) else left % right


def percent_format(meter: Meter, spec: str, values: Any) -> str:
    """Return `spec % values` as plain text; raises `LimitReachedError` for too many fields or too large a width."""
    if spec.count("%(") > MAX_FORMAT_KEYS:
        raise LimitReachedError(f"a format with more than {MAX_FORMAT_KEYS} named fields")
    for match in _FORMAT_SPEC.finditer(spec):
        for width in match.groups():
            if width is not None and (width == "*" or len(width) > 4 or int(width) > MAX_FORMAT_WIDTH):
                raise LimitReachedError(f"a format width above {MAX_FORMAT_WIDTH}")
    others = values.values() if isinstance(values, Mapping) else (values,)
    parts: Iterable[Any] = values if isinstance(values, tuple) else others
    longest = max((len(part) for part in parts if isinstance(part, str)), default=0)
    meter.build(len(spec) * (longest + 1) if longest > _UNMETERED else 0)
    text: str = str(spec) % values
    return text


def replace(meter: Meter, text: str, old: str, new: str, count: int = -1) -> str:
    """`text.replace` within the limits; plain text."""
    found = text.count(old) if count < 0 else min(count, text.count(old))
    meter.build(len(text) + found * max(0, len(new) - len(old)))
    return str(text).replace(old, new, count)


def checked_items(meter: Meter, items: Iterable[Any]) -> Iterator[Any]:
    """Yield *items*, checking the clock before each."""
    for item in items:
        meter.tick()
        yield item


def check_items(items: Sequence[Any], *more: Sequence[Any]) -> None:
    """Raise `LimitReachedError` if *items* and *more* together are too many."""
    size = len(items) + sum(len(part) for part in more)
    if size > 10 * MAX_ITEMS:
        raise LimitReachedError(f"a list of {_count(size)} items; at most {10 * MAX_ITEMS:,} are allowed")


def _check_bits(bits: int) -> None:
    if bits > MAX_INT_BITS:
        raise LimitReachedError(f"a number of more than {MAX_INT_BITS} bits")


def _count(size: int) -> str:
    return f"{size:,}" if size < 10**15 else "far too many"
