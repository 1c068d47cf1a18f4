"""Durations of the Gateway API."""

import re
from typing import Final

from haptic_trio.gateway.objects import GatewayObjectError

_DURATION: Final = re.compile(r"(?:[0-9]{1,5}(?:h|ms|m|s)){1,4}").fullmatch
_PART: Final = re.compile(r"([0-9]{1,5})(h|ms|m|s)")
_MILLISECONDS: Final = {"h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}


def milliseconds(text: str) -> int:
    """Return *text* (GEP-2257, such as `1m30s`) in milliseconds; 0 for none, or raise `GatewayObjectError`."""
    if not text:
        return 0
    if not _DURATION(text):
        raise GatewayObjectError(
            "invalid duration: use up to four numbers, each with the unit h, m, s or ms, such as 1m30s"
        )
    return sum(int(number) * _MILLISECONDS[unit] for number, unit in _PART.findall(text))
