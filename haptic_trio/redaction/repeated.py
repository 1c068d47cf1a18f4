"""Redaction of credentials in answers to requests: a server or a proxy may repeat what it was sent."""

from collections.abc import Iterable
from typing import Final

from haptic_trio.redaction.names import BLANK

SHORTEST: Final = 4
"""Characters of a credential that is replaced; shorter ones would match everywhere."""


def without_repeated(text: str, credentials: Iterable[str]) -> str:
    """Return *text* with `…` for each of *credentials*, the longest first: one may be a part of another."""
    for credential in sorted(credentials, key=len, reverse=True):
        if len(credential) >= SHORTEST:
            text = text.replace(credential, BLANK)
    return text
