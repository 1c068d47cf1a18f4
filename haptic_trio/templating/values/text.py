"""Trusted text, and the characters that no data may hold."""

import re
from typing import Final

SENTINELS: Final = "\ufdd0-\ufdef"
"""Unicode's noncharacters for internal use, which mark fragments in the text; data may not hold them."""
FORBIDDEN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff{SENTINELS}]")
"""What no emitter for a single line lets through: control characters, line breaks, halves of surrogate pairs."""


class Emitted(str):
    """Text that may become output as it is."""

    __slots__ = ()
