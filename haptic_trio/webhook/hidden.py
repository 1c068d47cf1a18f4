"""Redaction of Secret content from answers."""

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from haptic_trio.templating.values.faults import ContentUnavailableError

SHORTEST: Final = 4
"""Characters; shorter texts would match everywhere."""
MOST_SECRETS: Final = 1000
"""With more Secrets, those of all namespaces are not searched for."""
MOST_BYTES: Final = 16 << 20
MOST_WORDS: Final = 50_000
"""Limits of what is searched for in answers: a tenant can write Secrets of any number, with lines of any number."""
_FIELDS: Final = ("data", "stringData")
_SECRET: Final = "Secret"  # noqa: S105  a kind of object


def hidden_words(stores: Stores, namespace: str) -> frozenset[str] | None:
    """Return the secret texts of the Secrets of *namespace*, and of all Secrets if it is empty; None if too many.

    Of on-demand stores, those of fetched Secrets.
    """
    secrets = [each for store in stores.values() for each in store.list() if each.get("kind") == _SECRET]
    if namespace:
        return _collect(each for each in secrets if each["metadata"].get("namespace") == namespace)
    return _collect(secrets) if len(secrets) <= MOST_SECRETS else None


def _collect(secrets: Iterable[Resource]) -> frozenset[str] | None:
    size, words = 0, set[str]()
    for secret in secrets:
        size += _size_of(secret)
        if size > MOST_BYTES:
            return None
        words |= _hidden_here(secret)
        if len(words) > MOST_WORDS:
            return None
    return frozenset(words)


def _size_of(secret: Resource) -> int:
    try:
        return sum(len(value) for field in _FIELDS for value in _values_of(secret.get(field)))
    except ContentUnavailableError:
        return 0


def _hidden_here(secret: Resource) -> frozenset[str]:
    try:
        return hidden_in(secret)
    except ContentUnavailableError:
        # A Secret that was not fetched cannot be part of a message.
        return frozenset()


def hidden_in(resource: Resource | None) -> frozenset[str]:
    """Return the values of the Secret *resource*: as written, decoded, and each of their lines."""
    if not resource or resource.get("kind") != _SECRET:
        return frozenset()
    return frozenset(
        line
        for field in _FIELDS
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
