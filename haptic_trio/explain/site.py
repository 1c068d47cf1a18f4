"""Input of explanations: one render with everything known about it."""

from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

import msgspec

from haptic_trio.explain.answers import MOST_SHOWN, FragmentProblem, Line, Lookup, MadeBy, Named
from haptic_trio.haproxy.model import AuxFile, Config, FileKind, digest_of
from haptic_trio.k8s.resource import Places, Resource, ResourceRef, nowhere, ref_of, version_of
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.templating.field_paths import name_fields
from haptic_trio.templating.incremental.provenance import Provenance, readable_question
from haptic_trio.templating.incremental.questions import Question
from haptic_trio.templating.values.faults import ContentUnavailableError
from haptic_trio.templating.values.subjects import (
    FragmentKey,
    LineRange,
    ObjectWarning,
    Origin,
    Rejection,
    RenderedText,
    Subject,
)

MAIN = "haproxy.cfg"
_HOST_FIELDS = frozenset({"host", "hosts", "hostname", "hostnames"})
_SECRET = "Secret"  # noqa: S105  a kind of object


class Site(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """A rendered cluster. Valid as long as the stores do not change and nothing is rendered."""

    provenance: Provenance
    texts: Mapping[str, RenderedText]
    """haproxy.cfg and all files, by path."""
    files: Mapping[str, AuxFile]
    rejections: tuple[Rejection, ...]
    stores: Mapping[str, ReadableStore]
    plurals: Mapping[str, str]
    """By store: the plural of its kind, such as `ingresses`."""
    templates: Mapping[str, str]
    """Template sources by name."""
    config: Config | None = None
    """The parsed haproxy.cfg; None if it is invalid."""
    warnings: tuple[ObjectWarning, ...] = ()
    """Warnings to owners of objects."""
    context: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """Variables of templates: `templating.extraContext` and its defaults."""
    places: Places = nowhere
    """Places of objects in manifest files."""

    def lines_of(self, path: str) -> list[str]:
        """Return the lines of *path*, which must exist."""
        lines = self.texts[path].text.split("\n")
        return lines if lines[-1] else lines[:-1]

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Values that other modules have derived, by key."""
        return {}

    @cached_property
    def ranges(self) -> "Ranges":
        """Origins of the lines of each file."""
        return Ranges(self.texts)

    def line(self, path: str, number: int, text: str, origin: Origin | None) -> Line:
        """Return the line *number* of *path* with *text*, redacted if it is secret."""
        is_secret = self.is_secret(path, origin)
        return Line(path=path, line=number, text=hidden(text) if is_secret else text, is_secret=is_secret)

    def is_secret(self, path: str, origin: Origin | None) -> bool:
        """Whether the output of *origin* in *path* may derive from a Secret.

        That is, the object is one, or the fragment or the template around it
        has looked one up: what a template knows, its fragments may have from
        it. An output that was rendered earlier counts by its own lookups. A
        crt-list holds names of files and of hosts alone.
        """
        file = self.files.get(path)
        if file is not None and (file.secret or file.kind is FileKind.CRT_LIST):
            return file.secret
        if origin is not None and origin.subject.kind == _SECRET:
            return True
        output = self.provenance.output_of(path) or ""
        if self._reads_secrets((output, None)):
            return True
        if origin is None:
            return False
        return self._reads_secrets(("", origin.key)) or self.provenance.outputs_secrets(origin.key)

    @cached_property
    def _known_readers(self) -> dict[tuple[str, FragmentKey | None], bool]:
        return {}

    def _reads_secrets(self, reader: tuple[str, FragmentKey | None]) -> bool:
        known = self._known_readers.get(reader)
        if known is None:
            output, key = reader
            asked = self.provenance.asked_in(output) if key is None else self.provenance.asked_by(key)
            known = any(resource.get("kind") == _SECRET for question in asked for resource in self.found_by(question))
            self._known_readers[reader] = known
        return known

    def found_by(self, question: Question) -> tuple[Resource, ...]:
        """Return the objects that *question* finds; none if it is not about objects."""
        match question:
            case ("get", store, *keys) if store in self.stores:
                return tuple(self.stores[store].get(*keys))
        return ()

    def lookups(self, asked: Iterable[Question]) -> tuple[Lookup, ...]:
        """Return the lookups *asked* as templates write them, with their results, in order.

        Omits includes between templates, which are fixed for a configuration,
        and single objects: the lookups that found them are listed.
        """
        found = (self._lookup(question) for question in set(asked) if question[0] not in {"template", "object"})
        return tuple(sorted(found, key=lambda lookup: lookup.question))

    def _lookup(self, question: Question) -> Lookup:
        match question:
            case ("lines", output):
                origins = self.ranges.origins_of(self.provenance.path_of(output))
                found = tuple(dict.fromkeys(named(origin.subject) for origin in origins))
            case ("get" | "has", *rest):
                # The existence of objects is not secret.
                objects = self.found_by(("get", *rest))
                shown = tuple(named_resource(resource) for resource in objects[:MOST_SHOWN])
                return Lookup(question=readable_question(question), found=shown, count=len(objects))
            case _:
                found = ()
        return Lookup(question=readable_question(question), found=found[:MOST_SHOWN], count=len(found))

    def made_by(self, path: str, origin: Origin | None) -> MadeBy:
        """Return the maker *origin* in *path*."""
        output = self.provenance.output_of(path) or path
        return maker(output, origin)

    def problems_of(self, *subjects: Subject) -> tuple[FragmentProblem, ...]:
        """Return the problems of *subjects* in any version."""
        wanted = {identity(subject) for subject in subjects}
        return tuple(self._problem_of(one) for one in self.rejections if identity(one.subject) in wanted)

    def warnings_on(self, subject: Subject) -> tuple[str, ...]:
        """Return the warnings about *subject*."""
        return tuple(f"{warning.reason}: {warning.message}" for warning in self._warned.get(identity(subject), ()))

    @cached_property
    def _warned(self) -> dict[tuple[str, str, str], list[ObjectWarning]]:
        found: dict[tuple[str, str, str], list[ObjectWarning]] = {}
        for warning in self.warnings:
            found.setdefault(identity(warning.subject), []).append(warning)
        return found

    def warnings_at(self, host: str) -> tuple[str, ...]:
        """Return the warnings about objects that name *host* as a host, each with its object."""
        return tuple(
            str(warning) for key, found in self._warned.items() if self._names_host(key, host) for warning in found
        )

    def problems_at(self, host: str) -> tuple[FragmentProblem, ...]:
        """Return the problems of objects that name *host* as a host."""
        return tuple(
            self._problem_of(rejection)
            for rejection in self.rejections
            if self._names_host(identity(rejection.subject), host)
        )

    def _problem_of(self, rejection: Rejection) -> FragmentProblem:
        subject = rejection.subject
        ref = ResourceRef(subject.kind, subject.namespace, subject.name)
        found = (one for one in self.objects(subject.name, subject.namespace) if ref_of(one) == ref)
        problem = name_fields(next(found, None), rejection.problem)
        template = ":".join(str(part) for part in (problem.source, problem.line) if part)
        place = self.places(ref)
        return FragmentProblem(
            object=named(subject),
            fragment=rejection.fragment,
            message=f"{problem.path}: {problem.message}" if problem.path else problem.message,
            place=f"{place}, {template}" if place is not None and template else template,
            hint=problem.hint,
            excerpt=problem.excerpt,
            has_fallback=rejection.has_fallback,
        )

    def _names_host(self, key: tuple[str, str, str], host: str) -> bool:
        kind, namespace, name = key
        for resource in self.objects(name, namespace):
            try:
                if resource.get("kind") == kind and host in _hosts_in(resource):
                    return True
            except ContentUnavailableError:
                # Explanations do not fetch on-demand objects.
                continue
        return False

    def objects(self, name: str, namespace: str | None = None) -> Iterator[Resource]:
        """Yield the watched objects named *name* of all stores, each once; None: any namespace."""
        for resource in self._by_name.get(name, ()):
            if namespace is None or namespace == ref_of(resource).namespace:
                yield resource

    @cached_property
    def _by_name(self) -> dict[str, list[Resource]]:
        found: dict[str, dict[str, Resource]] = {}
        for store in self.stores.values():
            for resource in store.list():
                ref = ref_of(resource)
                found.setdefault(ref.name, {}).setdefault(str(ref), resource)
        return {name: list(objects.values()) for name, objects in found.items()}


class Ranges:
    """Origins of the lines of each file; computed at the first use of a file."""

    def __init__(self, texts: Mapping[str, RenderedText]) -> None:
        self._texts = texts
        self._ranges: dict[str, tuple[LineRange, ...]] = {}

    def of(self, path: str) -> tuple[LineRange, ...]:
        """Return the lines of fragments, in order; none for a file that does not exist."""
        found = self._ranges.get(path)
        if found is None:
            text = self._texts.get(path)
            found = self._ranges[path] = text.origins if text is not None else ()
        return found

    def origins_of(self, path: str) -> Iterator[Origin]:
        """Yield the fragments with lines in *path*, in order; with repetitions."""
        return (item.origin for item in self.of(path))

    def between(self, path: str, first: int, last: int) -> Iterator[tuple[int, int, Origin | None]]:
        """Yield the ranges within the lines *first* to *last* of *path*, each with its origin."""
        line = first
        for item in self.of(path):
            if item.last < line:
                continue
            if item.first > last:
                break
            if item.first > line:
                yield line, item.first - 1, None
            yield max(line, item.first), min(last, item.last), item.origin
            line = item.last + 1
        if line <= last:
            yield line, last, None


def named(subject: Subject) -> Named:
    """Return the name of *subject* for answers."""
    return Named(
        kind=subject.kind,
        namespace=subject.namespace,
        name=subject.name,
        resource_version=subject.resource_version,
    )


def named_resource(resource: Resource) -> Named:
    """Return the name of *resource* for answers."""
    ref = ref_of(resource)
    return Named(kind=ref.kind, namespace=ref.namespace, name=ref.name, resource_version=version_of(resource))


def identity(subject: Subject) -> tuple[str, str, str]:
    """Return the identity of *subject* without its version."""
    return subject.kind, subject.namespace, subject.name


def maker(output: str, origin: Origin | None) -> MadeBy:
    """Return the maker *origin* in the output of the template *output*."""
    if origin is None:
        return MadeBy(output=output, fragment="", template="", line=0, object=None)
    return MadeBy(
        output=output,
        fragment=origin.fragment,
        template=origin.template,
        line=origin.line,
        object=named(origin.subject),
    )


def hidden(text: str) -> str:
    """Return the placeholder for a text that derives from a Secret."""
    return f"secret, digest {digest_of(text.encode(errors='surrogatepass'))}"


def shown_text(site: Site, path: str) -> str:
    """Return the text of the file *path*, which must exist, with comments instead of secret lines."""
    if (file := site.files.get(path)) is not None and file.secret:
        return f"# secret, digest {file.digest}, {file.size} bytes\n"
    lines = site.lines_of(path)
    for first, last, origin in site.ranges.between(path, 1, len(lines)):
        if site.is_secret(path, origin):
            lines[first - 1 : last] = [_commented(line) for line in lines[first - 1 : last]]
    return "".join(f"{line}\n" for line in lines)


class Excerpt(msgspec.Struct, frozen=True, kw_only=True):
    """The first lines of a file."""

    text: str
    """Whole lines; those that derive from a Secret are comments with a digest."""
    bytes: int
    """Size of the whole file."""
    first_omitted: int = 0
    """1-based number of the first line after the text; 0 if nothing is omitted."""
    hidden_lines: int = 0
    """Number of lines in the text that are redacted."""


def take_excerpt(site: Site, path: str, limit: int) -> Excerpt:
    """Return the first lines of the file *path*, which must exist, with at most *limit* bytes of redacted text."""
    file, rendered = site.files.get(path), site.texts[path]
    if file is not None and file.secret:
        return Excerpt(text=f"# secret, digest {file.digest}\n", bytes=file.size, hidden_lines=1)
    lines, is_whole = _first_lines(site, path, limit)
    kept: list[str] = []
    size = hidden_lines = 0
    for first, last, origin in site.ranges.between(path, 1, len(lines)):
        is_secret = site.is_secret(path, origin)
        for line in lines[first - 1 : last]:
            is_hidden = is_secret and bool(line.strip())
            # A lone surrogate, such as from an invalid byte, has no place in an object of the API.
            shown = (f"# {hidden(line)}" if is_hidden else line).encode(errors="replace")
            if size + len(shown) + 1 > limit:
                return Excerpt(
                    text="".join(kept), bytes=rendered.size, first_omitted=len(kept) + 1, hidden_lines=hidden_lines
                )
            size += len(shown) + 1
            hidden_lines += is_hidden
            kept.append(f"{shown.decode()}\n")
    return Excerpt(
        text="".join(kept),
        bytes=rendered.size,
        first_omitted=0 if is_whole else len(kept) + 1,
        hidden_lines=hidden_lines,
    )


def _first_lines(site: Site, path: str, limit: int) -> tuple[list[str], bool]:
    """Return the whole lines within the first *limit* characters or more of *path*, and whether these are all."""
    parts: list[str] = []
    size, is_whole = 0, True
    for piece in site.texts[path].pieces:
        # The text of all pieces together may be many megabytes.
        if size > limit:
            is_whole = False
            break
        parts.append(piece.text)
        size += len(piece.text)
    lines = "".join(parts).split("\n")
    if not is_whole or not lines[-1]:
        lines.pop()
    return lines, is_whole


def _commented(line: str) -> str:
    text = line.lstrip()
    return f"{line[: len(line) - len(text)]}# {hidden(text)}" if text else line


def _hosts_in(value: object) -> Iterator[str]:
    """Yield the texts of fields whose names are about hosts."""
    if isinstance(value, Mapping):
        for field, inner in value.items():
            if field in _HOST_FIELDS:
                yield from (one for one in (inner if isinstance(inner, list) else [inner]) if isinstance(one, str))
            else:
                yield from _hosts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _hosts_in(inner)
