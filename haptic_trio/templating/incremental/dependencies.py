"""Dependency index: from each recorded lookup to the nodes that made it; and files that pass from unit to unit."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from math import inf
from typing import Any, NamedTuple, Protocol, TypeAlias

from haptic_trio.templating.incremental.questions import UNKNOWN, Dependency, Part, Question
from haptic_trio.templating.incremental.records import (
    Child,
    Claims,
    Kept,
    Node,
    ObjectId,
    Position,
    Root,
    Trace,
    Unit,
    id_of_key,
    id_of_subject,
    question_of,
    turns_of,
)
from haptic_trio.templating.values.paths import RenderedFile
from haptic_trio.templating.values.subjects import FragmentKey


class IndexSnapshot(NamedTuple):
    """State of an index at one moment."""

    nodes: dict[Dependency, Node | dict[Node, Dependency]]
    answers: dict[Part, Any]


class DependencyIndex:
    """Index from each question to the nodes that asked it, and the answers of parts."""

    def __init__(self) -> None:
        # Most questions have one asker.
        self._nodes: dict[Dependency, Node | dict[Node, Dependency]] = {}
        # The parts of each question, by aspect if there are several; most questions have one.
        self._parts: dict[Question, Part | dict[Any, Part]] = {}
        self.answers: dict[Part, Any] = {}
        """The answers of parts now, as far as they are known."""

    def snapshot(self) -> "IndexSnapshot":
        """Return the present state, for `of`."""
        # A copy of a dictionary hashes no key again, unlike a comprehension.
        nodes = dict(self._nodes)
        for question, known in self._nodes.items():
            if type(known) is dict:
                nodes[question] = dict(known)
        return IndexSnapshot(nodes, dict(self.answers))

    @classmethod
    def of(cls, snapshot: "IndexSnapshot", nodes: Mapping[Node, Node]) -> "DependencyIndex":
        """Return an index of the questions and answers in *snapshot* by *nodes*, the copies of the askers.

        Askers without a copy are left out.
        """
        index = cls()
        index.answers = snapshot.answers
        for question, known in snapshot.nodes.items():
            if type(known) is dict:
                found = {nodes[node]: canonical for node, canonical in known.items() if node in nodes}
                if not found:
                    continue
                index._nodes[question] = found
            elif known in nodes:
                index._nodes[question] = nodes[known]  # type: ignore[index]
            else:
                continue
            if type(question) is Part:
                index._put(question)
        return index

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Dependency]:
        return iter(self._nodes)

    def __contains__(self, question: Dependency) -> bool:
        return question in self._nodes or question in self._parts

    def add(self, node: Node, questions: Iterable[Dependency]) -> tuple[Dependency, ...]:
        """Record that *node* asked *questions*; return them, with equal questions as the same objects."""
        result: list[Dependency] = []
        nodes = self._nodes
        for question in questions:
            known = nodes.get(question)
            if known is None:
                if type(question) is Part:
                    present = self._find(question.question, question.aspect)
                    if present is None:
                        # Its last asker has discarded it.
                        self._put(question)
                    elif present is not question:
                        # Another part has replaced it.
                        question = present  # noqa: PLW2901  it is the same
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
        """Forget that *node* asked *questions*."""
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
            self.answers.pop(question, None)
            self._drop(question)

    def _find(self, question: Question, aspect: Any) -> Part | None:
        known = self._parts.get(question)
        if isinstance(known, dict):
            return known.get(aspect)
        return known if known is not None and known.aspect == aspect else None

    def _put(self, part: Part) -> None:
        known = self._parts.get(part.question)
        if known is None:
            self._parts[part.question] = part
        elif isinstance(known, dict):
            known[part.aspect] = part
        else:
            self._parts[part.question] = {known.aspect: known, part.aspect: part}

    def _drop(self, part: Part) -> None:
        known = self._parts[part.question]
        if isinstance(known, dict):
            del known[part.aspect]
        if not known or known is part:
            del self._parts[part.question]

    def part(self, question: Question, aspect: Any) -> Part:
        """Return the part *aspect* of *question*, for a rendering that is about to depend on it."""
        part = self._find(question, aspect)
        if part is None:
            part = Part(question, aspect)
            self._put(part)
        return part

    def renew(self, question: Question, answer: Callable[[Any], Any] | None) -> list[Part]:
        """Return the parts of *question* whose answer has changed; *answer* returns the new answer of an aspect.

        Without *answer*, all parts are returned, and their answers become
        unknown. The same holds for a part for which *answer* raises.
        """
        changed: list[Part] = []
        for part in self.parts(question):
            before = self.answers.pop(part, UNKNOWN)
            if part not in self._nodes:
                self._drop(part)
                continue
            if answer is not None:
                # A rendering that asks again fails for the same reason, and reports it with its place.
                with suppress(Exception):
                    self.answers[part] = answer(part.aspect)
            now = self.answers.get(part, UNKNOWN)
            if now is UNKNOWN or before is UNKNOWN or now != before:
                changed.append(part)
        return changed

    def parts(self, question: Question) -> tuple[Part, ...]:
        """Return the parts of *question*."""
        known = self._parts.get(question)
        if known is None:
            return ()
        return tuple(known.values()) if isinstance(known, dict) else (known,)

    def outdated(self, question: Question, answer: Callable[[Any], Any]) -> list[Part]:
        """Return the parts of *question* for which *answer* returns another answer, and keep the present answers."""
        changed: list[Part] = []
        for part in self.parts(question):
            before, now = self.answers.get(part, UNKNOWN), UNKNOWN
            # As in `renew`.
            with suppress(Exception):
                now = answer(part.aspect)
            if now is UNKNOWN or before is UNKNOWN or now != before:
                changed.append(part)
        return changed

    def count(self, question: Dependency) -> int:
        """Return how often nodes asked *question* or a part of it."""
        if not isinstance(question, Part) and question in self._parts:
            return sum(map(self.count, self.parts(question)))
        known = self._nodes.get(question)
        if known is None:
            return 0
        return len(known) if type(known) is dict else 1

    def askers(self, question: Dependency) -> tuple[Node, ...]:
        """Return the nodes that asked *question*, or any part of it."""
        if not isinstance(question, Part) and question in self._parts:
            return tuple(dict.fromkeys(node for part in self.parts(question) for node in self.askers(part)))
        known = self._nodes.get(question)
        if known is None:
            return ()
        return tuple(known) if type(known) is dict else (known,)  # type: ignore[return-value]


Claim: TypeAlias = tuple[Position, Unit, RenderedFile]

_END: Position = (inf,)


def records_of(roots: Mapping[str, Root], index: DependencyIndex, found: ObjectId) -> Iterator[Child | Root | Trace]:
    """Yield the records that have fragments of an object."""
    yield from turns_of(roots, found)
    for node in index.askers(question_of(found)):
        if isinstance(node, Kept):
            yield node.trace
        elif isinstance(node, Child | Root):
            yield node


def keys_of(roots: Mapping[str, Root], index: DependencyIndex, found: ObjectId) -> Iterator[FragmentKey]:
    """Yield the fragments of an object, with or without output; some repeatedly."""
    for record in records_of(roots, index, found):
        for key in (*record.outputs, *record.unused):
            if id_of_key(key) == found:
                yield key
        for _, rejection in record.rejections:
            if id_of_subject(rejection.subject) == found:
                yield rejection.key


class RunState(Protocol):
    """State of a run that decides who renders again; see `run.RenderRun`, which has it."""

    index: DependencyIndex
    claims: Claims
    woken: list[Child]

    def invalidate(self, node: Node, file: str = "") -> None:
        """Make *node* pending; with *file*, only because the registered file at this path has changed."""
        ...


class _Believed(NamedTuple):
    """Knowledge of units after *position* about a file."""

    position: Position
    file: RenderedFile


class Registrations:
    """The units that render again when a file that several of them register changes hands.

    The first unit in the order of rendering registers a file; those after it
    find it registered, with the same content. If the first one gives it up,
    only the next one renders again, and registers it: for the others nothing
    changes. So a file of very many objects, such as CA certificates, costs one
    turn when the first of these objects comes, goes or changes.
    """

    def __init__(self, run: RunState) -> None:
        self._run = run
        self._given_up: dict[str, _Believed] = {}
        """Files whose first unit has given them up, until another unit registers them."""

    def take_over(self, former: "Registrations") -> None:
        """Begin with the files of *former*."""
        self._given_up = dict(former._given_up)  # noqa: SLF001  the two are of one class

    def pass_on(self, path: str, by: Unit, former: Claim | None, first: Claim | None) -> None:
        """Make units pending for the change from *former* to *first*, the first claims of *path*, by the unit *by*."""
        if former is not None and former is first:
            # Others use the file of another unit, before and after.
            return
        given_up = self._given_up.pop(path, None)
        believed = given_up or (_Believed(former[0], former[2]) if former is not None else None)
        if believed is None or (first is not None and not _same(first[2], believed.file)):
            places = [one for one in (believed and believed.position, first and first[0]) if one]
            if places:
                self._touch(path, by, min(places))
        elif first is None:
            self._touch_next(path, by, believed, _END)
        elif first[0] < believed.position:
            self._touch(path, by, first[0], believed.position)
        elif first[0] > believed.position:
            self._touch_next(path, by, believed, first[0])
        for unit in self._run.claims.followers(path):
            # They find the file registered now.
            if unit is not by:
                self._touch_node(unit, path)

    def settle(self) -> bool:
        """Make units pending that believe in a file that no unit has registered meanwhile; False without one."""
        given_up, self._given_up = self._given_up, {}
        for path, believed in given_up.items():
            first = self._run.claims.leading(path)
            end = first[0] if first is not None and _same(first[2], believed.file) else _END
            self._touch(path, None, believed.position, end)
        return bool(given_up)

    def _touch(self, path: str, by: Unit | None, place: Position, end: Position = _END) -> None:
        for node in self._askers_of(path, by, place, end):
            self._touch_node(node, path)

    def _touch_next(self, path: str, by: Unit, believed: _Believed, end: Position) -> None:
        """Make the next unit pending that will register the file, and those for which more may change."""
        following: Child | None = None
        for node in self._askers_of(path, by, believed.position, end):
            if not isinstance(node, Child) or path in node.clashes:
                self._touch_node(node, path)
            elif path in node.found and (following is None or node.position < following.position):
                following = node
        if following is not None:
            self._given_up[path] = believed
            self._touch_node(following, path)

    def _askers_of(self, path: str, by: Unit | None, place: Position, end: Position) -> Iterator[Node]:
        for node in self._run.index.askers(("file", path)):
            if isinstance(node, Child):
                if node is not by and place < node.position < end:
                    yield node
            elif isinstance(node, Root | Kept):
                root = node if isinstance(node, Root) else node.root
                if root is not by and root.position > place:
                    yield node

    def _touch_node(self, node: Any, path: str) -> None:
        self._run.invalidate(node, path)
        if isinstance(node, Child):
            self._run.woken.append(node)


def _same(one: RenderedFile, other: RenderedFile) -> bool:
    return (one.kind, one.text) == (other.kind, other.text)
