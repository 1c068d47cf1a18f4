"""Records of each rendering: its lookups, its output and its children.

A *unit* is rendered as a whole: a template that becomes a file (`Root`), or
an object's turn of `{% each %}` (`Child`). A root keeps its outermost
`{% fragment %}`s, too (`Kept`), for when it is rendered again.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

from jinja2.runtime import Context

from haptic_trio.chunked import Paged, Piece, Shelf
from haptic_trio.templating.incremental.outputs import FragmentOutput
from haptic_trio.templating.incremental.questions import UNKNOWN, Dependency, Part
from haptic_trio.templating.values.paths import RenderedFile
from haptic_trio.templating.values.subjects import (
    Concern,
    FragmentKey,
    Origin,
    Refusal,
    Remark,
    RenderedText,
    subject_of,
)

ObjectId: TypeAlias = tuple[str, str, str]
"""Namespace, name and kind, in which order objects stand."""


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


Position: TypeAlias = tuple[Any, ...]
"""A place in the order of rendering: number of the root; 2 n for what follows its n-th region, and 2 n + 1 with the
child's key for that region itself."""

PlacedRefusal: TypeAlias = tuple[Position, Refusal]


class Trace:
    """What one rendering has asked for and given so far."""

    __slots__ = (
        "asked", "attempts", "concerns", "files", "guards", "is_each", "is_volatile", "ordinals", "origins", "outputs",
        "refusals", "remarks", "rounds",
    )  # fmt: skip

    def __init__(self, *, is_each: bool = False) -> None:
        self.asked: set[Dependency] = set()
        self.outputs: dict[FragmentKey, FragmentOutput] = {}
        self.refusals: list[PlacedRefusal] = []
        self.remarks: dict[Remark, None] = {}
        self.concerns: list[Concern] = []
        """Who is to be told if the fragment in hand is refused."""
        self.guards: set[str] = set()
        """See `FragmentOutput.guards`; of the fragment in hand."""
        self.rounds = 0
        """See `FragmentOutput.rounds`; of the fragment in hand."""
        self.files: dict[str, RenderedFile] = {}
        """Those that it has registered and nobody before it."""
        self.attempts = 0
        """How many files it has tried to register."""
        self.ordinals: list[tuple[Any, int]] = []
        """The numbers that fragments within were given, each with what was counted."""
        self.origins: list[int] = []
        """The numbers that stand for its fragments in marks."""
        self.is_each = is_each
        self.is_volatile = False
        """It has used what others change in place."""


class Unit:
    """What is rendered as a whole, and what that gave."""

    __slots__ = ("asked", "files", "outputs", "refusals", "remarks")

    def __init__(self) -> None:
        self.asked: tuple[Dependency, ...] = ()
        self.outputs: Mapping[FragmentKey, FragmentOutput] = _NOTHING
        self.refusals: tuple[PlacedRefusal, ...] = ()
        self.remarks: tuple[Remark, ...] = ()
        self.files: tuple[RenderedFile, ...] = ()

    @property
    def position(self) -> Position:
        """Where it stands in the order of rendering."""
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
        """Whether its place in the order is known; else it cannot be rendered."""
        self.pieces: tuple[Piece, ...] = ()
        self.place = key
        """Where these are in the text of the region; the key, but for what closes a rejected object."""

    @property
    def position(self) -> Position:
        """See `Unit.position`."""
        return (*self.region.position, self.key)

    @property
    def within(self) -> str:
        """What the fragments inside it say of where they are."""
        namespace, name, kind = self.object_id
        return f"{self.region.within}{self.region.name} {self.region.ordinal} {kind} {namespace}/{name}"


class Kept:
    """An outermost fragment of a root, to be put in again without rendering it."""

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
        "children", "context", "criteria", "is_apart", "line", "name", "ordinal", "pending", "position", "root",
        "scope", "shelf", "site", "store", "target", "template", "view", "within",
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
        """Its fragments are quarantined for themselves; see `Refusal.is_apart`."""
        self.position: tuple[int, int] = (0, 0)
        self.scope: Mapping[str, Any] = {}
        self.context: Context | None = None
        self.children: dict[ObjectId, Child] = {}
        self.shelf: Shelf[tuple[Any, ...], Piece] = Shelf()
        self.pending: set[Child] = set()
        self.within = ""
        """What its children say of where they are; never the same as that of a fragment outside of each."""

    def origin_of(self, child: Child, depth: int = 0) -> Origin:
        """Return the origin of what *child* makes."""
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
        """Whether its text has to be put together again."""
        self.has_entries = False
        self.kept: dict[FragmentKey, Kept] = {}
        self.modules: dict[str | None, Module] = {}
        self.origins: frozenset[int] = frozenset()
        """Numbers in marks of what it has kept, and of what its regions see."""
        self.parts: list[Paged[Piece] | Region] = []
        self.regions: list[Region] = []
        self.segments = 0
        """How many regions it has opened; what is between two has one position."""
        self.text = RenderedText(Paged())

    @property
    def position(self) -> Position:
        """See `Unit.position`; while it is rendered, that of the segment in hand."""
        return self.number, 2 * self.segments

    @property
    def within(self) -> str:
        """What the fragments inside it say of where they are."""
        return self.name


class Module:
    """A template that was imported without context, once for a root."""

    __slots__ = ("asked", "module", "name", "root")

    def __init__(self, root: Root, name: str | None, module: Any, asked: Iterable[Dependency]) -> None:
        self.root = root
        self.name = name
        self.module = module
        self.asked = tuple(asked)


Node: TypeAlias = Child | Kept | Root | Module


class DependencyIndex:
    """Who has asked what, and which answer was given where that is all that counts."""

    def __init__(self) -> None:
        # Most questions are asked by one alone.
        self._nodes: dict[Dependency, Node | dict[Node, Dependency]] = {}
        # Of questions that are asked in parts: these, by their aspects.
        self._parts: dict[Dependency, dict[Any, Part]] = {}

    def __len__(self) -> int:
        return len(self._nodes)

    def __contains__(self, question: Dependency) -> bool:
        return question in self._nodes or question in self._parts

    def add(self, node: Node, questions: Iterable[Dependency]) -> tuple[Dependency, ...]:
        """Note that *node* has asked *questions*; return them, equal ones being the same objects."""
        result: list[Dependency] = []
        nodes = self._nodes
        for question in questions:
            known = nodes.get(question)
            if known is None:
                if type(question) is Part:
                    # It may have been given up by its last asker, and be another one by now.
                    parts = self._parts.setdefault(question.question, {})
                    question = parts.setdefault(question.aspect, question)  # noqa: PLW2901  it is the same
                    if question in nodes:
                        result += self.add(node, (question,))
                        continue
                nodes[question] = node
            elif type(known) is dict:
                canonical = next(iter(known.values()), question)
                known[node] = canonical
                result.append(canonical)
                continue
            elif known is not node:
                nodes[question] = {known: question, node: question}  # type: ignore[dict-item]
            result.append(question)
        return tuple(result)

    def discard(self, node: Node, questions: Iterable[Dependency]) -> None:
        """Forget that *node* has asked *questions*."""
        for question in questions:
            known = self._nodes.get(question)
            if known is node:
                self._forget(question)
            elif type(known) is dict:
                known.pop(node, None)
                if not known:
                    self._forget(question)

    def _forget(self, question: Dependency) -> None:
        del self._nodes[question]
        if type(question) is Part:
            parts = self._parts[question.question]
            del parts[question.aspect]
            if not parts:
                del self._parts[question.question]

    def part(self, question: Dependency, aspect: Any) -> Part:
        """Return the part *aspect* of *question*, for somebody who is about to depend on it."""
        parts = self._parts.get(question)
        if parts is None:
            parts = self._parts[question] = {}
        part = parts.get(aspect)
        if part is None:
            part = parts[aspect] = Part(question, aspect)
        return part

    def renew(self, question: Dependency, answer: Callable[[Any], Any] | None) -> list[Part]:
        """Return those parts of *question* that *answer*, which gets their aspects, now answers otherwise than before.

        Without *answer* these are all parts, and nothing is known of them; so
        it is with a part for which it raises something.
        """
        changed: list[Part] = []
        parts = self._parts.get(question, {})
        for part in list(parts.values()):
            if part not in self._nodes:
                del parts[part.aspect]
                continue
            before, part.answer = part.answer, UNKNOWN
            if answer is not None:
                # Who asks anew fails for it, too, and is reported with its place; or what would tell has to be fetched.
                with suppress(Exception):
                    part.answer = answer(part.aspect)
            if part.answer is UNKNOWN or before is UNKNOWN or part.answer != before:
                changed.append(part)
        if not parts:
            self._parts.pop(question, None)
        return changed

    def askers(self, question: Dependency) -> tuple[Node, ...]:
        """Return who has asked *question*, or any part of it."""
        if type(question) is not Part and question in self._parts:
            return tuple(dict.fromkeys(node for part in self._parts[question].values() for node in self.askers(part)))
        known = self._nodes.get(question)
        if known is None:
            return ()
        return tuple(known) if type(known) is dict else (known,)  # type: ignore[return-value]


class Claims:
    """The files that units have registered: of several with one path, the first in the order of rendering counts."""

    def __init__(self) -> None:
        self._claims: dict[str, list[tuple[Position, Unit, RenderedFile]]] = {}

    def __iter__(self) -> Iterator[str]:
        return iter(self._claims)

    def first(self, path: str) -> RenderedFile | None:
        """Return the file that counts for *path*."""
        claims = self._claims.get(path)
        return min(claims, key=lambda claim: claim[0])[2] if claims else None

    def __contains__(self, path: str) -> bool:
        return path in self._claims

    def holder(self, path: str) -> Unit | None:
        """Return who has registered the file that counts for *path*."""
        claims = self._claims.get(path)
        return min(claims, key=lambda claim: claim[0])[1] if claims else None

    def before(self, path: str, unit: Unit, position: Position) -> RenderedFile | None:
        """Return what others than *unit*, who stand before *position*, have registered for *path*."""
        claims = [claim for claim in self._claims.get(path, ()) if claim[1] is not unit and claim[0] < position]
        return min(claims, key=lambda claim: claim[0])[2] if claims else None

    def add(self, unit: Unit, position: Position, file: RenderedFile) -> None:
        """Note that *unit* has registered *file*."""
        self._claims.setdefault(file.path, []).append((position, unit, file))

    def remove(self, unit: Unit, path: str) -> Position:
        """Forget what *unit* has registered for *path*; return where that was."""
        (own,) = (claim for claim in self._claims[path] if claim[1] is unit)
        self._claims[path].remove(own)
        if not self._claims[path]:
            del self._claims[path]
        return own[0]
