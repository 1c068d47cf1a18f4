"""Expiry times of the certificates that HAProxy serves.

The leaf counts: the first certificate of a file. What comes after it may be
an old cross-signed root, which no client looks at.
"""

from collections.abc import Iterable
from functools import lru_cache
from heapq import nsmallest
from typing import Final

import msgspec
from cryptography import x509

from haptic_trio.haproxy.config.certificates import PEM
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation
from haptic_trio.x509.errors import UNREADABLE

SOONEST: Final = 10
"""Number of certificates with their own series."""

_MEMO: Final = "expires"


class Expiry(msgspec.Struct, frozen=True, order=True):
    """Expiry of one certificate."""

    at: float
    """Seconds since 1970."""
    file: str


class Expiries(msgspec.Struct, frozen=True):
    """Expiry times of the certificates of one generation."""

    count: int = 0
    times: tuple[float, ...] = ()
    """Expiry times in ascending order."""
    soonest: tuple[Expiry, ...] = ()


def find_expiries(generation: Generation) -> Expiries:
    """Return the expiry times of *generation*; CPU-bound for certificates that were not parsed before."""
    found = list(_expiries(generation.files_of(FileKind.CERT)))
    return Expiries(len(found), tuple(sorted(one.at for one in found)), tuple(nsmallest(SOONEST, found)))


def expiry_of(file: AuxFile) -> float | None:
    """Return when the certificate in *file* expires, in seconds since 1970; None if it holds no certificate."""
    if _MEMO not in file.memo:
        match = PEM.search(file.content)
        # Only the certificate, so that the cache holds no private keys.
        file.memo[_MEMO] = _expiry_of(match[0]) if match is not None else None
    found: float | None = file.memo[_MEMO]
    return found


def _expiries(files: Iterable[AuxFile]) -> Iterable[Expiry]:
    for file in files:
        at = expiry_of(file)
        if at is not None:
            yield Expiry(at, file.path)


@lru_cache(maxsize=20_000)
def _expiry_of(pem: bytes) -> float | None:
    try:
        return x509.load_pem_x509_certificate(pem).not_valid_after_utc.timestamp()
    except UNREADABLE:
        return None
