"""Expiry times of the certificates that HAProxy serves.

The leaf counts: the first certificate of a file. What comes after it may be
an old cross-signed root, which no client looks at.
"""

from collections.abc import Iterable, Mapping
from heapq import nsmallest
from typing import Final

import msgspec
from cryptography import x509

from haptic_trio.haproxy.config.certificates import PEM, crt_lists_of, names_of
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation
from haptic_trio.x509.errors import UNREADABLE
from haptic_trio.x509.verdicts import cached

SOONEST: Final = 10
"""Number of certificates with their own series."""
SOONEST_HOSTS: Final = 100
"""Number of hosts with their own series: users choose hosts, and each series costs the monitoring."""

_MEMO: Final = "expires"


class Expiry(msgspec.Struct, frozen=True, order=True):
    """Expiry of one certificate."""

    at: float
    """Seconds since 1970."""
    file: str


class HostExpiry(msgspec.Struct, frozen=True, order=True):
    """Expiry of the first certificate that expires among those of a host."""

    at: float
    """Seconds since 1970."""
    host: str
    """A host name, or a wildcard."""


class Expiries(msgspec.Struct, frozen=True):
    """Expiry times of the certificates of one generation."""

    count: int = 0
    times: tuple[float, ...] = ()
    """Expiry times in ascending order."""
    soonest: tuple[Expiry, ...] = ()
    hosts: tuple[HostExpiry, ...] = ()
    """Hosts whose certificates expire first."""


def find_expiries(generation: Generation) -> Expiries:
    """Return the expiry times of *generation*; CPU-bound for certificates that were not parsed before."""
    found = list(_expiries(generation.files_of(FileKind.CERT)))
    hosts = nsmallest(SOONEST_HOSTS, _hosts(generation, {one.file: one.at for one in found}))
    return Expiries(len(found), tuple(sorted(one.at for one in found)), tuple(nsmallest(SOONEST, found)), tuple(hosts))


def expiry_of(file: AuxFile) -> float | None:
    """Return when the certificate in *file* expires, in seconds since 1970; None if it holds no certificate."""
    if _MEMO not in file.memo:
        match = PEM.search(file.content)
        file.memo[_MEMO] = _expiry_of(match[0].decode(errors="surrogateescape")) if match is not None else None
    found: float | None = file.memo[_MEMO]
    return found


def _expiries(files: Iterable[AuxFile]) -> Iterable[Expiry]:
    for file in files:
        at = expiry_of(file)
        if at is not None:
            yield Expiry(at, file.path)


def _hosts(generation: Generation, times: Mapping[str, float]) -> Iterable[HostExpiry]:
    """Yield the hosts of the crt-lists whose certificates have one of *times*, by file."""
    files = {file.path: file for file in generation.files_of(FileKind.CERT)}
    first: dict[str, float] = {}
    for listed in (crt_lists_of(generation) or {}).values():
        for entry in listed:
            at = times.get(entry.certificate)
            if at is not None:
                for host in names_of(entry, files[entry.certificate]) or ():
                    first[host] = min(at, first.get(host, at))
    return (HostExpiry(at, host) for host, at in first.items())


@cached(20_000)
def _expiry_of(pem: str) -> float | None:
    try:
        return x509.load_pem_x509_certificate(pem.encode(errors="surrogateescape")).not_valid_after_utc.timestamp()
    except UNREADABLE:
        return None
