"""Structs of an explanation; their JSON form is stable."""

from typing import Any, TypeAlias

import msgspec

MOST_SHOWN = 10
"""Maximum number of objects listed in an answer; a count is beside each list."""
MOST_HITS = 100
"""Maximum number of lines that a search lists."""


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


class FragmentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why a fragment failed or was rejected, and whether a fallback is used."""

    object: Named
    fragment: str
    message: str
    place: str
    """Manifest file and line, if known, then template and line, or another place."""
    hint: str
    excerpt: str
    has_fallback: bool
    """Whether its last good output is used."""


class MadeBy(msgspec.Struct, frozen=True, kw_only=True):
    """Template, fragment and object that produced something."""

    output: str
    """Template of the file."""
    fragment: str
    """Empty outside of fragments, like the fields below."""
    template: str
    """Template with the tag of the fragment."""
    line: int
    """Line of that tag, 1-based."""
    object: Named | None


class Lookup(msgspec.Struct, frozen=True, kw_only=True):
    """A lookup of a render, and its result."""

    question: str
    """The lookup as a template writes it."""
    found: tuple[Named, ...]
    """The first of them."""
    count: int


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the output."""

    path: str
    line: int
    """1-based."""
    text: str
    """Text of the line; a digest if it derives from a Secret."""
    is_secret: bool


class LineAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="line"):
    """Explanation of a line."""

    line: Line
    section: str
    """Section in haproxy.cfg, such as `backend shop`; else empty."""
    made_by: MadeBy
    sources: tuple[Source, ...]
    """Most similar lines of templates."""
    depends_on: tuple[Lookup, ...]
    """Lookups of its fragment; outside of fragments, of the template."""
    problems: tuple[FragmentProblem, ...]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive lines with one maker."""

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
    """`exact`, `prefix`, or `default` for requests that match nothing else in the scope."""
    backend: str
    made_by: MadeBy


class SectionAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="section"):
    """Explanation of a section of haproxy.cfg."""

    section: str
    first: int
    last: int
    parts: tuple[Part, ...]
    routes: tuple[Entry, ...]
    """Map entries that point to it."""
    routes_count: int
    depends_on: tuple[Lookup, ...]
    problems: tuple[FragmentProblem, ...]


class FileAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="file"):
    """Explanation of a file."""

    path: str
    kind: str
    size: int
    """Bytes."""
    digest: str
    is_secret: bool
    lines: int
    output: str
    """Template that rendered or registered it."""
    parts: tuple[Part, ...]
    """The first of them."""
    parts_count: int
    depends_on: tuple[Lookup, ...]
    problems: tuple[FragmentProblem, ...]


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A map lookup of HAProxy for a request."""

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
    expires: float | None = None
    """Seconds since 1970; None if it is unknown."""


class ServedCertificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate, with the names and the objects of its lines in crt-lists."""

    path: str
    """Of its file."""
    expires: float
    """Seconds since 1970."""
    names: tuple[str, ...] = ()
    """The first of them."""
    objects: tuple[str, ...] = ()
    """The first objects that it is served for, as `kind namespace/name`."""


class GatewayRoute(msgspec.Struct, frozen=True, kw_only=True):
    """A route of a Gateway for the host and path of the request."""

    path: str
    """Of the map."""
    line: int
    object: Named | None
    conditions: tuple[str, ...]
    verdict: str
    """`yes`; `no`: a condition is not fulfilled; `unknown`: it depends on a regular expression."""
    outcomes: tuple[str, ...]
    """Backends with their weights, or a response of HAProxy."""


class GatewayVisit(msgspec.Struct, frozen=True, kw_only=True):
    """The request at a frontend of a Gateway. The first route with the verdict `yes` is effective."""

    frontend: str
    front: str = ""
    """The frontend that passes the request to it, if any."""
    listener: str
    routes: tuple[GatewayRoute, ...]


class RouteAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="route"):
    """Explanation of the route of a request."""

    host: str
    path: str
    status: int
    """0: routed to `backend`; else the status of HAProxy's own response. At the frontends of the library `base`."""
    backend: str
    """Backend of the route, existing or not; empty without a route."""
    backend_made_by: MadeBy | None
    """None if the backend does not exist."""
    winner: Entry | None
    others: tuple[Entry, ...]
    """Further matching entries, in order."""
    others_count: int
    steps: tuple[Step, ...]
    depends_on: tuple[Lookup, ...]
    certificates: tuple[Certificate, ...]
    notes: tuple[str, ...]
    problems: tuple[FragmentProblem, ...]
    """Problems of objects that name the host."""
    reasons: tuple[str, ...] = ()
    """Why objects that name the host do not serve it."""
    warnings: tuple[str, ...] = ()
    """Warnings about objects that name the host: object, reason and message."""
    gateways: tuple[GatewayVisit, ...] = ()
    """A plain GET request at the frontends of Gateways."""


class HostAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="host"):
    """Explanation of a host: its routes in lookup order, and its certificates."""

    host: str
    entries: tuple[Entry, ...]
    entries_count: int
    certificates: tuple[Certificate, ...]
    notes: tuple[str, ...]
    problems: tuple[FragmentProblem, ...]
    reasons: tuple[str, ...] = ()
    """Why objects that name the host do not serve it."""
    warnings: tuple[str, ...] = ()
    """Warnings about objects that name the host: object, reason and message."""


class CertificateAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="certificate"):
    """Explanation of a server name: certificates with the name, then wildcard certificates."""

    name: str
    certificates: tuple[Certificate, ...]
    depends_on: tuple[Lookup, ...]
    notes: tuple[str, ...]
    problems: tuple[FragmentProblem, ...]


class Product(msgspec.Struct, frozen=True, kw_only=True):
    """Output of one fragment of an object."""

    made_by: MadeBy
    lines: tuple[Line, ...]
    """The first of them."""
    lines_count: int
    sections: tuple[str, ...]
    """Sections that begin in these lines."""
    files: tuple[str, ...]
    depends_on: tuple[Lookup, ...]


class Use(msgspec.Struct, frozen=True, kw_only=True):
    """Fragments of other objects, or a template, that look an object up."""

    output: str
    fragment: str
    template: str
    line: int
    """Line of the fragment's tag; 0 outside of fragments."""
    questions: tuple[str, ...]
    """The first of them."""
    objects: tuple[Named, ...]
    """The first objects of these fragments."""
    count: int


class ObjectAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="object"):
    """Explanation of an object: its output, and its dependents."""

    object: Named
    exists: bool
    """False for an object that is looked up but does not exist."""
    watched_as: tuple[str, ...]
    products: tuple[Product, ...]
    idle: tuple[MadeBy, ...]
    """Fragments for it without output."""
    used_by: tuple[Use, ...]
    problems: tuple[FragmentProblem, ...]
    warnings: tuple[str, ...] = ()
    """Warnings: reason and message."""
    notes: tuple[str, ...] = ()


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A line that a search found."""

    line: Line
    made_by: MadeBy
    before: tuple[Line, ...] = ()
    """Lines before it, if the search has context."""
    after: tuple[Line, ...] = ()


class SearchAnswer(msgspec.Struct, frozen=True, kw_only=True, tag_field="answer", tag="search"):
    """Lines that contain a text, of haproxy.cfg and all files."""

    text: str
    hits: tuple[Hit, ...]
    """The first of them, or those from `offset` on."""
    count: int
    offset: int = 0


Answer: TypeAlias = (
    LineAnswer | SectionAnswer | FileAnswer | RouteAnswer | HostAnswer | CertificateAnswer | ObjectAnswer | SearchAnswer
)


def to_json(answer: Answer) -> dict[str, Any]:
    """Return *answer* as plain data; the field `answer` has its type."""
    data: dict[str, Any] = msgspec.to_builtins(answer, enc_hook=_plain)
    return data


def _plain(value: object) -> str:
    # Names and paths may be instances of the templates' subclass of `str`.
    if not isinstance(value, str):
        raise NotImplementedError(f"a {type(value).__name__} in an answer")
    return str.__str__(value)
