"""Filters for the credentials of clients: keys that verify JSON Web Tokens, API keys, and the claims of tokens.

A value that cannot be used raises `EmitError`, whose text has no part of a
secret. Data that is not that of a Secret raises `TemplateFaultError`.
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.marks import strip_marks
from haptic_trio.templating.values.text import Emitted
from haptic_trio.x509.public_keys import (
    TokenKey,
    TokenKeyError,
    read_key_set,
    read_pem,
    read_published_keys,
    read_secret,
)

_MOST_KEYS: Final = 16
_MOST_WIDE_KEYS: Final = 4
"""Of `_MOST_KEYS`: a key of P-384 takes 1.3 ms to verify a token, ten times as long as any other one."""
_WIDE: Final = "ES384"
_MOST_CLIENTS: Final = 10_000
_LEAST_API_KEY: Final = 16
_MOST_API_KEY: Final = 1_024
_API_KEY: Final = re.compile(rb"[!-~]+").fullmatch
_CLIENT: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}").fullmatch
_CLAIM: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}(?:\.[A-Za-z_][A-Za-z0-9_-]{0,63}){0,7}").fullmatch


class JwtKey(NamedTuple):
    """A key that verifies tokens."""

    algorithms: list[Emitted]
    """Algorithms that the tokens may name."""
    pem: Emitted
    """The content of a file with the public key; empty for a secret."""
    secret: Emitted
    """The secret in base64, for a map; empty for a public key."""


class JwtKeySet(NamedTuple):
    """The keys of a JSON Web Key Set that was fetched."""

    keys: list[JwtKey]
    unusable: list[str]
    """Why other keys of the set are left out."""


def jwt_keys(data: Any) -> list[JwtKey]:
    """The keys in *data* of a Secret, by the ends of the names of its entries.

    `.pem` is a public key or certificate, `.json` a JSON Web Key Set, `.hmac`
    a shared secret. Any other entry is rejected, and so is a key that is too short, private, or
    of a type that HAProxy cannot use.
    """
    found: list[TokenKey] = []
    for name, content in _entries(data, "jwt_keys"):
        try:
            found += _keys_in(name, content)
        except TokenKeyError as exc:
            raise EmitError(f"jwt_keys: the entry {name[:80]!r} of the Secret cannot be used: {exc}") from None
    return _written(found, "jwt_keys: the Secret")


def jwt_key_set(text: Any) -> JwtKeySet:
    """The public keys in *text*, a JSON Web Key Set that an identity provider publishes.

    Keys that HAProxy cannot use are left out, and so are shared secrets. Any other text is rejected.
    """
    if not isinstance(text, str):
        raise TemplateFaultError("jwt_key_set expects the text of a JSON Web Key Set")
    try:
        found = read_published_keys(strip_marks(text).encode("utf-8", "surrogatepass"))
    except TokenKeyError as exc:
        raise EmitError(f"jwt_key_set: the content cannot be used: {exc}") from None
    return JwtKeySet(_written(found.keys, "jwt_key_set: the set"), list(found.unusable))


def _written(keys: Sequence[TokenKey], place: str) -> list[JwtKey]:
    """Return the *keys* of *place*, each of which may be tried for a request."""
    if len(keys) > _MOST_KEYS:
        raise EmitError(f"{place} has more than {_MOST_KEYS} keys", "each may be tried for a request")
    if sum(_WIDE in key.algorithms for key in keys) > _MOST_WIDE_KEYS:
        raise EmitError(
            f"{place} has more than {_MOST_WIDE_KEYS} keys of P-384",
            "each may be tried for a request, and takes ten times as long as one of P-256 or RSA",
        )
    return [
        JwtKey(list(map(Emitted, key.algorithms)), Emitted(key.pem), Emitted(base64.b64encode(key.secret).decode()))
        for key in keys
    ]


def _keys_in(name: str, content: bytes) -> list[TokenKey]:
    if name.endswith(".json"):
        return read_key_set(content)
    if name.endswith(".pem"):
        return [read_pem(content)]
    if name.endswith(".hmac"):
        return [read_secret(content)]
    raise TokenKeyError("its name does not end in .pem, .json or .hmac")


def api_keys(data: Any) -> list[tuple[Emitted, Emitted]]:
    """The SHA-256 of each API key in *data* of a Secret, in hexadecimal digits, with the client of the entry."""
    clients: dict[str, Emitted] = {}
    for name, content in _entries(data, "api_keys"):
        key = content.removesuffix(b"\n")
        if not _CLIENT(name):
            raise EmitError(f"api_keys: {name[:80]!r} is not the name of a client", "letters, digits, '.', '_' and '-'")
        if not _LEAST_API_KEY <= len(key) <= _MOST_API_KEY or not _API_KEY(key):
            raise EmitError(
                f"api_keys: the key of {name!r} cannot be used",
                f"{_LEAST_API_KEY} to {_MOST_API_KEY} printable ASCII characters without blanks",
            )
        digest = hashlib.sha256(key).hexdigest().upper()
        if digest in clients:
            raise EmitError(f"api_keys: {name!r} and {clients[digest]!r} have the same key")
        clients[digest] = Emitted(name)
    if len(clients) > _MOST_CLIENTS:
        raise EmitError(f"api_keys: the Secret has more than {_MOST_CLIENTS:,} keys")
    return [(Emitted(digest), client) for digest, client in clients.items()]


def claim(value: Any) -> Emitted:
    """A claim of a token, such as `sub` or `realm_access.role`, as an argument of `jwt_payload_query`."""
    if not isinstance(value, str) or not _CLAIM(value):
        raise EmitError(
            "claim: the value is not the name of a claim", "names of letters, digits, '_' and '-', with dots"
        )
    return Emitted(f"'$.{value}'")


def _entries(data: Any, name: str) -> Iterator[tuple[str, bytes]]:
    if not isinstance(data, Mapping):
        raise TemplateFaultError(f"{name} expects the data of a Secret")
    for key, text in sorted(data.items()):
        try:
            yield str(key), base64.b64decode(str(text), validate=True)
        except (binascii.Error, ValueError):
            raise EmitError(f"{name}: the entry {str(key)[:80]!r} of the Secret is not base64") from None


CREDENTIALS: Final[dict[str, Callable[..., Any]]] = {
    "api_keys": api_keys,
    "claim": claim,
    "jwt_key_set": jwt_key_set,
    "jwt_keys": jwt_keys,
}
