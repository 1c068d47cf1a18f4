"""Records of each rendering: its lookups, its output and its children.

A *unit* renders as a whole: a template that becomes a file (`Root`), or an
object's turn of `{% each %}` (`Child`). A root also keeps its outermost
`{% fragment %}`s (`Kept`), to reuse them when it renders again.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from types import CodeType, FunctionType
from typing import Any, NamedTuple, Protocol, TypeAlias, cast

from jinja2.runtime import Context

from haptic_trio.chunked import Paged, Piece, Shelf
from haptic_trio.templating.incremental.outputs import Condition, FragmentOutput
from haptic_trio.templating.incremental.questions import Dependency, Question
from haptic_trio.templating.values.costs import Costs
from haptic_trio.templating.values.paths import RenderedFile
from haptic_trio.templating.values.subjects import (
    Concern,
    FragmentKey,
    ObjectWarning,
    Origin,
    Rejection,
    RenderedText,
    Subject,
    subject_of,
)

ObjectId: TypeAlias = tuple[str, str, str]
"""Namespace, name and kind: the order of objects."""


def id_of_key(key: FragmentKey) -> ObjectId:
    """Return the object of the fragment *key*."""
    return key.namespace, key.name, key.kind


def id_of_subject(subject: Subject) -> ObjectId:
    """Return the identity of the object of *subject*."""
    return subject.namespace, subject.name, subject.kind


class Listing(Protocol):
    """Objects of one kind, as the language shows them to templates."""

    @property
    def name(self) -> str:
        """The name of the store."""
        ...

    def peek(self) -> Sequence[Any]:
        """Return all objects, without recording a lookup."""
        ...


Site: TypeAlias = Callable[[Context], Iterator[str]]
"""The compiled body of an `{% each %}`."""


def code_of(site: Site) -> CodeType:
    """Return what identifies *site*; the same in each environment that has its template."""
    return cast("FunctionType", site).__code__


Position: TypeAlias = tuple[Any, ...]
"""A place in the order of rendering: number of the root; 2 n for what follows its n-th region, and 2 n + 1 with the
child's key for that region itself."""

PlacedRejection: TypeAlias = tuple[Position, Rejection]

Place: TypeAlias = tuple[FragmentKey | None, str]
"""A fragment, or None for text outside of fragments, and the path of a file that it registers."""


class Want(NamedTuple):
    """A file that a fragment registers, or would register if it were free."""

    file: RenderedFile
    created: str
    """`creationTimestamp` of the object."""


class Trace:
    """Lookups and output of one rendering so far."""

    __slots__ = (
        "asked", "attempts", "clashes", "concerns", "conditions", "costs", "files", "found", "guards", "is_each",
        "is_volatile", "ordinals", "origins", "outputs", "permits", "rejections", "unused", "wants", "warnings",
    )  # fmt: skip

    def __init__(self, *, is_each: bool = False) -> None:
        self.asked: set[Dependency] = set()
        self.outputs: dict[FragmentKey, FragmentOutput] = {}
        self.unused: dict[FragmentKey, None] = {}
        """Fragments that output nothing, neither of their own nor a fallback."""
        self.rejections: list[PlacedRejection] = []
        self.warnings: dict[ObjectWarning, None] = {}
        self.concerns: list[Concern] = []
        """Warnings for the case that the current fragment is rejected."""
        self.guards: set[str] = set()
        """See `FragmentOutput.guards`; of the current fragment."""
        self.permits: dict[str, Any] = {}
        """See `FragmentOutput.permits`; of the current fragment."""
        self.conditions: list[Condition] = []
        """See `FragmentOutput.conditions`; of the current fragment."""
        self.costs = Costs()
        """Of the current fragment."""
        self.files: dict[str, RenderedFile] = {}
        """Files that it registered first."""
        self.clashes: set[str] = set()
        """Files that an earlier rendering has registered with other content than its own."""
        self.wants: dict[Place, Want] = {}
        """The files that it registers, or would register if they were free."""
        self.found: dict[str, None] = {}
        """Files of its output that another unit registered before, with the same content."""
        self.attempts = 0
        """Number of files that it has tried to register."""
        self.ordinals: list[tuple[Any, int]] = []
        """The ordinals of inner fragments, each with the key that was counted."""
        self.origins: list[int] = []
        """The numbers of its fragments in marks."""
        self.is_each = is_each
        self.is_volatile = False
        """It used a mutable object of another rendering."""


class Unit:
    """Something that renders as a whole, and the result of its last rendering."""

    __slots__ = ("asked", "clashes", "files", "found", "outputs", "rejections", "unused", "wants", "warnings")

    def __init__(self) -> None:
        self.asked: tuple[Dependency, ...] = ()
        self.outputs: Mapping[FragmentKey, FragmentOutput] = _NOTHING
        self.unused: tuple[FragmentKey, ...] = ()
        """See `Trace.unused`."""
        self.rejections: tuple[PlacedRejection, ...] = ()
        self.warnings: tuple[ObjectWarning, ...] = ()
        self.files: tuple[RenderedFile, ...] = ()
        self.clashes: frozenset[str] = frozenset()
        """See `Trace.clashes`."""
        self.wants: Mapping[Place, Want] = {}
        """See `Trace.wants`."""
        self.found: frozenset[str] = frozenset()
        """See `Trace.found`."""

    @property
    def position(self) -> Position:
        """Its place in the order of rendering."""
        raise NotImplementedError


_NOTHING: Mapping[FragmentKey, FragmentOutput] = {}


class Child(Unit):
    """One object's turn of a region."""

    __slots__ = ("is_placed", "key", "object_id", "pieces", "place", "region", "resource")

    def __init__(self, region: "Region", object_id: ObjectId, key: tuple[Any, ...], resource: Any) -> None:
        super().__init__()
        self.region = region
        self.object_id = object_id
        self.key = key
        self.resource = resource
        self.is_placed = True
        """Whether its sort key is known; otherwise it cannot be rendered."""
        self.pieces: tuple[Piece, ...] = ()
        self.place = key
        """Place of the pieces in the text of the region: the key, except for the text of a rejected object."""

    @property
    def position(self) -> Position:
        """See `Unit.position`."""
        return (*self.region.position, self.key)

    @property
    def within(self) -> str:
        """`FragmentKey.within` of the fragments inside it."""
        namespace, name, kind = self.object_id
        return f"{self.region.within}{self.region.name} {self.region.ordinal} {kind} {namespace}/{name}"


class Kept:
    """An outermost fragment of a root, for reuse without rendering."""

    __slots__ = ("asked", "is_valid", "origin", "resource", "root", "scope", "text", "trace")

    def __init__(
        self, root: "Root", origin: Origin, resource: Any, scope: Mapping[str, Any] | None, trace: Trace, text: str
    ) -> None:
        self.root = root
        self.origin = origin
        self.resource = resource
        self.scope = scope
        self.trace = trace
        self.text = text
        self.asked = tuple(trace.asked)
        self.is_valid = scope is not None and not trace.is_volatile


class Region:
    """The place of an `{% each %}` in a root: a child for each object of the store, in order."""

    __slots__ = (
        "children", "context", "criteria", "is_apart", "is_whole", "line", "name", "ordinal", "pending", "position",
        "root", "scope", "shelf", "site", "store", "target", "template", "view", "within",
    )  # fmt: skip

    def __init__(
        self, root: "Root", site: Site, name: str, ordinal: int, view: Listing, criteria: tuple[str, ...]
    ) -> None:
        self.root = root
        self.site = site
        self.name = name
        self.ordinal = ordinal
        self.view = view
        self.store = view.name
        self.criteria = criteria
        self.target = ""
        self.template = ""
        self.line = 0
        self.is_apart = False
        """Its fragments are quarantined for themselves; see `Rejection.is_apart`."""
        self.is_whole = False
        """Its scope has all variables, since the names that its body uses are not known."""
        self.position: tuple[int, int] = (0, 0)
        self.scope: Mapping[str, Any] = {}
        self.context: Context | None = None
        self.children: dict[ObjectId, Child] = {}
        self.shelf: Shelf[tuple[Any, ...], Piece] = Shelf()
        self.pending: set[Child] = set()
        self.within = ""
        """`FragmentKey.within` of its children; differs from that of fragments outside of each."""

    def origin_of(self, child: Child, depth: int = 0) -> Origin:
        """Return the origin of the output of *child*."""
        subject = subject_of(child.resource)
        return Origin(self.name, subject, self.template, self.line, self.ordinal, self.within, depth)


class Root(Unit):
    """A template that becomes a text of its own."""

    __slots__ = (
        "context", "has_entries", "is_changed", "is_valid", "kept", "modules", "name", "number", "origins", "parts",
        "regions", "segments", "text",
    )  # fmt: skip

    def __init__(self, name: str, number: int, context: Mapping[str, Any]) -> None:
        super().__init__()
        self.name = name
        self.number = number
        self.context = context
        self.is_valid = False
        self.is_changed = True
        """Whether its text has to be assembled again."""
        self.has_entries = False
        self.kept: dict[FragmentKey, Kept] = {}
        self.modules: dict[str | None, Module] = {}
        self.origins: frozenset[int] = frozenset()
        """Numbers in marks of kept fragments, and of the scopes of its regions."""
        self.parts: list[Paged[Piece] | Region] = []
        self.regions: list[Region] = []
        self.segments = 0
        """Number of regions that it has opened; the text between two has one position."""
        self.text = RenderedText(Paged())

    @property
    def position(self) -> Position:
        """See `Unit.position`; during rendering, the position of the current segment."""
        return self.number, 2 * self.segments

    @property
    def within(self) -> str:
        """`FragmentKey.within` of the fragments inside it."""
        return self.name


def turns_of(roots: Mapping[str, Root], found: ObjectId) -> Iterator[Child]:
    """Yield the turns of an object."""
    for root in roots.values():
        for region in root.regions:
            child = region.children.get(found)
            if child is not None:
                yield child


def is_turn_of(unit: Unit | None, subject: Subject) -> bool:
    """Whether *unit* is the turn of an `{% each %}` over this object."""
    return isinstance(unit, Child) and unit.object_id == id_of_subject(subject)


def question_of(found: ObjectId) -> Question:
    """Return the question of a fragment that is not a turn of an `{% each %}` over its object."""
    return ("quarantined", *found)


def keys_in(unit: Unit | Trace) -> set[FragmentKey]:
    """Return the fragments of *unit*, with output or without."""
    return {*unit.outputs, *unit.unused, *(rejection.key for _, rejection in unit.rejections)}


class Module:
    """A template that was imported without context, once for a root."""

    __slots__ = ("asked", "module", "name", "root")

    def __init__(self, root: Root, name: str | None, module: Any, asked: Iterable[Dependency]) -> None:
        self.root = root
        self.name = name
        self.module = module
        self.asked = tuple(asked)


Node: TypeAlias = Child | Kept | Root | Module


class Claims:
    """Files that units registered; of several with one path, the first in the order of rendering is used."""

    def __init__(self) -> None:
        # Very many objects may use one certificate: the claims of a path are in order, and found by unit.
        self._ordered: dict[str, list[tuple[Position, Unit, RenderedFile]]] = {}
        self._positions: dict[str, dict[Unit, Position]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._ordered)

    def copied(self) -> "Claims":
        """Return the same claims by the same units, which change by themselves."""
        copy = Claims()
        copy._ordered = {path: list(claims) for path, claims in self._ordered.items()}
        copy._positions = {path: dict(positions) for path, positions in self._positions.items()}
        return copy

    def replace_units(self, units: Mapping[Unit, Unit]) -> None:
        """Replace each unit by its copy in *units*."""
        for path, claims in self._ordered.items():
            self._ordered[path] = [(position, units[unit], file) for position, unit, file in claims]
            self._positions[path] = {units[unit]: position for unit, position in self._positions[path].items()}

    def first(self, path: str) -> RenderedFile | None:
        """Return the file that is used for *path*."""
        claims = self._ordered.get(path)
        return claims[0][2] if claims else None

    def leading(self, path: str) -> tuple[Position, Unit, RenderedFile] | None:
        """Return the first claim of *path*, with its position and unit."""
        claims = self._ordered.get(path)
        return claims[0] if claims else None

    def followers(self, path: str) -> tuple[Unit, ...]:
        """Return the units with claims of *path* after the first one."""
        return tuple(unit for _, unit, _ in self._ordered.get(path, ())[1:])

    def __contains__(self, path: str) -> bool:
        return path in self._ordered

    def holder(self, path: str) -> Unit | None:
        """Return the unit that registered the file that is used for *path*."""
        claims = self._ordered.get(path)
        return claims[0][1] if claims else None

    def namespace_of(self, path: str) -> str:
        """Return the namespace of the object whose file is used for *path*; empty if no object has made it."""
        file, holder = self.first(path), self.holder(path)
        if file is not None and file.source is not None:
            return file.source[0]
        return holder.object_id[0] if isinstance(holder, Child) else ""

    def before(self, path: str, unit: Unit, position: Position) -> RenderedFile | None:
        """Return the file that another unit than *unit* registered for *path* before *position*."""
        found = next((claim for claim in self._ordered.get(path, ()) if claim[1] is not unit), None)
        return found[2] if found is not None and found[0] < position else None

    def add(self, unit: Unit, position: Position, file: RenderedFile) -> None:
        """Record that *unit* registered *file*."""
        insort(self._ordered.setdefault(file.path, []), (position, unit, file), key=itemgetter(0))
        self._positions.setdefault(file.path, {})[unit] = position

    def remove(self, unit: Unit, path: str) -> Position:
        """Forget the file that *unit* registered for *path*; return its position."""
        claims, positions = self._ordered[path], self._positions[path]
        position = positions.pop(unit)
        start = bisect_left(claims, position, key=itemgetter(0))
        del claims[next(number for number in range(start, len(claims)) if claims[number][1] is unit)]
        if not claims:
            del self._ordered[path], self._positions[path]
        return position
