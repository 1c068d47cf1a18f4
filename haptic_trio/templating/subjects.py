"""Which object made which line, and which object was refused."""

from bisect import bisect_right
from collections.abc import Mapping
from typing import Any

import msgspec

from haptic_trio.errors import Problem


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
    """Return the subject that *resource* is."""
    metadata = resource.get("metadata") or {}
    return Subject(
        str(resource.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
        str(metadata.get("resourceVersion") or ""),
    )


class FragmentKey(msgspec.Struct, frozen=True):
    """Which fragment of which object: the same from one render to the next, whatever the object's version."""

    fragment: str
    kind: str
    namespace: str
    name: str
    ordinal: int = 0
    """Tells several fragments of one name and object apart, in order of rendering."""


def _key_of(fragment: str, subject: Subject, ordinal: int) -> FragmentKey:
    return FragmentKey(fragment, subject.kind, subject.namespace, subject.name, ordinal)


class Origin(msgspec.Struct, frozen=True):
    """Where a range of output lines comes from."""

    fragment: str
    subject: Subject
    template: str
    line: int
    """Of the fragment's tag in its template, 1-based."""
    ordinal: int = 0

    @property
    def key(self) -> FragmentKey:
        """The fragment, independent of the object's version and of where its tag is."""
        return _key_of(self.fragment, self.subject, self.ordinal)


class LineRange(msgspec.Struct, frozen=True):
    """Output lines, 1-based and inclusive, that one fragment made."""

    first: int
    last: int
    origin: Origin


class Refusal(msgspec.Struct, frozen=True):
    """A fragment whose object cannot be rendered now."""

    fragment: str
    subject: Subject
    problem: Problem
    ordinal: int = 0
    has_stand_in: bool = False
    """Its last good output was rendered instead; else nothing was."""

    @property
    def key(self) -> FragmentKey:
        """The fragment, independent of the object's version."""
        return _key_of(self.fragment, self.subject, self.ordinal)


class RenderedText(msgspec.Struct, frozen=True):
    """A rendered text and which fragment made which of its lines."""

    text: str
    origins: tuple[LineRange, ...] = ()
    """In order of lines; ranges do not overlap."""

    def origin_of(self, line: int) -> Origin | None:
        """Return the origin of the 1-based output *line*; None outside all fragments."""
        index = bisect_right(self.origins, line, key=lambda item: item.first) - 1
        if index < 0 or line > self.origins[index].last:
            return None
        return self.origins[index].origin
