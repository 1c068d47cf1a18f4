"""Provenance: from a line of the output to its template and object, and back."""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from haptic_trio.templating.incremental.questions import Dependency, Question, whole
from haptic_trio.templating.incremental.records import Child, Kept, Root, id_of_key
from haptic_trio.templating.incremental.run import RenderRun
from haptic_trio.templating.values.subjects import FragmentKey, LineRange, Origin, Rejection, RenderedText


class Maker(msgspec.Struct, frozen=True, kw_only=True):
    """Template and object that made a line."""

    output: str
    """Name of the template that the line is part of, or in which its file was registered; such as `maps/host.map`."""
    origin: Origin | None
    """None outside all fragments."""
    asked: tuple[Question, ...]
    """Lookups of the fragment, or, outside of fragments, of the template."""

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Lookups of the unit as readable texts, in order."""
        return readable(self.asked)


class Made(msgspec.Struct, frozen=True, kw_only=True):
    """Output of one fragment of an object."""

    origin: Origin
    lines: Mapping[str, tuple[LineRange, ...]]
    """By path of the output."""
    files: tuple[str, ...]
    """Paths of the files that it has registered."""
    asked: tuple[Question, ...]

    @property
    def dependencies(self) -> tuple[str, ...]:
        """Lookups of the unit as readable texts, in order."""
        return readable(self.asked)


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """A unit that made a lookup."""

    output: str
    """See `Maker.output`."""
    origin: Origin | None
    """None outside all fragments."""
    question: Question


class Provenance:
    """Answers from the records of a run; of use until that renders again. Costs nothing before it is asked."""

    def __init__(self, run: RenderRun, paths: Mapping[str, str]) -> None:
        """Take *run*, and the *paths* of its outputs by name of their templates."""
        self._run = run
        self._paths = dict(paths)

    @property
    def rejections(self) -> tuple[Rejection, ...]:
        """The fragments whose objects could not be rendered as they are, in the order of rendering."""
        return self._run.rejections

    def maker_of(self, path: str, line: int) -> Maker | None:
        """Return who has made the 1-based *line* of the output or file *path*; None if there is no such line."""
        found = self._text_at(path)
        if found is None:
            return None
        name, text = found
        if not 1 <= line <= text.text.count("\n") + (not text.text.endswith("\n")):
            return None
        origin = text.origin_of(line)
        asked = self._run.roots[name].asked if origin is None else self.asked_by(origin.key)
        return Maker(output=name, origin=origin, asked=whole(asked))

    def output_of(self, path: str) -> str | None:
        """Return the name of the template that became the file *path*, or has registered it; None without one."""
        found = self._text_at(path)
        return found[0] if found is not None else None

    def path_of(self, output: str) -> str:
        """Return the path of the file that the template *output* becomes."""
        return self._paths.get(output, output)

    def made_by(self, kind: str, namespace: str, name: str) -> list[Made]:
        """Return what every fragment of the object has made, in the order of rendering."""
        found = list(self._fragments_of((kind, namespace, name)))
        lines = self._lines_of({origin.key for origin, _ in found})
        return [
            Made(
                origin=origin,
                lines=lines.get(origin.key, {}),
                files=tuple(self._files_of(origin.key)),
                asked=whole(asked),
            )
            for origin, asked in found
        ]

    def asked_by(self, key: FragmentKey) -> tuple[Question, ...]:
        """Return what the fragment has looked up and used; nothing if it has not been rendered."""
        for root in self._run.roots.values():
            kept = root.kept.get(key)
            if kept is not None:
                return whole(kept.asked)
            for region in root.regions:
                if (region.name, region.ordinal, region.within) == (key.fragment, key.ordinal, key.within):
                    child = region.children.get(id_of_key(key))
                    if child is not None:
                        return whole(child.asked)
        found = self._fragments_of((key.kind, key.namespace, key.name))
        return next((whole(asked) for origin, asked in found if origin.key == key), ())

    def outputs_secrets(self, key: FragmentKey) -> bool:
        """Whether the output of the fragment may contain data of a Secret.

        The output of a quarantined object is an earlier one, with other lookups than `asked_by` returns.
        """
        output = self._run.produced.get(key)
        return output is not None and output.is_secret

    def asked_in(self, output: str) -> tuple[Question, ...]:
        """Return what the template *output* has looked up and used outside of fragments."""
        root = self._run.roots.get(output)
        return whole(root.asked) if root is not None else ()

    def askers_of(self, questions: Iterable[Question]) -> Iterator[Asker]:
        """Yield who has asked any of *questions*, once for each of them."""
        for question in questions:
            for node in self._run.index.askers(question):
                if isinstance(node, Child):
                    region = node.region
                    yield Asker(output=region.root.name, origin=region.origin_of(node), question=question)
                elif isinstance(node, Kept):
                    yield Asker(output=node.root.name, origin=node.origin, question=question)
                elif isinstance(node, Root):
                    yield Asker(output=node.name, origin=None, question=question)
                # The importer has asked all questions of the imported template, too.

    def _text_at(self, path: str) -> tuple[str, RenderedText] | None:
        file = self._run.claims.first(path)
        holder = self._run.claims.holder(path)
        if file is not None and holder is not None:
            # Who registers a file takes the place of a template that would become it.
            owner = holder.region.root if isinstance(holder, Child) else holder
            assert isinstance(owner, Root)
            return owner.name, file.content
        for name, root in self._run.roots.items():
            if path == self._paths.get(name, name):
                return name, root.text
        return None

    def _fragments_of(self, wanted: tuple[str, str, str]) -> Iterator[tuple[Origin, tuple[Dependency, ...]]]:
        kind, namespace, name = wanted
        for root in self._run.roots.values():
            for kept in root.kept.values():
                origins = [kept.origin, *self._origins_in(kept.trace.origins, kept.origin)]
                yield from ((origin, kept.asked) for origin in origins if _is_of(origin, wanted))
            for region in root.regions:
                own = region.children.get((namespace, name, kind))
                inside = [child for child in region.children.values() if child is own or _holds(child, wanted)]
                for child in sorted(inside, key=lambda child: child.key):
                    seen = set()
                    if child is own:
                        origin = region.origin_of(child)
                        seen.add(origin.key)
                        yield origin, child.asked
                    for piece in child.pieces:
                        if piece.origin is not None and _is_of(piece.origin, wanted) and piece.origin.key not in seen:
                            seen.add(piece.origin.key)
                            yield piece.origin, child.asked

    def _origins_in(self, numbers: list[int], outermost: Origin) -> list[Origin]:
        return [origin for number in numbers if (origin := self._run.origins[number]) != outermost]

    def _lines_of(self, keys: set[FragmentKey]) -> dict[FragmentKey, dict[str, tuple[LineRange, ...]]]:
        objects = {(key.kind, key.namespace, key.name) for key in keys}
        found: dict[FragmentKey, dict[str, tuple[LineRange, ...]]] = {}
        for name, root in self._run.roots.items():
            path = self._paths.get(name, name)
            if path in self._run.claims:
                continue
            for item in root.text.origins:
                subject = item.origin.subject
                if (subject.kind, subject.namespace, subject.name) in objects and item.origin.key in keys:
                    of_key = found.setdefault(item.origin.key, {})
                    of_key[path] = (*of_key.get(path, ()), item)
        return found

    def _files_of(self, key: FragmentKey) -> list[str]:
        output = self._run.produced.get(key)
        return [file.path for file in output.files] if output is not None else []


def _is_of(origin: Origin, wanted: tuple[str, str, str]) -> bool:
    subject = origin.subject
    return subject.name == wanted[2] and (subject.kind, subject.namespace) == wanted[:2]


def _holds(child: Child, wanted: tuple[str, str, str]) -> bool:
    return any(piece.origin is not None and _is_of(piece.origin, wanted) for piece in child.pieces)


def readable(asked: tuple[Question, ...]) -> tuple[str, ...]:
    """Return *asked* as a person would write it."""
    return tuple(sorted(map(readable_question, asked)))


def readable_question(question: Question) -> str:
    """Return *question* as a person would write it."""
    match question:
        case ("get", store):
            return f"resources.{store}.list()"
        case ("get" | "has" as verb, store, *keys):
            return f"resources.{store}.{verb}({', '.join(map(repr, keys))})"
        case ("file", path):
            return f"file {path}"
        case ("http", url, _):
            return f"http.fetch({url!r})"
        case ("lines", output):
            return f"whether {output} has entries"
    return " ".join(question)
