"""Redaction of quoted text in messages."""

import re
from collections.abc import Callable
from functools import partial
from typing import Final

from haptic_trio.redaction.names import BLANK

_END: Final = r"(?=[.,:;)]*(?:\s|\Z))"
_QUOTED: Final = re.compile(
    "|".join(
        # Text without a closing quote matches up to its end, so each character is read once. "n't" opens no quote.
        rf"{before}{opening}(?:[^{closing}]|{closing}(?!{_END}))*+(?:{closing}|\Z)"
        for before, opening, closing in (
            (r"(?<!n(?='t\b))", "'", "'"),
            ("", '"', '"'),
            ("", r"\[", r"\]"),
            ("", "<", ">"),
        )
    )
)
"""Quotes may be a part of what is quoted, which ends before a blank."""
_CLOSING: Final = {"'": "'", '"': '"', "[": "]", "<": ">"}
_BEFORE_NONE: Final = re.compile(r"[\w\\'\"]")
"""Characters that stand before no opening quote."""


def without_quoted(message: str, is_shown: Callable[[str], bool]) -> str:
    """Return *message* with `…` for each text in quotes or brackets, except those that *is_shown* accepts.

    If a quoted text has quotes in it, so that its end is uncertain, nothing is left behind the first quote.
    """
    parts = list(_QUOTED.finditer(message))
    if any(_is_uncertain(message, part) for part in parts):
        return f"{message[: parts[0].start() + 1]}{BLANK}"
    return _QUOTED.sub(partial(_blanked, is_shown), message)


def _is_uncertain(message: str, part: re.Match[str]) -> bool:
    opening, start = part[0][0], part.start()
    closing = _CLOSING[opening]
    is_whole = len(part[0]) > 1 and part[0].find(closing, 1) == len(part[0]) - 1
    begins_within = opening == closing and start > 0 and _BEFORE_NONE.match(message, start - 1) is not None
    return not is_whole or begins_within


def _blanked(is_shown: Callable[[str], bool], match: re.Match[str]) -> str:
    opening = match[0][0]
    return match[0] if is_shown(match[0][1:-1]) else f"{opening}{BLANK}{_CLOSING[opening]}"
