"""Kubernetes Events about objects: text, rate limit and wire form. No I/O.

A repeated notice is one Event with a count. The name of an Event is derived from
its content, so that this also holds across restarts and changes of leadership.
"""

import hashlib
from enum import StrEnum
from math import inf
from typing import Any, Final

import msgspec

from haptic_trio.k8s.resource import Resource, ResourceRef, ResourceType

EVENTS: Final = ResourceType("events.k8s.io/v1", "events")
CONTROLLER: Final = "haptic-trio/controller"
LONGEST_NOTE: Final = 1024
"""Bytes."""


class EventType(StrEnum):
    """Type field of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class Regarding(msgspec.Struct, frozen=True, kw_only=True):
    """The object that an Event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str = ""


class Notice(msgspec.Struct, frozen=True, kw_only=True):
    """Content of an Event about an object."""

    regarding: Regarding
    type: EventType
    reason: str
    """One word in upper camel case, for machines."""
    action: str
    """The attempted action, one word."""
    note: str
    topic: str = ""
    """Notices about one object share a rate limit if they have the same topic; empty: the topic is the reason."""

    @property
    def limited_as(self) -> str:
        """The topic, by which notices about an object are limited.

        Objects of other tenants can cause warnings about this object again and again, such as conflicts. Such
        warnings must not use up the notices of another topic.
        """
        return self.topic or self.reason

    @property
    def name(self) -> str:
        """Name of the Event, equal for equal notices."""
        regarding = self.regarding
        identity = repr((regarding.kind, regarding.uid, self.reason, self.note))
        # A name that is cut must not end with a dot or a hyphen before the dot.
        return f"{regarding.name[:200].rstrip('.-')}.{hashlib.sha256(identity.encode()).hexdigest()[:16]}"

    @property
    def namespace(self) -> str:
        """Namespace of the Event: that of its object, or `default`."""
        return self.regarding.namespace or "default"


def regarding_of(resource: Resource) -> Regarding:
    """Return the reference to *resource*."""
    metadata = resource["metadata"]
    return Regarding(
        api_version=resource["apiVersion"],
        kind=resource["kind"],
        namespace=metadata.get("namespace") or "",
        name=metadata["name"],
        uid=metadata.get("uid") or "",
    )


def event_of(notice: Notice, *, instance: str, now: str) -> Resource:
    """Return the first Event of *notice*; *instance* is the identity of this replica."""
    regarding = notice.regarding
    reference = {
        "apiVersion": regarding.api_version,
        "kind": regarding.kind,
        "name": regarding.name,
        "namespace": regarding.namespace,
        "uid": regarding.uid,
    }
    return {
        "apiVersion": EVENTS.api_version,
        "kind": "Event",
        "metadata": {"name": notice.name, "namespace": notice.namespace},
        "eventTime": now,
        "reportingController": CONTROLLER,
        "reportingInstance": instance[:128],
        "action": notice.action,
        "reason": notice.reason,
        "regarding": {field: value for field, value in reference.items() if value},
        "note": shorten(notice.note, LONGEST_NOTE),
        "type": notice.type.value,
    }


def repeated(event: Resource, times: int, *, now: str) -> Resource:
    """Return *event* with *times* more repetitions in its series."""
    series: dict[str, Any] = event.get("series") or {}
    # The first repetition is the second occurrence.
    count = max(int(series.get("count") or 1), 1) + times
    return {**event, "series": {"count": count, "lastObservedTime": now}}


def shorten(text: str, limit: int) -> str:
    """Return *text* cut to *limit* bytes of UTF-8."""
    encoded = text.encode(errors="replace")
    if len(encoded) <= limit:
        return encoded.decode()
    return encoded[: limit - 3].decode(errors="ignore") + "…"


class Allowance:
    """Rate limit: *burst* at once, and one more every *interval* seconds."""

    def __init__(self, burst: int, interval: float) -> None:
        self._burst = burst
        self._interval = interval
        self._left = float(burst)
        self._since = -inf

    def take(self, now: float) -> float:
        """Take one and return 0, or return the seconds until one is available."""
        if self._since > -inf:
            self._left = min(self._burst, self._left + (now - self._since) / self._interval)
        self._since = now
        if self._left < 1:
            return (1 - self._left) * self._interval
        self._left -= 1
        return 0.0


class NoticeKey(msgspec.Struct, frozen=True):
    """Identity of an Event."""

    namespace: str
    name: str
    topic: str = ""
    """See `Notice.limited_as`."""


class Turns:
    """Keys of notices that wait to be written.

    Namespaces take turns, so that many notices of one namespace delay no other one. The topics of a namespace take
    turns, too: objects of other namespaces can cause many notices of one topic.
    """

    def __init__(self, *, most: int = 500) -> None:
        """At most *most* keys of each topic of a namespace wait."""
        self._most = most
        self._waiting: dict[str, dict[str, dict[NoticeKey, None]]] = {}
        """By namespace and topic, the next one first."""

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def put(self, key: NoticeKey) -> bool:
        """Add *key*; False if too many of its namespace and topic wait."""
        waiting = self._waiting.setdefault(key.namespace, {}).setdefault(key.topic, {})
        if key not in waiting and len(waiting) >= self._most:
            return False
        waiting[key] = None
        return True

    def take(self) -> NoticeKey:
        """Remove and return the next key."""
        namespace = next(iter(self._waiting))
        topics = self._waiting.pop(namespace)
        topic = next(iter(topics))
        waiting = topics.pop(topic)
        key = next(iter(waiting))
        del waiting[key]
        if waiting:
            topics[topic] = waiting
        if topics:
            self._waiting[namespace] = topics
        return key


class NoticeBoard:
    """Pending notices with their numbers of occurrences, rate-limited for each topic of each object."""

    def __init__(self, *, burst: int = 10, interval: float = 60.0, most: int = 4096) -> None:
        """Each topic of an object has *burst* notices and one more every *interval* seconds; *most* limits are kept."""
        self._burst, self._interval, self._most = burst, interval, most
        self._allowances: dict[tuple[str, ResourceRef, str], Allowance] = {}
        self._pending: dict[NoticeKey, tuple[Notice, int]] = {}

    def put(self, notice: Notice, now: float) -> NoticeKey | None:
        """Add *notice* and return its key; None if the topic of the object exceeds its rate limit."""
        regarding, topic = notice.regarding, notice.limited_as
        limited = (regarding.uid, ResourceRef(regarding.kind, regarding.namespace, regarding.name), topic)
        allowance = self._allowances.pop(limited, None) or Allowance(self._burst, self._interval)
        # Least recently used limits are dropped first.
        self._allowances[limited] = allowance
        if len(self._allowances) > self._most:
            del self._allowances[next(iter(self._allowances))]
        if allowance.take(now):
            return None
        key = NoticeKey(notice.namespace, notice.name, topic)
        self._pending[key] = notice, self._pending[key][1] + 1 if key in self._pending else 1
        return key

    def pending(self, key: NoticeKey) -> tuple[Notice, int] | None:
        """Return the pending notice *key* and its number of occurrences, or None."""
        return self._pending.get(key)

    def drop(self, key: NoticeKey) -> None:
        """Forget the notice *key*."""
        self._pending.pop(key, None)

    def note_written(self, key: NoticeKey, times: int) -> bool:
        """Record that *times* occurrences were written; return whether more are pending."""
        notice, wanted = self._pending.pop(key)
        if wanted > times:
            self._pending[key] = notice, wanted - times
        return wanted > times
