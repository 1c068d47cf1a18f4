"""Cache of verdicts about texts, which holds digests of the texts instead of the texts.

A Secret may have a megabyte. If the cache held texts, a tenant who writes one
Secret again and again would fill the controller's memory.
"""

import hashlib
from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from typing import Any, TypeAlias, TypeVar

T = TypeVar("T")
Weigh: TypeAlias = Callable[[Any], int]


def cached(most: int, weigh: Weigh = lambda _result: 1) -> Callable[[Callable[..., T]], Callable[..., T]]:
    """Return a decorator that caches results of a function of texts, which have a weight of at most *most* together."""

    def decorate(function: Callable[..., T]) -> Callable[..., T]:
        known: dict[bytes, T] = {}
        weight = 0

        @wraps(function)
        def ask(*texts: str) -> T:
            nonlocal weight
            key = _digest(texts)
            # Threads share the cache: another one may empty it at any time.
            with suppress(KeyError):
                return known[key]
            result = function(*texts)
            weight += weigh(result)
            if weight > most:
                known.clear()
                weight = weigh(result)
            known[key] = result
            return result

        return ask

    return decorate


def _digest(texts: tuple[str, ...]) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        content = text.encode("utf-8", "surrogatepass")
        digest.update(len(content).to_bytes(8, "big"))
        digest.update(content)
    return digest.digest()
