"""Normalised request paths: keys of the path maps, spelled as the snippet `request-path` makes HAProxy spell them.

A path has several readings where it holds characters that only some
applications take for separators: `%2F`, a backslash, `;`, an encoded `?` or
`#`, and a dot or a blank at the end of a segment. HAProxy rejects a request
whose readings lead to different backends, and a rule whose own path has several
would never apply.
"""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from haptic_trio.gateway.paths import normal_path
from haptic_trio.templating.filters.emit import EmitError
from haptic_trio.templating.filters.emitters import url_path
from haptic_trio.templating.values.text import Emitted

LONGEST: Final = 4096
"""Characters of a path that is not ordinary, at most."""
SEGMENTS: Final = 8
"""Segments after the first character that may be taken for a separator, of which each is compared with the routes."""

_NOT_ORDINARY: Final = re.compile(r"[^!-$&-:<-[\]-~]|//|\.(?:/|\Z)")
_ESCAPE: Final = re.compile(rb"%([0-9A-Fa-f]{2})")
_SEPARATOR: Final = re.compile(r"%(?:2F|5C|3B|3F|23)|[\\;]", re.IGNORECASE)
_PADDED: Final = re.compile(r"(?:\.|%20)(?=/|\Z)", re.IGNORECASE)
_FIRST_SEPARATOR: Final = re.compile(rf"{_SEPARATOR.pattern}|(?<=[^/.])(?<!%20)(?:\.|%20)++(?=/|\Z)", re.IGNORECASE)

# As in request-path.j2, on bytes: what a request is rewritten by, and how its path is read.
_REWRITES: Final = (
    (re.compile(rb"\A//+"), b"/"),
    (re.compile(rb"/(?:[.](?:/|\Z))++"), b"/"),
    (re.compile(rb"[.][.]//+"), b"../"),
)
_RESERVED: Final = re.compile(rb"%(?!2[DE]|3[0-9]|[46][1-9A-F]|[57][0-9A]|5F|7E)", re.IGNORECASE)
_PROTECTED: Final = re.compile(rb"%([01].|20|23|25|2F|3B|3F|5C|7F|(?![0-9A-F]{2}))", re.IGNORECASE)
_READINGS: Final = (
    (re.compile(rb"%2F|%5C|\\", re.IGNORECASE), b"/"),
    (re.compile(rb"(?:;|%3B)[^/]*", re.IGNORECASE), b""),
    (re.compile(rb"(?:[?]|%3F|%23).*", re.IGNORECASE | re.DOTALL), b""),
    (re.compile(rb"//+"), b"/"),
    (re.compile(rb"(?<=[^/.])(?<!%20)(?:[.]|%20)++(?=/|\Z)"), b""),
)
_UNREADABLE: Final = re.compile(
    rb"[^!-~\x80-\xff]|[\xc0\xc1][\x80-\xbf]|\xe0[\x80-\x9f]|\xf0[\x80-\x8f]|%(?!20|23|25|2F|3B|3F|5C)", re.IGNORECASE
)
_SEPARATOR_IN_PARAMETER: Final = re.compile(rb"(?:;|%3B)[^/]*(?:%2F|%5C|\\)", re.IGNORECASE)
_DOTS: Final = re.compile(rb"/(?:[.]|%20)++(?:/|\Z)")
_DOTS_BETWEEN_SEPARATORS: Final = re.compile(
    rb"(?:[/\\]|%2F|%5C)(?:[.]|%20)++(?:[/\\;]|%(?:2F|3B|5C|3F|23)|\Z)", re.IGNORECASE
)


def plain_path(value: Any) -> str:
    """A path, or a key `<listener>|<host>|<path>`, with the path in its normal form, still data.

    No character is encoded without need: `%61` is `a`, `%40` is `@`, `%C3%A9` is `é`; `%2F` and other separators,
    blanks and `%` stay encoded.
    """
    before, path = _split_key(str(value))
    return before + normal_path(path)


def _split_key(text: str) -> tuple[str, str]:
    """Return what stands before the path in *text*, and the path; names of listeners are encoded by another rule."""
    if text.startswith("/") or text.count("|") < 2:
        return "", text
    listener, host, path = text.split("|", 2)
    return f"{listener}|{host}|", path


def path_key(value: Any, beginning: bool = False) -> Emitted:
    """A path in its normal form, to compare `txn.path` with; one that applications may read in two ways is rejected.

    With *beginning* it is not a whole path, and its last segment may end in a dot.
    """
    text = plain_path(url_path(value))
    if _SEPARATOR.search(text):
        raise EmitError("path_key: the value contains \\, ; or an encoded /, \\, ;, ? or #")
    if not text.isprintable() or re.search("%(?!2[05])", text):
        raise EmitError("path_key: the value contains an encoded character that is not printable, or not UTF-8")
    if not beginning and _PADDED.search(text):
        raise EmitError("path_key: the value has a segment that ends in a dot or a blank")
    return Emitted(text)


def is_ambiguous_path(value: Any) -> bool:
    """Whether applications may read a path in two ways, or a segment of it is empty; no request is routed by it."""
    _, path = _split_key(str(value))
    return bool(_SEPARATOR.search(path) or _PADDED.search(path) or "//" in path)


class Readings(NamedTuple):
    """Ways in which applications may read the path of a request; HAProxy has it in `txn.literal` and `txn.path`."""

    literal: str
    separated: str
    """The path that rules and routes compare with."""

    def beginnings(self) -> list[str]:
        """Return prefixes that must have one route, since an application may take only some characters for separators.

        Each ends in `/`. They are the literal path, and what is common to both paths with one to eight more segments.
        """
        head = self._head()
        clean = head[: head.rindex("/") + 1]
        rest = f"{self.separated}/"[len(clean) :].split("/")[:-1]
        return [
            f"{self.literal}/",
            *(clean + "".join(f"{segment}/" for segment in rest[:count]) for count in range(1, SEGMENTS + 1)),
        ]

    def exact_paths(self) -> list[str]:
        """Return paths that an application may take for the whole path, and that must have no other exact route.

        They are the path up to the first character that may be taken for a separator, and the `beginnings`.
        """
        found = self.beginnings()
        return list(dict.fromkeys((self._head(), *(one.rstrip("/") for one in found), *found)))

    def _head(self) -> str:
        return _FIRST_SEPARATOR.split(self.literal, maxsplit=1)[0]


def readings(path: str) -> Readings | None:
    """Return how HAProxy reads the *path* of a request; None if it rejects it."""
    if not path.startswith("/") or (len(path) > LONGEST and _NOT_ORDINARY.search(path)):
        return None
    text = _unescaped(_RESERVED.sub(b"%25", path.encode(errors="surrogateescape")))
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _unescaped(_PROTECTED.sub(rb"%25\1", _without_dots(text)))
    literal = re.sub(b"//+", b"/", text)
    if _UNREADABLE.search(literal) or _SEPARATOR_IN_PARAMETER.search(literal):
        return None
    for pattern, replacement in _READINGS:
        text = pattern.sub(replacement, text)
    if _DOTS.search(text) or _DOTS_BETWEEN_SEPARATORS.search(literal):
        return None
    return Readings(literal.decode(errors="surrogateescape"), text.decode(errors="surrogateescape"))


def _unescaped(text: bytes) -> bytes:
    return _ESCAPE.sub(lambda match: bytes.fromhex(match.group(1).decode()), text)


def _without_dots(path: bytes) -> bytes:
    segments: list[bytes] = []
    parts = path.split(b"/")[1:]
    for position, part in enumerate(parts):
        if part != b"..":
            segments.append(part)
            continue
        del segments[-1:]
        if position == len(parts) - 1:
            segments.append(b"")
    return b"/" + b"/".join(segments)


PATHS: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function for function in (plain_path, path_key, is_ambiguous_path)
}
