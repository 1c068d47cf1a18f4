"""Places of a guarded Ingress, as guards: its last good version is a fallback only if it guards them as well.

Requests for a place that this version lacks would reach a shorter path, perhaps
of another Ingress, which may not require a password.
"""

import hashlib
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from haptic_trio.ingress.served import Served

_MOST_SHORTER: Final = 32
"""Shorter paths that are compared with a path: this bounds the cost of a path with very many segments."""


def places_of(served: Served) -> Iterator[list[str]]:
    """Yield the names of each path that is *served*, for the template function `guarded`.

    The first name is the one of the path itself. The others are those of prefixes of the same host, each of which
    covers the path.
    """
    for host, paths in served.routes.items():
        prefixes = served.prefixes.get(host, frozenset[str]())
        for path in sorted(paths):
            covering = [_name("prefix", host, shorter) for shorter in _shorter(path)]
            own = _name("prefix" if path in prefixes else "path", host, path)
            yield [own, *(name for name in covering if name != own)]


def _shorter(path: str) -> Iterator[str]:
    """Yield the prefixes of *path*, the shortest first, and at last *path* itself."""
    segments = path.split("/")
    yield from accumulate(segments[:_MOST_SHORTER], lambda before, segment: f"{before}/{segment}")
    if len(segments) > _MOST_SHORTER:
        yield path


def _name(kind: str, host: str, path: str) -> str:
    # Names of long paths would take much memory.
    return f"{kind} {hashlib.sha256(f'{host}|{path}'.encode(errors='surrogatepass')).hexdigest()[:32]}"
