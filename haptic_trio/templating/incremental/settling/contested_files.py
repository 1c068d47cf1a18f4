"""Decision which objects may register a file that several of them want with different content.

It depends on the objects alone, not on the order of rendering or of events: the
oldest object has its content, and every other object with another content is
rejected as a whole. The body of a fragment never fails for that, so that what
it wants is known whatever has been decided before.

An object that fails for another reason has no claim by its present version. Its
fallback has the claim of the object's age against other namespaces, and gives
way to any object of its own namespace: a Secret that has been rotated, for
example, is not kept from others by one object that uses its former content. A
fallback that has to give way is not used at all.

A file may have the content of another object, as that of a Secret that several
Gateways use. Then a fallback does not keep the present content from anyone,
whatever its age and namespace: it is used with the present content.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec

from haptic_trio.templating.incremental.outputs import Fallback, FragmentOutput
from haptic_trio.templating.incremental.records import ObjectId, Place, Want, id_of_key
from haptic_trio.templating.incremental.settling.overall_rounds import created_of
from haptic_trio.templating.values.paths import FileKind, RenderedFile
from haptic_trio.templating.values.subjects import FragmentKey, Rejection, RenderedText

Candidates: TypeAlias = Callable[[ObjectId], Iterable[tuple[Fallback, Iterable[FragmentOutput]]]]
"""Returns the usable fallbacks of a quarantined object, the preferred one first, with their outputs."""


_Content: TypeAlias = tuple[FileKind, str]
"""Kind and text of a file. Very many objects may want one path, each with another content: these are looked up."""


class ContestedFiles:
    """The files that fragments want, and the objects that may not have theirs; one for all renders of a run."""

    def __init__(self) -> None:
        self._wants: dict[str, dict[FragmentKey | None, Want]] = {}
        self._contents: dict[str, dict[_Content, int]] = {}
        """By path: how many fragments want each content."""
        self._contested: set[str] = set()
        """Paths that are wanted with several contents."""
        self._losers: dict[ObjectId, frozenset[str]] = {}
        self._denied: dict[ObjectId, frozenset[Fallback]] = {}
        self._yielding: dict[ObjectId, dict[str, _Content]] = {}
        """By quarantined object: paths that have the content of another fragment for its fallback, and that content."""
        self._fallbacks: dict[FragmentKey, tuple[FragmentOutput, ...]] = {}
        """Outputs with files that fragments of quarantined objects may use instead of their own."""
        self._settled_for: tuple[Rejection, ...] | None = None

    def copied(self) -> "ContestedFiles":
        """Return the same wants and decisions, which change by themselves."""
        copy = ContestedFiles()
        copy._losers, copy._contested = dict(self._losers), set(self._contested)
        copy._wants = {path: dict(wants) for path, wants in self._wants.items()}
        copy._contents = {path: dict(contents) for path, contents in self._contents.items()}
        return copy

    def loses(self, key: FragmentKey, path: str) -> bool:
        """Whether the object of the fragment *key* may not register its content of *path*."""
        return bool(self._losers) and path in self._losers.get(id_of_key(key), ())

    def is_denied(self, found: ObjectId, fallback: Fallback) -> bool:
        """Whether the object *found* may not use *fallback*, since others have its files with other content."""
        return bool(self._denied) and fallback in self._denied.get(found, ())

    def yields(self, key: FragmentKey, path: str) -> bool:
        """Whether a fallback of the fragment *key* leaves it to others to register the file at *path*."""
        return bool(self._yielding) and path in self._yielding.get(id_of_key(key), ())

    def as_shared(self, key: FragmentKey, output: FragmentOutput) -> FragmentOutput:
        """Return *output*, of a fallback of *key*, with the present content of the files that it leaves to others."""
        shared = self._yielding.get(id_of_key(key), {}) if self._yielding else {}
        if not any(file.path in shared for file in output.used_files):
            return output

        def present(file: RenderedFile) -> RenderedFile:
            kind, text = shared.get(file.path, _content_of(file))
            return msgspec.structs.replace(file, kind=kind, content=RenderedText.of(text))

        return msgspec.structs.replace(
            output,
            files=tuple(map(present, output.files)),
            found_files=tuple(map(present, output.found_files)),
            original=output.original or output,
        )

    def change(self, before: Mapping[Place, Want], after: Mapping[Place, Want]) -> None:
        """Record that a unit wants the files *after*, and no longer *before*."""
        for place, want in before.items():
            if after.get(place) is not want:
                self._remove(place)
        for place, want in after.items():
            if before.get(place) is not want:
                self._add(place, want)

    def offer(self, key: FragmentKey, outputs: Sequence[FragmentOutput | None]) -> None:
        """Note that the fragment *key* may use any of *outputs* instead of its own; none: it uses its own."""
        if not outputs and key not in self._fallbacks:
            return
        found = tuple(output for output in outputs if output is not None and output.used_files)
        if self._fallbacks.get(key, ()) != found:
            self._settled_for = None
            if found:
                self._fallbacks[key] = found
            else:
                del self._fallbacks[key]

    def _add(self, place: Place, want: Want) -> None:
        key, path = place
        self._wants.setdefault(path, {})[key] = want
        contents, content = self._contents.setdefault(path, {}), _content_of(want.file)
        contents[content] = contents.get(content, 0) + 1
        if len(contents) > 1:
            self._contested.add(path)
        self._note(path)

    def _remove(self, place: Place) -> None:
        key, path = place
        contents, content = self._contents[path], _content_of(self._wants[path].pop(key).file)
        self._note(path)
        contents[content] -= 1
        if not contents[content]:
            del contents[content]
            if len(contents) < 2:
                self._contested.discard(path)
        if not contents:
            del self._contents[path], self._wants[path]

    def _note(self, path: str) -> None:
        if self._fallbacks or path in self._contested:
            self._settled_for = None

    def settle(
        self, rejections: tuple[Rejection, ...], kept: Iterable[ObjectId], candidates: Candidates
    ) -> tuple[set[ObjectId], set[ObjectId]]:
        """Decide again, after everything has been rendered.

        Returns the objects that may have other files of their own than before, and those that may have other
        fallbacks. *rejections* are those of all that has failed, *kept* the objects that stay quarantined without a
        failure, and *candidates* their usable fallbacks.
        """
        if rejections is self._settled_for:
            return set(), set()
        self._settled_for = rejections
        losers: dict[ObjectId, frozenset[str]] = {}
        denied: dict[ObjectId, frozenset[Fallback]] = {}
        yielding: dict[ObjectId, dict[str, _Content]] = {}
        if disputed := self._contested | self._disputed_by_fallbacks():
            decision = _Decision(rejections, kept, candidates)
            for path in disputed:
                decision.add(path, self._wants.get(path, {}))
            decision.add_fallbacks(
                {key: outputs for key, outputs in self._fallbacks.items() if _has(outputs, disputed)}
            )
            losers, denied, yielding = decision.decide(disputed)
        former, self._losers = self._losers, losers
        former_denied, self._denied = self._denied, denied
        former_yielding, self._yielding = self._yielding, yielding
        others = _differing(former_yielding, yielding)
        return _differing(former, losers) | others, _differing(former_denied, denied) | others

    def _disputed_by_fallbacks(self) -> set[str]:
        """Return the paths of fallbacks that others want with another content, or other fallbacks have."""
        disputed: set[str] = set()
        first: dict[str, _Content] = {}
        for outputs in self._fallbacks.values():
            for file in (file for output in outputs for file in output.used_files):
                content, wanted = _content_of(file), self._contents.get(file.path, {})
                if first.setdefault(file.path, content) != content or len(wanted) > 1 or wanted.keys() - {content}:
                    disputed.add(file.path)
        return disputed


class _Decision:
    """The decision for paths that are disputed, from the oldest object to the youngest."""

    def __init__(self, rejections: Iterable[Rejection], kept: Iterable[ObjectId], candidates: Candidates) -> None:
        failures = [rejection for rejection in rejections if not rejection.is_clash]
        self._failing = {id_of_key(one.key) for one in failures if not one.is_apart} | set(kept)
        self._failing_apart = {one.key for one in failures if one.is_apart}
        self._candidates = candidates
        self._ages: dict[ObjectId, str] = {}
        self._wants: dict[ObjectId, dict[str, list[RenderedFile]]] = {}
        self._quarantined: set[ObjectId] = set()
        self._taken: dict[str, RenderedFile] = {}
        self._lent: set[str] = set()
        """Taken paths of which a fallback has the former content of another object."""
        self._borrowed: list[tuple[ObjectId, RenderedFile]] = []
        """Files with the content of other objects, of the fallbacks that are used."""
        self._in_namespace: dict[tuple[str, str], dict[_Content, set[ObjectId]]] = {}
        """Contents that objects want which do not fail, by namespace and path, each with these objects."""

    def add(self, path: str, wants: Mapping[FragmentKey | None, Want]) -> None:
        """Take the wants of *path* into account."""
        for key, (file, created) in wants.items():
            if key is None:
                # The administrator's templates have precedence over all objects.
                self._taken[path] = file
                continue
            found = id_of_key(key)
            self._ages[found] = created
            if found in self._failing or key in self._failing_apart:
                continue
            files = self._wants.setdefault(found, {}).setdefault(path, [])
            if not any(is_same_file(file, one) for one in files):
                files.append(file)
            contents = self._in_namespace.setdefault((key.namespace, path), {})
            contents.setdefault(_content_of(file), set()).add(found)

    def add_fallbacks(self, fallbacks: Mapping[FragmentKey, Iterable[FragmentOutput]]) -> None:
        """Take objects into account that may use *fallbacks*."""
        for key, outputs in fallbacks.items():
            found = id_of_key(key)
            self._quarantined.add(found)
            for output in outputs:
                self._ages.setdefault(found, created_of(output.resource))

    def decide(
        self, disputed: Iterable[str]
    ) -> tuple[
        dict[ObjectId, frozenset[str]], dict[ObjectId, frozenset[Fallback]], dict[ObjectId, dict[str, _Content]]
    ]:
        """Return the disputed paths that objects may not have by own outputs, and the fallbacks they may not use.

        And the paths that others register for the fallbacks that objects may use, with their content.
        """
        paths = frozenset(disputed)
        losers: dict[ObjectId, frozenset[str]] = {}
        denied: dict[ObjectId, frozenset[Fallback]] = {}
        for found in sorted(self._ages, key=lambda found: (self._ages[found], found)):
            wants = self._wants.get(found, {})
            lost = frozenset(path for path, files in wants.items() if len(files) > 1 or self._is_taken(files[0]))
            if lost:
                losers[found] = lost
            if found not in self._failing and not lost:
                self._taken.update((path, files[0]) for path, files in wants.items())
                self._lent.difference_update(wants)
            elif found in self._quarantined and (unusable := self._take_fallback(found, paths)):
                denied[found] = unusable
        return losers, denied, self._yield()

    def _take_fallback(self, found: ObjectId, disputed: frozenset[str]) -> frozenset[Fallback]:
        """Give the object *found* the files of its first fallback that may have them; return those that may not."""
        unusable: set[Fallback] = set()
        for fallback, outputs in self._candidates(found):
            files = [file for output in outputs for file in output.used_files if file.path in disputed]
            if any(self._is_taken(file, by_fallback=True) or self._gives_way(found, file) for file in files):
                unusable.add(fallback)
                continue
            for file in files:
                if file.source is None:
                    self._lent.discard(file.path)
                else:
                    self._borrowed.append((found, file))
                    if file.path not in self._taken:
                        self._lent.add(file.path)
                self._taken.setdefault(file.path, file)
            break
        return frozenset(unusable)

    def _yield(self) -> dict[ObjectId, dict[str, _Content]]:
        """Return the paths of borrowed files that fallbacks leave to others, with their content, by object.

        Without a present content, the fallback of an object in the namespace of the other object has its own.
        """
        yielding: dict[ObjectId, dict[str, _Content]] = {}

        def precedence(borrowed: tuple[ObjectId, RenderedFile]) -> tuple[bool, str, ObjectId]:
            found, file = borrowed
            return file.source is None or file.source[0] != found[0], self._ages[found], found

        for found, file in sorted(self._borrowed, key=precedence):
            if file.path in self._lent:
                self._lent.discard(file.path)
                self._taken[file.path] = file
            if not is_same_file(taken := self._taken[file.path], file):
                yielding.setdefault(found, {})[file.path] = _content_of(taken)
        return yielding

    def _is_taken(self, file: RenderedFile, *, by_fallback: bool = False) -> bool:
        taken = self._taken.get(file.path)
        if taken is None or is_same_file(taken, file):
            return False
        # A fallback can have any content of that object, so another one can replace its own.
        is_shared = file.source is not None and file.source == taken.source
        return not (is_shared and (by_fallback or file.path in self._lent))

    def _gives_way(self, found: ObjectId, file: RenderedFile) -> bool:
        if file.source is not None:
            return False
        contents, content = self._in_namespace.get((found[0], file.path), {}), _content_of(file)
        # The object itself may want few other contents: the search ends soon.
        return any(one != content and wanting != {found} for one, wanting in contents.items())


def _content_of(file: RenderedFile) -> _Content:
    return file.kind, file.text


def is_same_file(one: RenderedFile, other: RenderedFile) -> bool:
    """Whether both have the same kind and content."""
    return one is other or (one.kind is other.kind and one.text == other.text)


def _has(outputs: Iterable[FragmentOutput], paths: set[str]) -> bool:
    return any(file.path in paths for output in outputs for file in output.used_files)


def _differing(one: Mapping[ObjectId, Any], other: Mapping[ObjectId, Any]) -> set[ObjectId]:
    return {found for found in one.keys() | other.keys() if one.get(found) != other.get(found)}
