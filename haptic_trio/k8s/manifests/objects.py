"""Parser for manifests: text to objects, each with its first line.

Every document is read for itself, so that one broken document takes none of
its neighbours with it. JSON is YAML; lists such as `kubectl get -o yaml`
writes them are taken apart.
"""

import io
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, TypeAlias

import msgspec
from yaml.nodes import Node

from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.redaction.documents import without_credentials_in_yaml
from haptic_trio.yaml.documents import documents_of
from haptic_trio.yaml.field_lines import line_of
from haptic_trio.yaml.reader import MAX_DEPTH, Document, DocumentError, lines_of, read_document, read_nodes

MAX_SIZE: Final = 64 * 1024 * 1024
"""Characters in one document, such as a list of 10,000 objects; the other documents of its file are not in memory."""

_KIND: Final = re.compile(r"""\bkind["']?\s*:""")
_SECRET: Final = re.compile(r"""["']?\bkind["']?\s*:\s*["']?Secret\b|\bstringData\b""")
_NAME: Final = re.compile(r"[A-Za-z0-9](?:[-A-Za-z0-9._:]{0,251}[A-Za-z0-9])?")
_NAMESPACE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?")
_NAME_HINT: Final = "use letters, digits, '-' and '.', at most 253, with a letter or digit at both ends"


class LocatedResource(msgspec.Struct, frozen=True):
    """An object, and where it begins."""

    resource: Resource
    source: str
    line: int


Check: TypeAlias = Callable[[Resource], Iterable[Problem]]
"""Return problems with fields of an object, which do not keep it from being used."""


class ObjectError(DocumentError):
    """The document is not a valid object; trying again helps only after it has changed."""


def read_manifests(text: str, source: str) -> tuple[list[LocatedResource], list[Problem]]:
    """Return the objects in *text* and the problems of documents that are none; see `read_manifest_lines`."""
    located, problems, _faults = read_manifest_lines(io.StringIO(text.removeprefix("\ufeff"), newline="\n"), source)
    return located, problems


def read_manifest_lines(
    lines: Iterable[str], source: str, check: Check | None = None
) -> tuple[list[LocatedResource], list[Problem], list[Problem]]:
    """Return the objects in *lines*, the problems of documents that are none, and what *check* finds in objects.

    Problems quote the lines around the fault, except for documents that
    look like a Secret, or may be the rest of one. Nothing is read after a
    document that is too large.
    """
    located: list[LocatedResource] = []
    problems: list[Problem] = []
    faults: list[Problem] = []
    documents = documents_of(lines, limit=MAX_SIZE)
    # The last document with a kind: `---` in a Secret begins another one without.
    former = ""
    while True:
        try:
            chunk, _, first_line = next(documents)
        except StopIteration:
            return located, problems, faults
        except DocumentError as error:
            hint = "split it; the limit is there so that one document cannot exhaust the memory"
            message = f"the document is larger than {MAX_SIZE >> 20} MiB"
            problems.append(Problem(message=message, source=source, line=error.line, hint=hint))
            return located, problems, faults
        try:
            document = _read_chunk(chunk)
        except DocumentError as error:
            problems.append(_Place(chunk, source, first_line, former).problem(error, error.line or 1))
            former = chunk if _KIND.search(chunk) else former
            continue
        alone = None if _is_list(document.data) else (chunk, first_line)
        for resource, line in _objects(document):
            try:
                _check_object(resource)
            except ObjectError as error:
                problems.append(_Place(chunk, source, first_line, former).problem(error, line, _subject(resource)))
                former = chunk if _KIND.search(chunk) else former
            else:
                former = chunk
                located.append(LocatedResource(resource, source, first_line + line - 1))
                if check is not None:
                    faults += _placed(check(resource), located[-1], alone)


def _placed(found: Iterable[Problem], located: LocatedResource, alone: tuple[str, int] | None) -> Iterator[Problem]:
    """Yield *found* with file and line.

    *alone* is the document, with its first line, that holds the object alone;
    problems with an item of a list get the line of the object.
    """
    root: Node | None = None
    for problem in found:
        line = located.line
        if alone is not None:
            text, first_line = alone
            root = root or read_nodes(text)
            line = first_line - 1 + line_of(root, problem.path) if root is not None else line
        yield msgspec.structs.replace(problem, source=located.source, line=line)


def _read_chunk(chunk: str) -> Document:
    stripped = chunk.lstrip()
    if stripped.startswith("{"):
        # Most JSON is YAML, but not all: surrogate pairs in escapes are not. It is also ten times as fast.
        document = Document()
        try:
            document.data = msgspec.json.decode(stripped)
        except (msgspec.DecodeError, RecursionError):
            return read_document(chunk)
        document.line = chunk[: len(chunk) - len(stripped)].count("\n") + 1
        _check_depth(document.data)
        return document
    return read_document(chunk)


def _check_depth(data: Any) -> None:
    level: list[Any] = [data]
    for _depth in range(MAX_DEPTH + 1):
        level = [
            child
            for node in level
            for child in (node.values() if isinstance(node, dict) else node)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise DocumentError(
        f"nested deeper than {MAX_DEPTH} levels", line=1, hint="no manifest or configuration needs that"
    )


def _objects(document: Document) -> list[tuple[Any, int]]:
    """Return what the document holds, with lines: itself, or the items if it is a list."""
    data = document.data
    if data is None:
        return []
    if not _is_list(data):
        return [(data, document.line)]
    items = data["items"] or []
    lines = document.item_lines.get("items", [])
    if len(lines) != len(items):
        lines = [document.line] * len(items)
    if data["kind"] != "List":
        # The API leaves the type out of the items of an IngressList.
        item_type = {"apiVersion": data.get("apiVersion"), "kind": data["kind"].removesuffix("List")}
        items = [item_type | item if isinstance(item, dict) else item for item in items]
    return list(zip(items, lines, strict=True))


def _is_list(data: Any) -> bool:
    return (
        isinstance(data, dict)
        and isinstance(data.get("kind"), str)
        and data["kind"].endswith("List")
        and "items" in data
        and isinstance(data["items"], list | None)
    )


def _check_object(data: Any) -> None:
    if not isinstance(data, dict):
        hint = "a manifest begins with apiVersion, kind and metadata"
        raise ObjectError("expected an object", detail=f"found {_described(data)}", hint=hint)
    for field, example in (("apiVersion", "networking.k8s.io/v1"), ("kind", "Ingress")):
        if not isinstance(data.get(field), str) or not data[field]:
            raise ObjectError(f"{field} is missing or not text", hint=f"write, for instance, {field}: {example}")
    metadata = data.get("metadata")
    if not isinstance(metadata, dict):
        raise ObjectError("metadata is missing or not a mapping", hint="write metadata: and, indented below it, name:")
    _check_metadata(metadata)


def _described(data: Any) -> str:
    match data:
        case list():
            return "a list"
        case bool():
            return f"the truth value {str(data).lower()}"
        case int() | float():
            return f"the number {data}"
        case _:
            return f"the text {str(data)[:40]!r}"


def _check_metadata(metadata: dict[str, Any]) -> None:
    name, namespace = metadata.get("name"), metadata.get("namespace")
    if name is None or name == "":
        generated = "generateName" in metadata
        hint = "generateName is not supported; write a name" if generated else "write a name"
        raise ObjectError("metadata.name is missing", hint=hint)
    if not isinstance(name, str):
        raise ObjectError("metadata.name is not text", hint=f"put it in quotes: name: {str(name)!r}")
    if not _NAME.fullmatch(name):
        raise ObjectError("metadata.name is not valid", hint=_NAME_HINT)
    if namespace is not None and not (
        isinstance(namespace, str) and (not namespace or _NAMESPACE.fullmatch(namespace))
    ):
        hint = "use lower-case letters, digits and '-', at most 63; put a number in quotes"
        raise ObjectError("metadata.namespace is not valid", hint=hint)
    for field in ("labels", "annotations"):
        entries = metadata.get(field)
        if entries is None:
            continue
        if not isinstance(entries, dict):
            raise ObjectError(f"metadata.{field} is not a mapping", hint="write a line of key: value for each")
        for key, value in entries.items():
            if not isinstance(value, str):
                hint = "a cluster takes text only: put numbers, true, yes and on in quotes"
                raise ObjectError(f"metadata.{field}[{key!r}] is not text", hint=hint)


class _Place(msgspec.Struct, frozen=True):
    chunk: str
    source: str
    first_line: int
    former: str
    """The document of which it may be the rest, unless it has a kind."""

    def problem(self, error: DocumentError, line: int, subject: str = "") -> Problem:
        message, excerpt = str(error), self._excerpt(line)
        whole = self.chunk if _KIND.search(self.chunk) else f"{self.former}\n{self.chunk}"
        if _SECRET.search(whole):
            message, excerpt = error.message, ""
        return Problem(
            message=message,
            source=self.source,
            line=self.first_line + line - 1,
            column=error.column,
            hint=error.hint,
            excerpt=excerpt,
            subject=subject,
        )

    def _excerpt(self, line: int) -> str:
        lines = lines_of(without_credentials_in_yaml(self.chunk).rstrip())[: line + 1]
        shown = range(max(1, line - 1), len(lines) + 1)
        return "\n".join(f"{self.first_line + at - 1:>5} | {lines[at - 1][:200].rstrip()}" for at in shown)


def _subject(data: Any) -> str:
    if not isinstance(data, dict) or not isinstance(data.get("metadata"), dict):
        return ""
    metadata = data["metadata"]
    name = "/".join(str(metadata[field]) for field in ("namespace", "name") if metadata.get(field))
    return f"{data.get('kind') or 'object'} {name}" if name else ""
