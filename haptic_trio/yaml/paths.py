"""Paths of values within a document, such as `spec.rules[0].host`."""

import re
from typing import Final

import msgspec

_PLAIN_KEY: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")


def key_path(path: str, key: str) -> str:
    """Return the path of *key* within the mapping at *path*; keys that are no plain word are quoted."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{msgspec.json.encode(key).decode()}]"
    return f"{path}.{key}" if path else key


def item_path(path: str, index: int) -> str:
    """Return the path of item *index* within the list at *path*."""
    return f"{path}[{index}]"
