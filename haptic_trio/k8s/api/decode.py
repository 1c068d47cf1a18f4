"""Decoder for lists and watch events of the API.

Objects are plain data. Fields that a list omits (apiVersion, kind) are filled
in; managedFields, half of many objects and unused here, is dropped. All
containers that decoding makes stay alive, so the garbage collector, which
would traverse them repeatedly, is paused meanwhile.
"""

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import msgspec

from haptic_trio.k8s.api.discovery import ServedKind
from haptic_trio.k8s.resource import Resource, decode_tolerantly, read_float

INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"
"""The annotation of the bookmark that ends a streamed list."""
PARTIAL: Final = "PartialObjectMetadata"
"""The kind that an object says it is when it comes without the rest of it."""


class _ListMetadata(msgspec.Struct):
    resourceVersion: str = ""  # noqa: N815  the API's name
    continuation: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """A part of a list, its objects not decoded yet."""

    metadata: _ListMetadata = msgspec.field(default_factory=_ListMetadata)
    items: list[msgspec.Raw] | None = None


class RawEvent(msgspec.Struct):
    """A line of a watch."""

    type: str
    object: Resource


_PAGE: Final = msgspec.json.Decoder(Page)
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any], float_hook=read_float)
_EVENT: Final = msgspec.json.Decoder(RawEvent, float_hook=read_float)


def decode_page(body: bytes) -> Page:
    """Return what *body* holds; raises an error of `INVALID_JSON`."""
    return decode_tolerantly(_PAGE.decode, body)


def decode_object(body: bytes | msgspec.Raw, served: ServedKind) -> Resource:
    """Return the object in *body*; raises an error of `INVALID_JSON`."""
    return completed(decode_tolerantly(_OBJECT.decode, body), served)


def decode_objects(items: Sequence[msgspec.Raw], served: ServedKind) -> list[Resource]:
    """Return the objects in *items*; raises an error of `INVALID_JSON`."""
    with _collector_paused():
        return [decode_object(item, served) for item in items]


def decode_events(lines: bytes) -> list[RawEvent]:
    """Return the events in *lines*, each of which is complete; raises an error of `INVALID_JSON`."""
    with _collector_paused():
        return decode_tolerantly(_EVENT.decode_lines, lines)


def completed(resource: Resource, served: ServedKind) -> Resource:
    """Return *resource* with apiVersion and kind of its own, and without managedFields."""
    metadata = resource.get("metadata")
    if metadata:
        metadata.pop("managedFields", None)
    if "kind" in resource and "apiVersion" in resource and resource["kind"] != PARTIAL:
        return resource
    named = {"apiVersion": served.type.api_version, "kind": served.kind}
    return {**named, **{field: value for field, value in resource.items() if field not in named}}


def ends_initial_events(bookmark: Resource) -> bool:
    """Whether *bookmark* says that a streamed list is complete."""
    annotations = (bookmark.get("metadata") or {}).get("annotations") or {}
    return annotations.get(INITIAL_EVENTS_END) == "true"


@contextmanager
def _collector_paused() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
