"""Trusted text, and the characters that no data may hold."""

import re
from typing import Final

SENTINELS: Final = "\ufdd0-\ufdef"
"""Unicode noncharacters that mark fragments in the text; data must not contain them."""
FORBIDDEN: Final = re.compile(f"[\x00-\x1f\x7f-\x9f\u2028\u2029\ufffe\uffff\ud800-\udfff{SENTINELS}]")
"""Characters that no emitter for a single line accepts: control characters, line breaks, lone surrogates."""


class Emitted(str):
    """Text that may become output as it is."""

    __slots__ = ()
