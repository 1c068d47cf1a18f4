"""Redaction of Secret content in texts, such as messages of HAProxy."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from haptic_trio.haproxy.model import digest_of
from haptic_trio.k8s.on_demand import OnDemandStore
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import Stores

SHORTEST = 4
"""Characters; shorter texts would match everywhere."""
MOST_SECRETS = 1000
MOST_WORDS = 20_000
MOST_BYTES = 16 << 20
"""Beyond these limits, and with on-demand Secrets, complete texts of problems are replaced by their digests."""
_SECRET = "Secret"  # noqa: S105  a kind of object


class Redactor:
    """Replaces the content of present Secrets by digests.

    *values* are additional secret texts, such as credentials.
    """

    def __init__(self, stores: Callable[[], Stores | None], values: Callable[[], Iterable[str]] = tuple) -> None:
        self._stores = stores
        self._values = values
        self._words_of_secrets = _WordsOfSecrets()
        self._seen: tuple[tuple[str, int], ...] | None = None
        self._known: tuple[str, ...] | None = ()

    def clean(self, text: str) -> str:
        """Return *text* with secrets replaced."""
        known = self._words()
        if known is None:
            return f"withheld, digest {digest_of(text)}"
        for word in known:
            if word in text:
                text = text.replace(word, f"<secret, digest {digest_of(word)[:12]}>")
        return text

    def clean_all(self, value: Any) -> Any:
        """Return *value*, plain data, with every text cleaned."""
        match value:
            case str():
                return self.clean(value)
            case Mapping():
                return {key: self.clean_all(inner) for key, inner in value.items()}
            case list() | tuple():
                return [self.clean_all(inner) for inner in value]
        return value

    def _words(self) -> tuple[str, ...] | None:
        stores = self._stores()
        extra = tuple(value for value in self._values() if value)
        if stores is None:
            # Between two iterations: keep the known texts.
            return self._known if self._known is None else (*extra, *self._known)
        seen = tuple((name, store.version) for name, store in stores.items())
        if seen != self._seen:
            self._seen, self._known = seen, self._words_of_secrets.find(stores)
        return self._known if self._known is None else (*extra, *self._known)


class _WordsOfSecrets:
    """The texts of all Secrets, read once from each version of a Secret: tenants decide how large Secrets are."""

    def __init__(self) -> None:
        self._read: dict[int, tuple[Resource, frozenset[str]]] = {}
        """By identity of the object, which is kept so that no other one gets its identity."""

    def find(self, stores: Stores) -> tuple[str, ...] | None:
        """Return the texts, the longest first; None if there are too many."""
        former, self._read = self._read, {}
        secrets: list[Resource] = []
        for store in stores.values():
            objects = store.list()
            if not objects or objects[0].get("kind") != _SECRET:
                continue
            # The content of on-demand Secrets is unknown without fetching all of them.
            if isinstance(store, OnDemandStore):
                return None
            secrets += objects
        if len(secrets) > MOST_SECRETS or sum(map(_size_of, secrets)) > MOST_BYTES:
            return None
        words: set[str] = set()
        for secret in secrets:
            known = former.get(id(secret)) or (secret, frozenset(_words_of(secret)))
            self._read[id(secret)] = known
            words |= known[1]
            if len(words) > MOST_WORDS:
                return None
        # Longest first: a secret may be a part of another one.
        return tuple(sorted(words, key=lambda word: (-len(word), word)))


def _size_of(secret: Mapping[str, Any]) -> int:
    return sum(len(value) for value in _values_of(secret))


def _words_of(secret: Mapping[str, Any]) -> Iterator[str]:
    for value in _values_of(secret):
        for text in (value, _decoded(value)):
            yield from (line for line in {text, *text.splitlines()} if len(line.strip()) >= SHORTEST)


def _values_of(secret: Mapping[str, Any]) -> Iterator[str]:
    try:
        sections = [secret.get("data"), secret.get("stringData")]
    except msgspec.MsgspecError:
        return
    for section in sections:
        if isinstance(section, Mapping):
            yield from (value for value in section.values() if isinstance(value, str))


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value, validate=True).decode(errors="replace")
    except (binascii.Error, ValueError):
        return ""
