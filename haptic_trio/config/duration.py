"""Durations in the notation `500ms`, `5s`, `1m30s`."""

import re
from decimal import Decimal

from haptic_trio.config.model import Duration
from haptic_trio.errors import HapticError

LONGEST = Duration(366 * 24 * 3600)
"""The longest duration that is accepted, because timers overflow at some length."""

_MILLISECONDS = {"h": 3_600_000, "m": 60_000, "s": 1000, "ms": 1}
_PART = r"([0-9]+(?:\.[0-9]+)?)(ms|h|m|s)"
_PARTS = re.compile(_PART)
_WHOLE = re.compile(f"(?:{_PART})+")
_BARE_NUMBER = re.compile(r"\+?[0-9]+(?:\.[0-9]+)?")


class InvalidDurationError(HapticError):
    """The text is not a duration; trying again helps only after an edit."""

    def __init__(self, message: str, hint: str) -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} ({hint})")


def parse_duration(text: str) -> Duration:
    """Return the seconds that *text* stands for, or raise `InvalidDurationError`.

    Units are h, m, s and ms, each at most once and from large to small; numbers may have a fraction.
    """
    if text.startswith("-"):
        raise InvalidDurationError(f"a duration cannot be negative, found {text!r}", "write it without the minus sign")
    if _BARE_NUMBER.fullmatch(text):
        number = text.removeprefix("+")
        raise InvalidDurationError(
            f"a duration needs a unit, found {text!r}",
            f"write `{number}s` for seconds or `{number}ms` for milliseconds",
        )
    if len(text) > 40 or not _WHOLE.fullmatch(text):
        raise InvalidDurationError(
            f"{text[:40]!r} is not a valid duration",
            "write a number and a unit (ms, s, m, h), such as `500ms`, `5s`, `1h30m`",
        )
    parts = _PARTS.findall(text)
    sizes = [_MILLISECONDS[unit] for _, unit in parts]
    if sizes != sorted(set(sizes), reverse=True):
        raise InvalidDurationError(
            f"the units of {text!r} are out of order or repeated", "write each unit once, from large to small: `1h30m`"
        )
    seconds = float(sum(Decimal(number) * _MILLISECONDS[unit] for number, unit in parts) / 1000)
    if seconds > LONGEST:
        raise InvalidDurationError(f"{text!r} is longer than a year", "shorten it")
    return Duration(seconds)


def encode_duration(duration: float) -> str:
    """Return *duration* (seconds, not negative) as text that `parse_duration` reads, to the millisecond."""
    rest = round(duration * 1000)
    parts = []
    for unit, size in _MILLISECONDS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"
