"""Emitters for whole contents and generated names: PEM bundles, Base64, hashes, comments, identifiers.

They raise `EmitError`, or `TemplateFaultError` for a wrong use in the template.
"""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, Final

from haptic_trio.templating.filters.emit import EmitError, number_text
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.marks import strip_marks
from haptic_trio.templating.values.text import Emitted
from haptic_trio.x509.bundles import BundleError, bundle_of

MAX_IDENT: Final = 200
_PLAIN_IDENT: Final = re.compile(r"[A-Za-z0-9.][A-Za-z0-9.-]*").fullmatch
_HASHED_TAIL: Final = 2 + 32
_IDENT_KIND: Final = re.compile(r"[a-z][a-z0-9-]{0,31}").fullmatch
"""Shorter than the start of a shortened name, whose end may have a `:` in front of the hash's."""


def pem(value: Any, *more: Any, pair: bool = False) -> Emitted:
    """A bundle of PEM blocks, those of *value* and then of *more*, in their order.

    Text between blocks is left out, and line ends become LF. A key that needs
    a passphrase is rejected, since HAProxy cannot ask for it; and so is what
    cannot be read, or does not belong together, for which it would reject the
    whole configuration, one certificate at a time. So are keys that take HAProxy
    long to use: RSA of more than 8192 bits, DSA, and Diffie-Hellman parameters of
    more than 4096 bits; certificates of more than 32,768 bytes, or with a subject or
    issuer of more than 20 attributes; and beside a key, more than 1,000 names, and
    certificates that OpenSSL rejects at its security level 2: RSA of less than 2048
    bits, ECDSA on small curves, and MD5 or SHA-1 unless self-signed; without a key,
    RSA certificates with a public exponent of more than 32 bits. With *pair*, there must be a certificate and its key.
    """
    parts = [str(part) if isinstance(part, str) else number_text(part, "pem") for part in (value, *more)]
    try:
        return Emitted(bundle_of(*parts, is_pair=pair))
    except BundleError as exc:
        hint = "make it with `kubectl create secret tls NAME --cert=FILE --key=FILE`" if pair else ""
        if "encrypted" in str(exc):
            hint = "store it without a passphrase"
        raise EmitError(f"pem: {exc}", hint) from None


def b64encode(value: Any) -> Emitted:
    """Base64 of the text's UTF-8 bytes."""
    text = str(value) if isinstance(value, str) else number_text(value, "b64encode")
    return Emitted(base64.b64encode(strip_marks(text).encode()).decode())


def b64decode(value: Any) -> str:
    """The UTF-8 text that *value* is the Base64 of; still data."""
    text = str(value) if isinstance(value, str) else number_text(value, "b64decode")
    try:
        return base64.b64decode("".join(text.split()), validate=True).decode()
    except (binascii.Error, ValueError):
        raise EmitError("b64decode: the value is not the Base64 of UTF-8 text") from None


def short_hash(value: Any, length: int = 16) -> Emitted:
    """The first *length* (1 to 64) hexadecimal digits of the SHA-256 of *value*, or of its JSON if it is not text."""
    if not 1 <= length <= 64:
        raise TemplateFaultError(f"hash: a length of {length}; it must be 1 to 64")
    text = str(value) if isinstance(value, str) else to_json(value)
    return Emitted(hashlib.sha256(strip_marks(text).encode("utf-8", "surrogatepass")).hexdigest()[:length])


def to_json(value: Any, indent: int | None = None) -> str:
    """JSON with sorted keys and only ASCII; plain data, so that it needs an emitter."""
    if indent is not None and not 0 <= indent <= 8:
        raise TemplateFaultError(f"tojson: an indent of {indent}; it must be 0 to 8")
    try:
        return json.dumps(value, sort_keys=True, indent=indent, default=_plain)
    except (RecursionError, ValueError):
        raise TemplateFaultError("tojson: the value nests too deeply, or contains itself") from None


def debug(value: Any, label: str = "") -> Emitted:
    """Readable JSON in comment lines, each beginning with `# `."""
    head = [f"# {json.dumps(str(label))}"] if label else []
    return Emitted("\n".join(head + [f"# {line}" for line in to_json(value, 2).split("\n")]) + "\n")


def ident(*parts: Any, kind: str = "") -> Emitted:
    """A name made of *parts*, readable and never the same for different parts.

    Parts are joined by `_`; a character other than a letter, digit, `.` or inner `-`
    becomes `:` and two hexadecimal digits per byte. Beyond `MAX_IDENT`
    characters the end is replaced by a hash. Numbers count as their digits.

    With *kind*, up to 32 lower-case letters, digits and `-`, the name begins
    with it and `::`, which no parts can produce: names of different kinds, and
    names without a kind, always differ.
    """
    if kind and not _IDENT_KIND(kind):
        raise TemplateFaultError("ident: the kind is not 1 to 32 lower-case letters, digits and -")
    given = list(parts[0]) + list(parts[1:]) if parts and isinstance(parts[0], list | tuple) else list(parts)
    text = "_".join(_ident_part(part) for part in given)
    if not text:
        raise EmitError("ident: all parts are empty")
    if kind:
        text = f"{kind}::{text}"
    if len(text) <= MAX_IDENT:
        return Emitted(text)
    # `h` is not a hexadecimal digit: a shortened name cannot equal an escaped one.
    digest = hashlib.sha256(text.encode()).hexdigest()[: _HASHED_TAIL - 2]
    return Emitted(f"{text[: MAX_IDENT - _HASHED_TAIL]}:h{digest}")


def _ident_part(part: Any) -> str:
    text = str(part) if isinstance(part, str) else number_text(part, "a part of ident")
    if _PLAIN_IDENT(text):
        return text
    return "".join(
        c if re.match(r"[A-Za-z0-9.]" if position == 0 else r"[A-Za-z0-9.-]", c) else _escaped(c)
        for position, c in enumerate(text)
    )


def _escaped(char: str) -> str:
    return "".join(f":{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    raise TemplateFaultError(f"a {type(value).__name__} has no JSON")
