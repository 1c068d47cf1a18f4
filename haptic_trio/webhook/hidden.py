"""Redaction of Secret content from answers."""

import base64
import binascii
from collections.abc import Iterator
from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores
from haptic_trio.templating.values.faults import ContentUnavailableError

SHORTEST: Final = 4
"""Characters; shorter texts would match everywhere."""
MOST_SECRETS: Final = 1000
"""With more Secrets, only those of the namespace are redacted."""
_SECRET: Final = "Secret"  # noqa: S105  a kind of object


def hidden_words(stores: Stores, namespace: str) -> frozenset[str]:
    """Return the secret texts of all Secrets in *stores*; of on-demand stores, those of fetched Secrets."""
    secrets = [each for store in stores.values() for each in store.list() if each.get("kind") == _SECRET]
    if len(secrets) > MOST_SECRETS:
        secrets = [each for each in secrets if each["metadata"].get("namespace") == namespace]
    return frozenset().union(*map(_hidden_here, secrets))


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
