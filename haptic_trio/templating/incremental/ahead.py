"""Rendering ahead: turns are rendered for a change of an object before the change is taken in.

A change on which very many turns depend would make one render long. So their
bodies are called in several steps, while lookups still find the former version
of the object everywhere else. The results, failures among them, are kept
beside the records until the change is taken in: the render that does so takes
them instead of calling the bodies, and decides by them as usual what is output
and which objects are quarantined. A result is dropped if anything else changes
that it depends on; its body is then called as usual. Each turn is rendered as if
it were the first to register its files, since other turns of the same change may
register other content; when it is used, files that are registered already with
the same content count as found.
"""

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from copy import copy
from typing import Any, NamedTuple

import msgspec

from haptic_trio.templating.incremental.outputs import BodyResult, FragmentOutput
from haptic_trio.templating.incremental.questions import UNKNOWN, Answer, Dependency, Part
from haptic_trio.templating.incremental.recorder import Recorder
from haptic_trio.templating.incremental.records import Child, Root, Trace
from haptic_trio.templating.incremental.settling.contested_files import is_same_file
from haptic_trio.templating.values.paths import RenderedFile
from haptic_trio.templating.values.subjects import Origin


class Result(NamedTuple):
    """Results of the body of a turn, and its lookups."""

    resource: Any
    trace: Trace
    origins: Mapping[int, Origin]
    """The origins of fragments inside it, by their numbers in marks."""
    made: BodyResult
    closing: BodyResult | None
    """The result of the body for a rejected object; None if the object was not rejected."""
    former: BodyResult | None = None
    """The result of the body for a former version, whose output is a revision of the good one; None without one."""


class Ahead:
    """Results of turns that were rendered ahead; one for all renders of a run."""

    def __init__(self) -> None:
        self._results: dict[Child, Result] = {}
        self._files: dict[str, RenderedFile] = {}
        """The newest file that was registered at each path; results share it while its content is the same."""
        self._skipped: set[Child] = set()
        """Turns that have to render when the change is taken in."""
        self.made = 0
        """Turns that were rendered for the present change, each time that they were."""
        self._is_releasing = False
        self._is_released = False
        self.is_rendering = False
        """Whether turns are rendered ahead now: limits of namespaces do not count yet."""

    def __len__(self) -> int:
        return len(self._results)

    def __contains__(self, child: Child) -> bool:
        return child in self._results or child in self._skipped

    def result_of(self, child: Child) -> Result | None:
        """Return the result of *child*; None without one."""
        return self._results.get(child)

    def skip(self, child: Child) -> None:
        """Leave *child* to the render that takes the change in."""
        self.made += 1
        self._skipped.add(child)

    def put(self, run: Recorder, child: Child, result: Result) -> None:
        """Keep *result* of *child* until anything changes that it depends on."""
        node: Any = child
        # It may depend on more than the record, which is replaced later.
        more = result.trace.asked.difference(child.asked)
        child.asked = (*child.asked, *run.index.add(node, more))
        self._results[child] = result
        self.made += 1

    def find(self, child: Child) -> Result | None:
        """Return the result of *child*, which is being rendered, if its change is taken in now.

        Until the render ends: the turn may render again because its object is quarantined or released.
        """
        result = self._results.get(child) if self._is_released else None
        return result if result is not None and result.resource is child.resource and child.is_placed else None

    def forget(self, child: Child, file: str = "") -> None:
        """Drop the result of *child*, for which something has changed; with *file*, the registered file at this path.

        A result that registers the file itself stays: whether it fits is decided when it is used.
        """
        result = self._results.get(child)
        if result is not None and not self._is_releasing and file not in result.trace.files:
            del self._results[child]

    def shared(self, file: RenderedFile) -> RenderedFile:
        """Return *file*, or the equal one of an earlier result: thousands of turns may register a large file."""
        known = self._files.get(file.path)
        if (
            known is not None
            and (known.kind, known.text) == (file.kind, file.text)
            and _is_plain(known)
            and _is_plain(file)
        ):
            return known
        self._files[file.path] = file
        return file

    def forget_askers(self, run: Recorder, store: str, keys: Iterable[tuple[str, ...]]) -> None:
        """Drop the results of turns that made lookups in *store* by any of *keys*."""
        for one in {(), *keys}:
            questions: list[Dependency] = [("get", store, *one), *run.index.parts(("has", store, *one))]
            for question in questions:
                for node in run.index.askers(question):
                    if isinstance(node, Child):
                        self.forget(node)

    def forget_root(self, root: Root) -> None:
        """Drop the results of all turns of *root*."""
        for child in [child for child in self._results if child.region.root is root]:
            del self._results[child]

    def clear(self) -> None:
        """Drop all results."""
        self._results.clear()
        self._files.clear()
        self._skipped.clear()
        self.made = 0
        self._is_released = False

    @contextmanager
    def releasing(self) -> Iterator[None]:
        """Keep results inside the context: what changes is what they were rendered for. They are used from now on."""
        self._is_releasing = self._is_released = True
        try:
            yield
        finally:
            self._is_releasing = False


class Change(NamedTuple):
    """A change of one store that is not taken in."""

    keys: AbstractSet[tuple[str, ...]]
    """Keys of lookups with another answer."""
    answer: Answer
    """Answers aspects of lookups as they are with the change."""


def dependents_of(run: Recorder, changes: Mapping[str, Change]) -> dict[Child, None]:
    """Return the turns that *changes*, by name of the store, would make pending."""
    found: dict[Child, None] = {}
    for store, change in changes.items():
        for keys in {(), *change.keys}:
            questions: list[Dependency] = [("get", store, *keys)]
            questions += run.index.outdated(("has", store, *keys), _answers(change.answer, keys))
            for question in questions:
                found.update((node, None) for node in run.index.askers(question) if isinstance(node, Child))
    return found


def without_known_files(run: Recorder, result: Result) -> Result:
    """Return *result* as if its body had found the files that earlier turns have registered with the same content.

    The turns of a file were rendered ahead one by one, and each was the first to register it.
    """
    known = {
        path
        for path, file in result.trace.files.items()
        if (other := run.known_file(path)) is not None and is_same_file(other, file)
    }
    if not known:
        return result

    def without(output: FragmentOutput) -> FragmentOutput:
        files = tuple(file for file in output.files if file.path not in known)
        if len(files) == len(output.files):
            return output
        found = (file for file in output.files if file.path in known)
        return msgspec.structs.replace(output, files=files, found_files=(*output.found_files, *found))

    # The same result may be used again in this render, when the files have changed hands.
    trace = copy(result.trace)
    trace.files = {path: file for path, file in trace.files.items() if path not in known}
    trace.found = {**trace.found, **dict.fromkeys(path for path in result.trace.files if path in known)}
    trace.outputs = {key: without(output) for key, output in trace.outputs.items()}
    made = result.made
    if made.output is not None:
        made = made._replace(output=without(made.output))
    return result._replace(trace=trace, made=made)


def _answers(answer: Answer, keys: tuple[str, ...]) -> Any:
    return lambda aspect: answer(aspect, keys)


@contextmanager
def other_answers(run: Recorder, changes: Mapping[str, Change]) -> Iterator[None]:
    """Have parts of lookups answered as with *changes* inside the context, for views that show these."""
    answers = run.index.answers
    questions = [("has", store, *keys) for store, change in changes.items() for keys in {(), *change.keys}]

    def take() -> dict[Part, Any]:
        return {part: answers.pop(part, UNKNOWN) for question in questions for part in run.index.parts(question)}

    before = take()
    run.shared.clear()
    try:
        yield
    finally:
        take()
        answers.update((part, answer) for part, answer in before.items() if answer is not UNKNOWN)
        run.shared.clear()


def _is_plain(file: RenderedFile) -> bool:
    return all(piece.origin is None for piece in file.content.pieces)
