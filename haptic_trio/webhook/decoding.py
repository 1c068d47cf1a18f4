"""Decoding of reviews: large bodies of one namespace take a small part of the time of all tasks.

A body is decoded in one step, in which no other task runs. One of 3 MB with
many small values takes 0.3 s, and a tenant may have an API server send one
after the other (`kubectl apply --dry-run=server`).
"""

import re
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import trio

from haptic_trio.webhook.bodies import MOST_COLLECTIONS, BodyError, has_too_many_collections
from haptic_trio.webhook.review import Request, decode_review

SMALL: Final = 64 << 10
"""Bytes of a body that is decoded in any case, within milliseconds."""
FREE: Final = 0.02
"""Seconds of CPU time that lead to no pause; most bodies take a hundredth of that."""
PAUSE: Final = 10.0
"""Seconds of pause for each second."""
_HEAD: Final = 4096
# API servers write name and namespace before the objects, and quotes in texts behind a backslash.
_NAMESPACE: Final = re.compile(rb'"namespace":"([a-z0-9-]*)"')


class Decoder:
    """Decodes bodies; a namespace whose bodies take long has a pause."""

    def __init__(
        self, *, clock: Callable[[], float] = trio.current_time, cpu_clock: Callable[[], float] = time.thread_time
    ) -> None:
        self._clock = clock
        self._cpu_clock = cpu_clock
        self._until: dict[bytes, float] = {}

    def decode(self, body: bytes | bytearray) -> Request:
        """Return the request in *body*.

        Raises `BodyError` if it has too many values, or is large and its namespace has a pause, and `ReviewError` if it
        is not a review. Objects without a namespace belong to administrators, and lead to no pause.
        """
        found = _NAMESPACE.search(body, 0, _HEAD)
        namespace = found[1] if found is not None else b""
        left = self._until.get(namespace, 0.0) - self._clock()
        if left > 0 and len(body) > SMALL:
            text = (
                f"an earlier review of its namespace took long to decode: no large object is reviewed for {left:.1f} s"
            )
            raise BodyError(HTTPStatus.TOO_MANY_REQUESTS, text)
        began = self._cpu_clock()
        try:
            if has_too_many_collections(body):
                text = f"the body has more than {MOST_COLLECTIONS:,} mappings and lists"
                raise BodyError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, text)
            return decode_review(body)
        finally:
            self._note(namespace, self._cpu_clock() - began)

    def _note(self, namespace: bytes, seconds: float) -> None:
        if namespace and seconds > FREE:
            now = self._clock()
            self._until = {known: until for known, until in self._until.items() if until > now}
            self._until[namespace] = now + PAUSE * seconds
