"""Subjects (the objects that fragments belong to), origins of lines, rejections and warnings."""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from haptic_trio.chunked import Paged, Piece
from haptic_trio.errors import Problem
from haptic_trio.templating.values.text import FORBIDDEN

_LONGEST_MESSAGE: Final = 400


class Subject(msgspec.Struct, frozen=True, order=True):
    """The object that a fragment is rendered for."""

    kind: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}" if self.kind else name


def subject_of(resource: Mapping[str, Any]) -> Subject:
    """Return the identity and version of *resource*."""
    metadata = resource.get("metadata") or {}
    return Subject(
        str(resource.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
        str(metadata.get("resourceVersion") or ""),
    )


def id_of_resource(resource: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return namespace, name and kind of *resource*; empty where it has none."""
    metadata = resource.get("metadata") or {}
    return metadata.get("namespace") or "", metadata.get("name") or "", resource.get("kind") or ""


def uid_of(resource: Any) -> str:
    """Return `metadata.uid` of *resource*; empty without one."""
    metadata = (resource.get("metadata") or {}) if resource is not None else {}
    return str(metadata.get("uid") or "")


def is_same_object(left: Subject, right: Subject) -> bool:
    """Whether both are the same object, in any version."""
    return (left.kind, left.namespace, left.name) == (right.kind, right.namespace, right.name)


class FragmentKey(msgspec.Struct, frozen=True, cache_hash=True):
    """Identity of a fragment, the same in all renders and for all versions of its object."""

    fragment: str
    kind: str
    namespace: str
    name: str
    ordinal: int = 0
    """Number among the fragments with the same name and object, in order of rendering."""
    within: str = ""
    """The scope of the numbering: the output, or the turn of an `{% each %}`."""


class Origin(msgspec.Struct, frozen=True):
    """Origin of a part of the output."""

    fragment: str
    subject: Subject
    template: str
    line: int
    """Of the fragment's tag in its template, 1-based."""
    ordinal: int = 0
    within: str = ""
    """See `FragmentKey.within`."""
    depth: int = 0
    """Number of fragments that enclose this one."""
    is_closing: bool = False
    """The text is that for a rejected object."""

    @property
    def key(self) -> FragmentKey:
        """The fragment, independent of the object's version and of where its tag is."""
        subject = self.subject
        return FragmentKey(self.fragment, subject.kind, subject.namespace, subject.name, self.ordinal, self.within)


class LineRange(msgspec.Struct, frozen=True):
    """Output lines, 1-based and inclusive, that one fragment made."""

    first: int
    last: int
    origin: Origin


class Rejection(msgspec.Struct, frozen=True):
    """A fragment whose object cannot be rendered now."""

    fragment: str
    subject: Subject
    problem: Problem
    ordinal: int = 0
    has_fallback: bool = False
    """The fallback was output instead; otherwise nothing was."""
    within: str = ""
    """See `FragmentKey.within`."""
    is_apart: bool = False
    """Other fragments of the object are served nevertheless."""
    is_limit: bool = False
    """The reason is a limit, or the pause of an object on which HAProxy has failed repeatedly."""
    is_clash: bool = False
    """The reason is a file that an older object registers with another content."""
    is_verdict: bool = False
    """The reason is that the parser or HAProxy has rejected the output."""

    @property
    def key(self) -> FragmentKey:
        """The fragment, independent of the object's version."""
        subject = self.subject
        return FragmentKey(self.fragment, subject.kind, subject.namespace, subject.name, self.ordinal, self.within)


class ObjectWarning(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """Warning for the owner of an object."""

    subject: Subject
    """The object, whatever its version."""
    reason: str
    """One word in upper camel case."""
    message: str

    def __str__(self) -> str:
        return f"{self.subject}: {self.reason}: {self.message}"


class Concern(msgspec.Struct, frozen=True):
    """A warning for the owner of an object that needs a fragment, if that fragment is rejected."""

    warning: ObjectWarning
    otherwise: str
    """The consequence if the fragment has no fallback."""

    def warning_for(self, problem: str, *, has_fallback: bool) -> ObjectWarning:
        """Return the warning about the fragment, which is rejected for *problem*."""
        instead = "its last good version is served" if has_fallback else self.otherwise
        message = message_of(f"{self.warning.message}: {problem}; {instead}")
        return msgspec.structs.replace(self.warning, message=message)


def message_of(text: str) -> str:
    """Return *text* as the message of a warning: shortened, without control characters."""
    text = FORBIDDEN.sub("\N{REPLACEMENT CHARACTER}", text)
    return text if len(text) <= _LONGEST_MESSAGE else text[:_LONGEST_MESSAGE] + "…"


class RenderedText:
    """Text in pieces, each with the origin that rendered it. Joined and split into lines on demand only."""

    __slots__ = ("_text", "pieces")

    def __init__(self, pieces: Paged[Piece]) -> None:
        self.pieces = pieces
        """The origin of a piece is an `Origin`, or None outside of fragments."""
        self._text: str | None = None

    @classmethod
    def of(cls, text: str, origin: Origin | None = None) -> "RenderedText":
        """Return *text* in one piece."""
        return cls(Paged.of([Piece(text, origin)] if text else []))

    @property
    def text(self) -> str:
        """The whole text."""
        if self._text is None:
            self._text = "".join([piece.text for piece in self.pieces])
        return self._text

    @property
    def size(self) -> int:
        """UTF-8 bytes of the text."""
        return sum(self.pieces.summaries(bytes_in))

    @property
    def has_entries(self) -> bool:
        """Whether any line is neither blank nor begins with `#`."""
        rest = ""
        for piece in self.pieces:
            *lines, rest = (rest + piece.text).split("\n")
            if any(_is_entry(line) for line in lines):
                return True
        return _is_entry(rest)

    @property
    def origins(self) -> tuple[LineRange, ...]:
        """The lines of each fragment, in order; ranges do not overlap."""
        ranges: list[LineRange] = []
        line, depth_of_last = 1, 0
        for piece in self.pieces:
            breaks = piece.text.count("\n")
            if piece.origin is not None:
                first, last = line, line + breaks - piece.text.endswith("\n")
                if ranges and first <= ranges[-1].last:
                    if piece.origin.depth > depth_of_last:
                        _cut(ranges, first)
                    else:
                        first = ranges[-1].last + 1
                if first <= last:
                    _add(ranges, LineRange(first, last, piece.origin))
                    depth_of_last = piece.origin.depth
            line += breaks
        return tuple(ranges)

    def origin_of(self, line: int) -> Origin | None:
        """Return the origin of the 1-based output *line*; None outside all fragments.

        Where fragments share a line, the innermost has it, and of neighbours the first.
        """
        found: Origin | None = None
        first = 1
        for page in self.pieces.pages:
            breaks = page.summary(_breaks_in)
            if first + breaks < line:
                first += breaks
                continue
            if first > line:
                break
            for piece in page.items:
                breaks = piece.text.count("\n")
                last = first + breaks - piece.text.endswith("\n")
                origin = piece.origin
                if first <= line <= last and origin is not None and (found is None or origin.depth > found.depth):
                    found = origin
                first += breaks
        return found

    def line_at(self, number: int) -> str:
        """Return the 1-based line *number* without its line feed; empty beyond the last one."""
        found, first = "", 1
        for page in self.pieces.pages:
            breaks = page.summary(_breaks_in)
            if first <= number <= first + breaks:
                found += "".join([piece.text for piece in page.items]).split("\n")[number - first]
            first += breaks
            if first > number:
                break
        return found

    def __repr__(self) -> str:
        # The text may hold a private key.
        return f"RenderedText({len(self.pieces)} pieces)"


def bytes_in(pieces: tuple[Piece, ...]) -> int:
    """Return how many bytes of UTF-8 *pieces* are."""
    return size_of("".join([piece.text for piece in pieces]))


def size_of(text: str) -> int:
    """Return how many bytes of UTF-8 *text* is."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _breaks_in(pieces: tuple[Piece, ...]) -> int:
    return sum(piece.text.count("\n") for piece in pieces)


def _is_entry(line: str) -> bool:
    return bool(line) and not line.startswith("#") and not line.isspace()


def _cut(ranges: list[LineRange], before: int) -> None:
    last = ranges.pop()
    if last.first < before:
        ranges.append(LineRange(last.first, before - 1, last.origin))


def _add(ranges: list[LineRange], item: LineRange) -> None:
    if ranges and ranges[-1].origin is item.origin and ranges[-1].last + 1 == item.first:
        ranges[-1] = LineRange(ranges[-1].first, item.last, item.origin)
    else:
        ranges.append(item)
