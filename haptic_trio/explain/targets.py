"""Targets of an explanation, and the parser for their notation."""

import re
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import msgspec

from haptic_trio.errors import HapticError

_LINE: Final = re.compile(r"\[?(?P<path>[^\[\]]+?):(?P<line>[0-9]{1,9})(?::[0-9]{1,9})?\]?")
SECTION_KINDS: Final = frozenset(
    {
        "backend", "cache", "crt-store", "defaults", "fcgi-app", "frontend", "global", "http-errors", "listen",
        "log-forward", "mailers", "peers", "program", "resolvers", "ring", "traces", "userlist",
    }
)  # fmt: skip
_UNNAMED: Final = frozenset({"global", "traces"})
_HOST_WORDS: Final = frozenset({"host", "route", "url"})
_CERTIFICATE_WORDS: Final = frozenset({"certificate", "cert", "sni"})
LONGEST: Final = 4_096
"""Characters of a target."""


class TargetError(HapticError):
    """The target cannot be explained."""

    def __init__(self, message: str, suggestions: tuple[str, ...] = (), hint: str = "") -> None:
        self.message = message
        self.suggestions = suggestions
        """Similar targets, in their notation."""
        self.hint = hint
        super().__init__(message)


class MalformedTargetError(TargetError):
    """The target is not valid notation; permanent."""


class UnknownTargetError(TargetError):
    """The target does not exist."""


class AmbiguousTargetError(TargetError):
    """The target has several meanings, which are the suggestions."""


class LineTarget(msgspec.Struct, frozen=True):
    """A line of a file."""

    path: str
    line: int


class FileTarget(msgspec.Struct, frozen=True):
    """A file."""

    path: str


class SectionTarget(msgspec.Struct, frozen=True):
    """A section of haproxy.cfg."""

    kind: str
    name: str


class HostTarget(msgspec.Struct, frozen=True):
    """A host, or a request to it."""

    host: str
    path: str
    """Empty: the host without a path."""


class CertificateTarget(msgspec.Struct, frozen=True):
    """A server name of certificates."""

    name: str


class ObjectTarget(msgspec.Struct, frozen=True):
    """An object of the cluster."""

    kind: str
    """A kind or its plural, in any case."""
    namespace: str | None
    """None: any."""
    name: str


class NameTarget(msgspec.Struct, frozen=True):
    """A name without a type."""

    text: str


Target: TypeAlias = LineTarget | FileTarget | SectionTarget | HostTarget | CertificateTarget | ObjectTarget | NameTarget


def parse_target(text: str) -> Target:
    """Return the parsed target *text*; raises `MalformedTargetError`.

    A word alone may turn out to be a line (`haproxy.cfg:12`), or a host with
    a port; who knows the files decides.
    """
    words = text.split(maxsplit=1)
    if not words:
        raise MalformedTargetError("the target is empty")
    if len(text) > LONGEST:
        raise MalformedTargetError(f"the target has more than {LONGEST} characters")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise MalformedTargetError("the target is not UTF-8") from exc
    return _of_phrase(words[0], words[1].strip()) if len(words) > 1 else _of_word(words[0])


def _of_word(word: str) -> Target:
    if word in _UNNAMED:
        return SectionTarget(word, "")
    return _request(word) if "://" in word else NameTarget(word)


def _of_phrase(first: str, rest: str) -> Target:
    keyword = first.lower()
    if keyword in _HOST_WORDS:
        return _request(rest)
    if keyword in _CERTIFICATE_WORDS:
        return CertificateTarget(rest)
    if keyword == "file":
        return FileTarget(rest)
    if keyword in SECTION_KINDS:
        return SectionTarget(keyword, rest)
    namespace, slash, name = rest.partition("/")
    return ObjectTarget(first, namespace, name) if slash else ObjectTarget(first, None, rest)


def as_line(text: str) -> LineTarget | None:
    """Return the line in *text*, also in HAProxy's notation `[haproxy.cfg:12]`; None if it is not a line."""
    match = _LINE.fullmatch(text)
    return LineTarget(match["path"], int(match["line"])) if match is not None else None


def as_request(text: str) -> HostTarget:
    """Return *text* as host and path, without query and fragment."""
    head = re.split(r"[?#]", text, maxsplit=1)[0]
    host, slash, path = head.partition("/")
    return HostTarget(host, slash + path)


def _request(text: str) -> HostTarget:
    if "://" not in text:
        return as_request(text)
    try:
        parts = urlsplit(text)
    except ValueError as exc:
        raise MalformedTargetError(f"{text!r} is not a URL: {exc}") from exc
    if not parts.netloc:
        raise MalformedTargetError(f"{text!r} has no host name")
    return HostTarget(parts.netloc.rpartition("@")[2], parts.path or "/")
