"""Changes of headers as HAProxy's actions `del-headers-bin` and `add-headers-bin` read them."""

from base64 import urlsafe_b64encode
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

_ROUTING: Final = frozenset({"host"})
"""Headers that HAProxy keeps in two places. Lua changes both."""


class HeaderChange(msgspec.Struct, frozen=True):
    """One change of a header; `value` is empty if it is removed."""

    operation: str
    """`s`: set, `a`: add, `r`: remove."""
    name: str
    value: str = ""


def binary_changes(changes: Sequence[HeaderChange]) -> tuple[str, str] | None:
    """Return the names to remove and the headers to add thereafter; None if this is not the same as *changes*.

    Both are in base64 without padding, in the alphabet for URLs.
    """
    names = [change.name for change in changes if change.operation != "r"]
    dropped = {change.name for change in changes if change.operation == "r"}
    if len(set(names)) < len(names) or not dropped.isdisjoint(names) or not _ROUTING.isdisjoint({*names, *dropped}):
        return None
    removed = [change.name for change in changes if change.operation != "a"]
    added = [text for change in changes if change.operation != "r" for text in (change.name, change.value)]
    # An empty name ends a list of names, an empty name and an empty value one of headers.
    return _encoded([*removed, ""]), _encoded([*added, "", ""])


def _encoded(texts: Iterable[str]) -> str:
    found = b"".join(_length(len(one)) + one for one in (text.encode() for text in texts))
    return urlsafe_b64encode(found).rstrip(b"=").decode()


def _length(number: int) -> bytes:
    """Return *number* in HAProxy's encoding of integers of variable size."""
    if number < 240:
        return bytes([number])
    found = bytearray([number & 255 | 240])
    number = (number - 240) >> 4
    while number >= 128:
        found.append(number & 127 | 128)
        number = (number - 128) >> 7
    found.append(number)
    return bytes(found)
