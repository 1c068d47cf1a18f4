"""Limits that end a runaway template: time, output, and what a single operation may build.

Python cannot interrupt one long C call, so nothing that a template can say
may start one: operations that grow their input are bounded before they run,
and everything that repeats looks at the clock.
"""

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

clock = time.monotonic

MAX_ITEMS: Final = 100_000
"""Largest `range` and largest list made by an operator."""
MAX_INT_BITS: Final = 4_096
MAX_FORMAT_WIDTH: Final = 1_000
_UNMETERED: Final = 1_024
_FORMAT_SPEC: Final = re.compile(r"%(?:\([^)]*\))?[-#0 +]*(\*|\d+)?(?:\.(\*|\d+))?")


class RenderLimits(msgspec.Struct, frozen=True):
    """How much one run may take."""

    seconds: float = 10.0
    """Wall-clock time from the first render of a run to the end of its last."""
    output_bytes: int = 256 * 1024 * 1024
    """UTF-8 bytes of all texts and files of a run; also bounds what is built on the way."""


class LimitReachedError(BaseException):
    """A limit was reached inside a template; the engine turns it into a `RenderLimitError`.

    Not an `Exception`, so that nothing between the template and the engine,
    a fragment least of all, takes it for the fault of one object.
    """

    def __init__(self, message: str, hint: str = "") -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)


class Meter:
    """The clock and the memory of one run."""

    __slots__ = ("_built", "_limits", "_produced", "deadline", "piece_limit")

    def __init__(self, limits: RenderLimits) -> None:
        self._limits = limits
        self._built = 0
        self._produced = 0
        self.deadline = float("inf")
        self.piece_limit = min(limits.output_bytes, 5_000_000)
        """How many pieces of text may wait in one macro or block."""

    @property
    def room(self) -> int:
        """How much output is left."""
        return self._limits.output_bytes - self._produced

    def reset(self) -> None:
        """Begin with a new deadline and nothing built; what has been produced stays."""
        self.deadline = float("inf")
        self._built = 0

    def start(self) -> None:
        """Set the deadline, once."""
        if self.deadline == float("inf"):
            self.deadline = clock() + self._limits.seconds

    def tick(self) -> bool:
        """Look at the clock; always true, so that it can stand in a condition."""
        if clock() > self.deadline:
            self.stop()
        return True

    def stop(self) -> None:
        """Raise for whichever limit a loop has met."""
        if clock() > self.deadline:
            raise LimitReachedError(
                f"rendering took longer than {self._limits.seconds:g} s",
                "look for a loop over too much, or raise templating.renderTimeout",
            )
        raise self.too_large()

    def produce(self, size: int) -> None:
        """Count *size* of finished output; negative for what is given up."""
        self._produced += size

    def check_size(self) -> None:
        """Raise if there is too much output."""
        if self._produced > self._limits.output_bytes:
            raise self.too_large()

    def build(self, size: int) -> None:
        """Count *size* bytes that an operation is about to build on the way to the output."""
        if size < _UNMETERED:
            return
        self._built += size
        if size > self._limits.output_bytes or self._built > 4 * self._limits.output_bytes:
            raise self.too_large()
        self.tick()

    def too_large(self) -> LimitReachedError:
        """Return the error for output beyond its limit."""
        return LimitReachedError(
            f"the output grew beyond {self._limits.output_bytes:,} bytes",
            "look for text that is repeated or doubled, or raise templating.maxOutputBytes",
        )


def limited_range(*bounds: int) -> range:
    """`range` of at most `MAX_ITEMS` numbers."""
    numbers = range(*bounds)
    # Slicing instead of len(), which overflows on what this is to refuse.
    if numbers[MAX_ITEMS:]:
        raise LimitReachedError(f"range() of more than {MAX_ITEMS:,} numbers")
    return numbers


def multiply(meter: Meter, left: Any, right: Any) -> Any:
    """`left * right` within the limits."""
    for body, factor in ((left, right), (right, left)):
        if isinstance(body, str | bytes | list | tuple) and isinstance(factor, int):
            size = len(body) * max(factor, 0)
            if isinstance(body, list | tuple) and size > MAX_ITEMS:
                raise LimitReachedError(f"a list of {_count(size)} items; at most {MAX_ITEMS:,} are possible")
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
    """Return `spec % values`, plain text, where no width is chosen by data or beyond reason."""
    for match in _FORMAT_SPEC.finditer(spec):
        for width in match.groups():
            if width is not None and (width == "*" or len(width) > 4 or int(width) > MAX_FORMAT_WIDTH):
                raise LimitReachedError(f"a format width beyond {MAX_FORMAT_WIDTH}")
    parts: Iterable[Any] = (
        values if isinstance(values, tuple) else values.values() if isinstance(values, Mapping) else (values,)
    )
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
    """Yield *items* and look at the clock before each."""
    for item in items:
        meter.tick()
        yield item


def check_items(items: Sequence[Any], *more: Sequence[Any]) -> None:
    """Refuse a list that would have too many items once *more* are added."""
    size = len(items) + sum(len(part) for part in more)
    if size > 10 * MAX_ITEMS:
        raise LimitReachedError(f"a list of {_count(size)} items; at most {10 * MAX_ITEMS:,} are possible")


def _check_bits(bits: int) -> None:
    if bits > MAX_INT_BITS:
        raise LimitReachedError(f"a number of more than {MAX_INT_BITS} bits")


def _count(size: int) -> str:
    return f"{size:,}" if size < 10**15 else "far too many"
