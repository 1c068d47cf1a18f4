"""Lists and watches of the in-process API server."""

import base64
from collections.abc import AsyncGenerator, Callable, Iterator

import msgspec
import trio

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.selectors import SelectorError, parse_field_selector, parse_label_selector
from tests.support.api_server.faults import Faults
from tests.support.api_server.http import CutError
from tests.support.api_server.kinds import KindInfo
from tests.support.api_server.state import Collection, Entry, State, StatusError, Stored

_FIELDS = {"Secret": {"type"}, "Pod": {"spec.nodeName", "status.phase"}}
_CHUNK = 500
"""Events in a chunk, at most."""


class Filter:
    """Which objects a request is about."""

    def __init__(self, info: KindInfo, namespace: str, query: dict[str, str], accepted: str = "") -> None:
        self._namespace = namespace
        shape = "PartialObjectMetadata" if query.get("watch") in {"true", "1"} else "PartialObjectMetadataList"
        self.is_partial = f"application/json;as={shape};g=meta.k8s.io;v=v1" in accepted.split(",")
        """Whether objects are sent with their metadata only."""
        try:
            self._labels = parse_label_selector(query.get("labelSelector", ""))
            self._fields = parse_field_selector(query.get("fieldSelector", ""))
        except SelectorError as error:
            raise StatusError(400, "BadRequest", str(error)) from error
        for requirement in self._fields.requirements:
            known = {"metadata.name", "metadata.namespace", *_FIELDS.get(info.kind, ())}
            if requirement.expression not in known:
                raise StatusError(400, "BadRequest", f"field label not supported: {requirement.expression}")

    def matches(self, resource: Resource) -> bool:
        """Whether *resource* is selected."""
        return (
            (not self._namespace or resource["metadata"].get("namespace") == self._namespace)
            and self._labels.matches(resource)
            and self._fields.matches(resource)
        )


def list_page(state: State, collection: Collection, wanted: Filter, query: dict[str, str]) -> bytes:
    """Return a list, or the page of it that *query* asks for."""
    version, start, last = state.version, ("", ""), ("", "")
    if query.get("continue"):
        version, *place = msgspec.json.decode(base64.b64decode(query["continue"]))
        start = (place[0], place[1])
        if version < collection.compacted:
            raise StatusError(410, "Expired", "The provided continue parameter is too old")
    limit = int(query.get("limit") or 0)
    items: list[bytes] = []
    token = ""
    for place in collection.places():
        stored = collection.objects[place]
        if place > start and wanted.matches(stored.resource):
            if limit and len(items) == limit:
                token = base64.b64encode(msgspec.json.encode([version, *last])).decode()
                break
            items.append(stored.partial if wanted.is_partial else stored.item)
            last = place
    info = collection.info
    metadata = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    named = {"kind": f"{info.kind}List", "apiVersion": info.type.api_version}
    if wanted.is_partial:
        named = {"kind": "PartialObjectMetadataList", "apiVersion": "meta.k8s.io/v1"}
    head = msgspec.json.encode({**named, "metadata": metadata})
    return head[:-1] + b',"items":[' + b",".join(items) + b"]}"


class WatchSet:
    """The watches that are open; *noted* is called when there is one more or less, and after each bookmark."""

    def __init__(self, noted: Callable[[], None]) -> None:
        self.bookmarks = 0
        """How many bookmarks have been taken by the network, all in all."""
        self._noted = noted
        self._watches: set[Watch] = set()

    def __len__(self) -> int:
        return len(self._watches)

    def __iter__(self) -> "Iterator[Watch]":
        return iter(tuple(self._watches))

    def add(self, watch: "Watch") -> None:
        """A watch is opened."""
        self._watches.add(watch)
        self._noted()

    def count_bookmark(self) -> None:
        """A bookmark was sent."""
        self.bookmarks += 1
        self._noted()

    def discard(self, watch: "Watch") -> None:
        """A watch has ended."""
        self._watches.discard(watch)
        self._noted()


class Watch:
    """One watch: the chunks of its answer."""

    def __init__(
        self,
        state: State,
        collection: Collection,
        wanted: Filter,
        query: dict[str, str],
        faults: Faults,
        register: WatchSet,
    ) -> None:
        self._state = state
        self._collection = collection
        self._wanted = wanted
        self._faults = faults
        self._register = register
        self._duration = float(query.get("timeoutSeconds") or 1800)
        self._bookmarks = query.get("allowWatchBookmarks") == "true"
        self._end: Exception | None = None
        self._initial: list[bytes] | None = None
        asked = query.get("resourceVersion", "")
        streams = query.get("sendInitialEvents") == "true" and not faults.ignores_list_streaming
        if streams and not faults.list_streaming:
            raise StatusError(faults.list_streaming_rejection, "Invalid", "told to reject sendInitialEvents")
        self._version = int(asked) if asked not in {"", "0"} else state.version
        if asked in {"", "0"}:
            objects = [collection.objects[place] for place in collection.places()]
            self._initial = [
                _line("ADDED", each, partial=wanted.is_partial) for each in objects if wanted.matches(each.resource)
            ]
            if streams:
                self._initial.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
        self._expired = self._is_expired()
        if self._expired and faults.expired_status:
            raise _EXPIRED

    def cut(self, reason: Exception | None = None) -> None:
        """End the watch: by *reason* as an ERROR event, or by cutting the connection."""
        self._end = reason or CutError()
        self._collection.wake()

    async def chunks(self, bookmark_interval: float) -> AsyncGenerator[bytes, None]:
        """Yield events until the time is up."""
        self._register.add(self)
        try:
            if self._faults.silent:
                await trio.sleep_forever()
            for chunk in self._beginning():
                yield chunk
            deadline = trio.current_time() + self._duration
            bookmark_at = trio.current_time() + bookmark_interval
            while not self._expired and trio.current_time() < deadline:
                changed = self._collection.changed
                if (chunk := b"".join(self._news())) and not self._faults.silent:
                    yield chunk
                if isinstance(self._end, StatusError):
                    yield _error_line(self._end)
                    return
                if self._end is not None:
                    raise self._end
                if self._collection is not self._state.collections.get(self._collection.info.type):
                    return
                with trio.move_on_at(min(deadline, bookmark_at)):
                    await changed.wait()
                if trio.current_time() >= min(bookmark_at, deadline) and self._bookmarks and not self._faults.silent:
                    bookmark_at = trio.current_time() + bookmark_interval
                    # What has happened meanwhile first: a bookmark says that everything before it has been sent.
                    news = b"".join(self._news())
                    self._version = max(self._version, self._state.version)
                    yield news + self._bookmark({})
                    self._register.count_bookmark()
        finally:
            self._register.discard(self)

    def _beginning(self) -> Iterator[bytes]:
        if self._expired:
            yield _error_line(_EXPIRED)
        initial, self._initial = self._initial or [], None
        for start in range(0, len(initial), _CHUNK):
            yield b"".join(initial[start : start + _CHUNK])

    def _is_expired(self) -> bool:
        if self._faults.expire_watches and self._initial is None:
            self._faults.expire_watches -= 1
            return True
        return self._initial is None and self._version < self._collection.compacted

    def _news(self) -> Iterator[bytes]:
        for entry in self._collection.since(self._version):
            self._version = entry.version
            if (line := _event(entry, self._wanted)) is not None:
                yield line

    def _bookmark(self, annotations: dict[str, str]) -> bytes:
        metadata = {"resourceVersion": str(self._version), **({"annotations": annotations} if annotations else {})}
        info = self._collection.info
        resource = {"kind": info.kind, "apiVersion": info.type.api_version, "metadata": metadata}
        if self._wanted.is_partial:
            resource |= {"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1"}
        return msgspec.json.encode({"type": "BOOKMARK", "object": resource}) + b"\n"


_EXPIRED = StatusError(410, "Expired", "too old resource version")


def _event(entry: Entry, wanted: Filter) -> bytes | None:
    partial = wanted.is_partial
    before = entry.old is not None and wanted.matches(entry.old.resource)
    if entry.new is not None and wanted.matches(entry.new.resource):
        return _line("MODIFIED" if before else "ADDED", entry.new, partial=partial)
    if not before or entry.old is None:
        return None
    if entry.new is None:
        return _line("DELETED", entry.old, partial=partial)
    # It is still there, but not for this watch.
    metadata = {**entry.old.resource["metadata"], "resourceVersion": str(entry.version)}
    gone = Stored({**entry.old.resource, "metadata": metadata}, entry.version, is_custom=True)
    return _line("DELETED", gone, partial=partial)


def _line(kind: str, stored: Stored, *, partial: bool) -> bytes:
    return b'{"type":"%s","object":%s}\n' % (kind.encode(), stored.partial if partial else stored.encoded)


def _error_line(failure: StatusError) -> bytes:
    return msgspec.json.encode({"type": "ERROR", "object": failure.status()}) + b"\n"
