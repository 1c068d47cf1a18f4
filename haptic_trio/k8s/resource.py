"""Watched object: decoded plain data with its identity."""

import math
import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

Resource: TypeAlias = dict[str, Any]
"""An object as decoded from JSON or YAML. Treated as immutable once it is in a store."""

MOST_LEVELS: Final = 200
"""Levels of mappings and lists that are kept of a text with more of them than can be decoded."""
# Up to the next bracket that is not in a string, or else the end. Nothing is tried twice, so it is linear for any text.
_BRACKET: Final = re.compile(rb'(?:[^"{}\[\]]++|"(?:[^"\\]++|\\.)*+"?|\{\}|\[\])*+(?:([{}\[\]])|\Z)', re.DOTALL)

T = TypeVar("T")


def read_float(text: str) -> float:
    """Return the number in *text*; raises ValueError if it is out of range.

    This is for `float_hook` of decoders: msgspec itself takes 50 us for a
    number such as 1.2e300, and an object has room for 200,000 of them.
    """
    number = float(text)
    if not math.isfinite(number):
        raise ValueError("the number is out of range")
    return number


def decode_tolerantly(
    decode: Callable[[bytes | bytearray | msgspec.Raw], T], text: bytes | bytearray | msgspec.Raw
) -> T:
    """Return the result of *decode* for the JSON *text*, whatever the author of an object has written into it.

    An API server passes on bytes that are not UTF-8 in names of `managedFields`, for every kind that is built in. They
    become U+FFFD. It also passes on up to 10,000 levels, there and in fields without a schema, and msgspec fails at
    about 1,000. Mappings and lists at too many levels become empty. Either would otherwise cost a complete list.
    """
    try:
        return _decode_levels(decode, text)
    except UnicodeDecodeError:
        return _decode_levels(decode, bytes(text).decode(errors="replace").encode())


def _decode_levels(decode: Callable[[bytes | bytearray | msgspec.Raw], T], text: bytes | bytearray | msgspec.Raw) -> T:
    try:
        return decode(text)
    except RecursionError:
        return decode(without_deep_levels(bytes(text)))


def without_deep_levels(text: bytes) -> bytes:
    """Return the JSON *text* with nothing in the mappings and lists at level `MOST_LEVELS`."""
    kept, level, start = [], 0, 0
    for found in _BRACKET.finditer(text):
        match found[1]:
            case b"{" | b"[":
                level += 1
                if level == MOST_LEVELS:
                    kept.append(text[start : found.end()])
            case b"}" | b"]":
                if level == MOST_LEVELS:
                    start = found.end() - 1
                level -= 1
    kept.append(text[start:])
    return b"".join(kept)


class ResourceRef(msgspec.Struct, frozen=True, order=True):
    """Reference to an object, for lookups and messages."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Place(NamedTuple):
    """Place where a user wrote an object."""

    source: str
    """The file, as the user named its directory."""
    line: int

    def __str__(self) -> str:
        return f"{self.source}:{self.line}"


Places: TypeAlias = Callable[[ResourceRef], Place | None]
"""Returns the place of an object; None if it is not in a file."""


def nowhere(_ref: ResourceRef) -> Place | None:
    """`Places` of a cluster without files."""
    return None


class ResourceType(msgspec.Struct, frozen=True):
    """A kind of object as the API names it."""

    api_version: str
    """Group and version, such as `networking.k8s.io/v1`, or `v1`."""
    plural: str
    """Lower-case plural, such as `ingresses`."""

    def __str__(self) -> str:
        return f"{self.plural}.{self.api_version}"


def ref_of(resource: Resource) -> ResourceRef:
    """Return the reference of *resource*."""
    metadata = resource.get("metadata") or {}
    return ResourceRef(resource.get("kind", ""), metadata.get("namespace") or "", metadata.get("name") or "")


def version_of(resource: Resource) -> str:
    """Return the resourceVersion of *resource*, an opaque string; empty if it has none."""
    return str((resource.get("metadata") or {}).get("resourceVersion") or "")


def text_of(value: object) -> str:
    """Return *value* as a look-up key or a selector writes it: booleans and null as in JSON, the rest as `str`."""
    if type(value) is str:
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return "null" if value is None else str(value)
