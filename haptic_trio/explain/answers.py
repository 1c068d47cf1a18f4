"""Structs of an explanation; their JSON form is stable."""

from typing import Any, TypeAlias

import msgspec

MOST_SHOWN = 10
"""Examples of objects that an answer names; how many there are is told beside them."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """An object of the cluster."""

    kind: str
    namespace: str
    name: str
    resource_version: str

    def __str__(self) -> str:
        name = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {name}" if self.kind else name


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a template."""

    template: str
    line: int
    """1-based."""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """Why a fragment could not be rendered, or was refused, and what is there instead."""

    object: Named
    fragment: str
    message: str
    place: str
    """Template and line, or what else the fault is in."""
    hint: str
    excerpt: str
    has_stand_in: bool
    """Its last good output stands in for it; else nothing does."""


class MadeBy(msgspec.Struct, frozen=True, kw_only=True):
    """Who has made something."""

    output: str
    """Template that the file is made by."""
    fragment: str
    """Empty outside all fragments; the rest is, too, then."""
    template: str
    """The one that holds the fragment."""
    line: int
    """Of the fragment's tag, 1-based."""
    object: Named | None


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a rendering has looked up, and what it has found."""

    question: str
    """As a template writes it."""
    found: tuple[Named, ...]
    """The first of them."""
    count: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output."""

    path: str
    line: int
    """1-based."""
    text: str
    """What stands there; of what derives from a Secret, its hash."""
    is_secret: bool


class LineAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="line"):
    """Who has made a line."""

    line: Line
    section: str
    """Of haproxy.cfg, such as `backend shop`; else empty."""
    made_by: MadeBy
    sources: tuple[Source, ...]
    """Lines of templates that read most like it; empty where none does."""
    depends_on: tuple[Lookup, ...]
    """Of its fragment, or outside of fragments of all the template."""
    troubles: tuple[Trouble, ...]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive lines that have one maker."""

    first: int
    last: int
    made_by: MadeBy


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry of a map that routes."""

    line: Line
    scope: str
    """Host, host with `*` for its first label, or `*`."""
    path: str
    match: str
    """`exact`, `prefix`, or `default` for what nothing else in the scope takes."""
    backend: str
    made_by: MadeBy


class SectionAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="section"):
    """Who has made a section of haproxy.cfg."""

    section: str
    first: int
    last: int
    parts: tuple[Part, ...]
    routes: tuple[Entry, ...]
    """The entries that lead to it."""
    routes_count: int
    depends_on: tuple[Lookup, ...]
    troubles: tuple[Trouble, ...]


class FileAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="file"):
    """Who has made a file."""

    path: str
    kind: str
    size: int
    """Bytes."""
    digest: str
    is_secret: bool
    lines: int
    output: str
    """Template that became it or has registered it."""
    parts: tuple[Part, ...]
    """The first of them."""
    parts_count: int
    depends_on: tuple[Lookup, ...]
    troubles: tuple[Trouble, ...]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A look-up that HAProxy makes for a request, until one finds something."""

    path: str
    """Of the map."""
    key: str
    match: str
    """`exact` or `prefix`."""
    found: bool


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a crt-list that serves a name."""

    line: Line
    path: str
    """Of the certificate's file."""
    digest: str
    names: tuple[str, ...]
    made_by: MadeBy


class RouteAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="route"):
    """Where a request goes, and why."""

    host: str
    path: str
    status: int
    """0: it goes to `backend`; else the status of HAProxy's own answer."""
    backend: str
    """Also of one that does not exist; empty without a route."""
    backend_made_by: MadeBy | None
    """None where there is no such backend."""
    winner: Entry | None
    others: tuple[Entry, ...]
    """What would match if what stands before it did not, in order."""
    others_count: int
    steps: tuple[Step, ...]
    depends_on: tuple[Lookup, ...]
    certificates: tuple[Certificate, ...]
    notes: tuple[str, ...]
    troubles: tuple[Trouble, ...]
    """Those of objects that name the host."""


class HostAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="host"):
    """What a host has: routes in the order in which they are looked for, and certificates."""

    host: str
    entries: tuple[Entry, ...]
    entries_count: int
    certificates: tuple[Certificate, ...]
    notes: tuple[str, ...]
    troubles: tuple[Trouble, ...]


class CertificateAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="certificate"):
    """The certificates for a server name: those that name it, then those with a wildcard."""

    name: str
    certificates: tuple[Certificate, ...]
    depends_on: tuple[Lookup, ...]
    notes: tuple[str, ...]
    troubles: tuple[Trouble, ...]


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """What one fragment of an object has made."""

    made_by: MadeBy
    lines: tuple[Line, ...]
    """The first of them."""
    lines_count: int
    sections: tuple[str, ...]
    """Sections that begin in these lines."""
    files: tuple[str, ...]
    depends_on: tuple[Lookup, ...]


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Fragments of one name, or a template, that look an object up without being for it."""

    output: str
    fragment: str
    template: str
    line: int
    """Of the fragment's tag; 0 outside all fragments."""
    questions: tuple[str, ...]
    """The first of them."""
    objects: tuple[Named, ...]
    """The first of those whose fragments these are."""
    count: int


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="object"):
    """What an object has made, and what depends on it."""

    object: Named
    exists: bool
    """Objects that do not exist may have been looked for."""
    watched_as: tuple[str, ...]
    products: tuple[Product, ...]
    idle: tuple[MadeBy, ...]
    """Fragments that were rendered for it and gave nothing."""
    used_by: tuple[Use, ...]
    troubles: tuple[Trouble, ...]
    remarks: tuple[str, ...] = ()
    """What its owner should know: a word and what it means."""


Answer: TypeAlias = (
    LineAnswer | SectionAnswer | FileAnswer | RouteAnswer | HostAnswer | CertificateAnswer | ObjectAnswer
)


def to_json(answer: Answer) -> dict[str, Any]:
    """Return *answer* as plain data; `answer` says which one it is."""
    data: dict[str, Any] = msgspec.to_builtins(answer, enc_hook=_plain)
    return data


def _plain(value: object) -> str:
    # Templates make texts of a class of their own; names and paths come from them.
    if not isinstance(value, str):
        raise NotImplementedError(f"a {type(value).__name__} in an answer")
    return str.__str__(value)
