"""Places of objects and their fields in the files of a manifest directory."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from haptic_trio.cli.inputs.files import manifest_texts
from haptic_trio.cli.output.findings import Finding
from haptic_trio.errors import Problem, placed_at
from haptic_trio.k8s.kinds import CLUSTER_SCOPED
from haptic_trio.k8s.manifests.files import is_manifest
from haptic_trio.yaml.documents import split_documents
from haptic_trio.yaml.field_lines import line_of
from haptic_trio.yaml.reader import DocumentError, read_nodes

MOST_OBJECTS: Final = 500
"""Maximum number of objects that are searched: each costs reading its document again."""
_WORD: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._:]*")
_FIELD: Final = re.compile(r"\A(?:\w+: )?(?P<path>(?:spec|metadata|data)\b[^\s:]*): ")
"""The field that a message begins with, behind the reason of a warning."""


class _Located(msgspec.Struct, frozen=True):
    path: Path
    first: int
    """Line on which its document begins."""
    node: MappingNode


def placed_objects(findings: Iterable[Finding], directory: Path) -> tuple[Finding, ...]:
    """Return *findings*; those about objects in files below *directory* name file and line first. Reads files."""
    found = tuple(findings)
    subjects = dict.fromkeys(one.problem.subject for one in found if _is_elsewhere(one.problem))
    places = _find(directory, list(subjects)[:MOST_OBJECTS])
    return tuple(
        msgspec.structs.replace(one, problem=_moved(one.problem, places[one.problem.subject]))
        if one.problem.subject in places and _is_elsewhere(one.problem)
        else one
        for one in found
    )


def child(node: Node | None, key: str) -> Node | None:
    """Return the value of *key* if *node* is a mapping that has it."""
    if isinstance(node, MappingNode):
        for name, value in node.value:
            if isinstance(name, ScalarNode) and name.value == key:
                return value if isinstance(value, Node) else None
    return None


def text(node: Node | None) -> str:
    """Return the text of *node*; empty unless it is a scalar."""
    return str(node.value) if isinstance(node, ScalarNode) else ""


def _is_elsewhere(problem: Problem) -> bool:
    """Whether *problem* is about an object, and its place is not in a manifest file."""
    return bool(problem.subject) and not is_manifest(Path(problem.source).name)


def _moved(problem: Problem, located: _Located) -> Problem:
    named = problem.path.partition(", ")[0]
    if not named and (match := _FIELD.match(problem.message)):
        named = match["path"]
    return placed_at(problem, (str(located.path), located.first - 1 + line_of(located.node, named)))


def _find(directory: Path, subjects: Iterable[str]) -> Mapping[str, _Located]:
    wanted = set(subjects)
    names = {subject.rpartition("/")[2].rpartition(" ")[2] for subject in wanted}
    found: dict[str, _Located] = {}
    if not wanted:
        return found
    for path, content in manifest_texts(directory):
        for chunk, _, line in split_documents(content):
            if names.isdisjoint(_WORD.findall(chunk)):
                continue
            for node in _objects(chunk):
                subject = _subject(node)
                if subject in wanted:
                    # The first one by file and line is the object.
                    found.setdefault(subject, _Located(path, line, node))
    return found


def _objects(chunk: str) -> Iterator[MappingNode]:
    try:
        root = read_nodes(chunk)
    except DocumentError:
        return
    items = child(root, "items")
    nodes = items.value if isinstance(items, SequenceNode) and text(child(root, "kind")).endswith("List") else [root]
    yield from (node for node in nodes if isinstance(node, MappingNode))


def _subject(node: Node) -> str:
    kind, metadata = text(child(node, "kind")), child(node, "metadata")
    name = text(child(metadata, "name"))
    if kind in CLUSTER_SCOPED:
        return f"{kind} {name}"
    return f"{kind} {text(child(metadata, 'namespace')) or 'default'}/{name}"
