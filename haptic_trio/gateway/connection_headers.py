"""Headers that only HAProxy sets, since they are about one connection or the length of a message."""

import re
from typing import Final

_LENGTHS: Final = frozenset({"content-length", "transfer-encoding"})
FRAMING: Final = _LENGTHS | {"connection"}
"""They say where a message ends: with another value, or without them, what follows is read as a part of it."""
_CONNECTION: Final = FRAMING | {"http2-settings", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"}
_AUTHORITY: Final = re.compile(
    r"(?:[A-Za-z0-9_][A-Za-z0-9._-]{0,252}|\[[0-9A-Fa-f:.]{2,45}\])(?::[0-9]{1,5})?"
).fullmatch


def is_connection_header(name: str) -> bool:
    """Whether only HAProxy sets the header *name*, in any case, or applications may take it for a message's length."""
    text = name.lower()
    return text in _CONNECTION or re.sub("[^a-z0-9]", "-", text) in _LENGTHS


def is_authority(text: str) -> bool:
    """Whether *text* can be the value of the header Host: a host name or an address, with or without a port."""
    return _AUTHORITY(text) is not None
