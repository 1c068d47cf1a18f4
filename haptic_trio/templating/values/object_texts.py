"""Texts in an object, with their paths, and the search for the field that a value comes from."""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from haptic_trio.redaction.names import is_secret_name
from haptic_trio.redaction.sources import without_credentials
from haptic_trio.yaml.paths import item_path, key_path

MOST_FIELDS: Final = 3
"""If more fields match, the result is ambiguous, and no field is named."""
MOST_TEXTS: Final = 2_000
LONGEST_TEXT: Final = 4_096
"""Characters; longer texts are skipped, except those of Secrets."""
MOST_CHARACTERS: Final = 100_000
_LONGEST_SHOWN: Final = 80
"""Characters of a value in a message."""
_LONGEST_REDACTED: Final = 2_000
"""Characters of a value that are searched for credentials: more than one that begins among those shown can have."""
_DEEPEST: Final = 32
_SECRET: Final = "Secret"  # noqa: S105  a kind of object
_NOT_WRITTEN: Final = frozenset({"managedFields", "kubectl.kubernetes.io/last-applied-configuration"})
_IDENTITY: Final = frozenset({"name", "namespace", "uid", "resourceVersion", "creationTimestamp"})
_BETWEEN: Final = re.compile(r"[,\s]+")
_BETWEEN_ITEMS: Final = re.compile(r"[,\n]")
"""Items of lists, which may have blanks in them."""


def find_value(resource: Any, value: str | None) -> tuple[str, ...]:
    """Return the paths of the texts in *resource* that are *value*, or lists that contain it; annotations first.

    Lists are separated by commas, line breaks or blanks.

    None if there are more than `MOST_FIELDS`. Takes at most a few
    milliseconds for any object.
    """
    if value is None or not isinstance(resource, Mapping):
        return ()
    if resource.get("kind") == _SECRET:
        return _find_in_secret(resource, value) if value else ()
    found: dict[str, None] = {}
    searched = 0
    for number, (path, _, text) in enumerate(texts_of(resource)):
        searched += len(text)
        if number >= MOST_TEXTS or searched > MOST_CHARACTERS:
            return ()
        if text == value or (value and value in text and _is_item(value, text)):
            found[path] = None
    return tuple(found) if len(found) <= MOST_FIELDS else ()


def annotations_of(resource: object) -> dict[str, str]:
    """Return the paths of the annotations of *resource* by their keys."""
    metadata = resource.get("metadata") if isinstance(resource, Mapping) else None
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    keys = annotations if isinstance(annotations, Mapping) else ()
    return {str(key): key_path("metadata.annotations", str(key)) for key in keys if key not in _NOT_WRITTEN}


def text_at(resource: Mapping[str, Any], path: str) -> str | None:
    """Return the text at *path* of *resource*; None unless `texts_of` yields it."""
    return next((text for found, _, text in texts_of(resource) if found == path), None)


def message_about(resource: Any, fields: tuple[str, ...], message: str) -> str:
    """Return *message* with the text of the first of *fields* instead of "the value", unless it may be secret.

    Parts of the text that may be credentials, such as the password in a URL, are blanked.
    """
    if not isinstance(resource, Mapping) or resource.get("kind") == _SECRET or is_secret_name(fields[0]):
        return message
    text = text_at(resource, fields[0])
    if not text or not text.isprintable():
        return message
    # Not all of it: thousands of messages may quote the same long annotation.
    text = without_credentials(text[:_LONGEST_REDACTED])
    shown = text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
    return message.replace("the value ", f'"{shown}" ', 1)


def texts_of(resource: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield path, last key and value of each text in *resource*, except those that the API server sets.

    Annotations come first.
    """
    metadata = resource.get("metadata") or {}
    written = {key: value for key, value in metadata.items() if key not in _IDENTITY}
    rest = {key: value for key, value in resource.items() if key not in {"apiVersion", "kind", "metadata", "status"}}
    yield from _walk({"metadata": dict(sorted(written.items())), **rest}, "", "", 0)


def _is_item(value: str, text: str) -> bool:
    return value in _BETWEEN.split(text) or value in text.split() or value in map(str.strip, _BETWEEN_ITEMS.split(text))


def _find_in_secret(resource: Mapping[str, Any], value: str) -> tuple[str, ...]:
    data = resource.get("data")
    if not isinstance(data, Mapping):
        return ()
    encoded = {field: text for field, text in data.items() if isinstance(text, str)}
    found = [field for field, text in encoded.items() if text == value or _decoded(text) == value]
    return tuple(key_path("data", field) for field in found[:MOST_FIELDS])


def _decoded(text: str) -> str | None:
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        return None


def _walk(value: Any, path: str, key: str, depth: int) -> Iterator[tuple[str, str, str]]:
    if isinstance(value, str):
        if len(value) <= LONGEST_TEXT:
            yield path, key, str(value)
    elif depth >= _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for name, inner in value.items():
            if name not in _NOT_WRITTEN:
                yield from _walk(inner, key_path(path, str(name)), str(name), depth + 1)
    elif isinstance(value, list | tuple):
        for index, inner in enumerate(value):
            yield from _walk(inner, item_path(path, index), key, depth + 1)
