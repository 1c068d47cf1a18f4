"""Redaction of Secret content from answers."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from haptic_trio.templating.incremental.deferred import ContentUnavailableError

SHORTEST: Final = 4
"""Characters: what is shorter would be found everywhere."""
MOST_SECRETS: Final = 1000
"""With more of them only those of the namespace are looked at."""
_SECRET: Final = "Secret"  # noqa: S105  a kind of object


def hidden_words(stores: Stores, namespace: str) -> frozenset[str]:
    """Return the texts in the Secrets of *stores* that are secret; of those on demand, in what has been fetched."""
    secrets = [each for store in stores.values() for each in store.list() if each.get("kind") == _SECRET]
    if len(secrets) > MOST_SECRETS:
        secrets = [each for each in secrets if each["metadata"].get("namespace") == namespace]
    return frozenset().union(*map(_hidden_here, secrets))


def _hidden_here(secret: Resource) -> frozenset[str]:
    try:
        return hidden_in(secret)
    except ContentUnavailableError:
        # What is not here can be in no text.
        return frozenset()


def hidden_in(resource: Resource | None) -> frozenset[str]:
    """Return the texts in *resource* that are secret, as they are written, as they are meant, and by line."""
    if not resource or resource.get("kind") != _SECRET:
        return frozenset()
    return frozenset(
        line
        for field in ("data", "stringData")
        for value in _values_of(resource.get(field))
        for text in (value, _decoded(value))
        for line in {text, *text.splitlines()}
        if len(line.strip()) >= SHORTEST
    )


def _values_of(section: Any) -> Iterator[str]:
    if isinstance(section, dict):
        yield from (value for value in section.values() if isinstance(value, str))


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        return ""
