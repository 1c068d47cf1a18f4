"""Where in a directory of manifests a place of the configuration is: people edit files, not ConfigMaps."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode

from haptic_trio.cli.findings import Finding
from haptic_trio.cli.options import InputOptions
from haptic_trio.config.document import parse_document
from haptic_trio.embedded.results import CaseResult, Checked
from haptic_trio.errors import Problem, ProblemsError
from haptic_trio.k8s.files import SUFFIXES

_DOCUMENT: Final = re.compile(r"^---(?:[ \t].*)?$", re.MULTILINE)


class Block(msgspec.Struct, frozen=True):
    """The text of a configuration within a file."""

    source: str
    """What its places are called that know of no file."""
    path: Path
    first: int
    """Its first line, from 1 on."""
    indent: int


def placed(findings: Iterable[Finding], options: InputOptions | None) -> tuple[Finding, ...]:
    """Return *findings*, those of the configuration with their place in the file that has the ConfigMap.

    As they are where the configuration is no block of text (`config: |`) of a
    file. Blocking.
    """
    found = tuple(findings)
    block = _block_for((finding.problem for finding in found), options)
    if block is None:
        return found
    return tuple(
        msgspec.structs.replace(finding, problem=_moved(finding.problem, block))
        if finding.problem.source == block.source and finding.problem.line
        else finding
        for finding in found
    )


def placed_cases(cases: Iterable[CaseResult], options: InputOptions | None) -> tuple[CaseResult, ...]:
    """Return *cases* with the places of their assertions in the file that has the ConfigMap, as `placed` does."""
    found = tuple(cases)
    block = _block_for((one for case in found for one in case.checked), options)
    if block is None:
        return found
    return tuple(
        msgspec.structs.replace(
            case,
            checked=tuple(
                msgspec.structs.replace(one, source=str(block.path), line=one.line + block.first - 1)
                if one.source == block.source and one.line
                else one
                for one in case.checked
            ),
        )
        for case in found
    )


def _block_for(places: Iterable[Problem | Checked], options: InputOptions | None) -> Block | None:
    """Return where the configuration is, if any of *places* is in it."""
    if options is None or options.manifests is None:
        return None
    namespace, name = options.source.namespace, options.source.config_map
    source = f"ConfigMap {namespace}/{name}"
    if not any(place.source == source and place.line for place in places):
        return None
    return find_block(options.manifests, namespace, name)


def find_block(directory: Path, namespace: str, name: str) -> Block | None:
    """Return where the configuration of the ConfigMap *name* is below *directory*; None if it is no block of text."""
    for path in sorted(one for one in directory.rglob("*") if one.name.endswith(SUFFIXES)):
        try:
            text = path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            # It has a finding of its own.
            continue
        for line, chunk in _documents(text):
            if "ConfigMap" not in chunk:
                continue
            value = _config_in(chunk, namespace, name)
            if value is not None:
                lines = chunk.splitlines()[value.start_mark.line + 1 : value.end_mark.line + 1]
                indents = [len(one) - len(one.lstrip(" ")) for one in lines if one.strip()]
                # Blank lines at the beginning are part of the text.
                return Block(
                    f"ConfigMap {namespace}/{name}",
                    path,
                    line + value.start_mark.line + 1,
                    indents[0] if indents else 0,
                )
    return None


def _moved(problem: Problem, block: Block) -> Problem:
    return msgspec.structs.replace(
        problem,
        source=str(block.path),
        line=problem.line + block.first - 1,
        column=problem.column + block.indent if problem.column else 0,
        subject=problem.subject or problem.source,
    )


def _documents(text: str) -> Iterator[tuple[int, str]]:
    start = 0
    for match in _DOCUMENT.finditer(text):
        yield text.count("\n", 0, start) + 1, text[start : match.start()]
        start = match.end() + 1
    yield text.count("\n", 0, start) + 1, text[start:]


def _config_in(chunk: str, namespace: str, name: str) -> ScalarNode | None:
    try:
        root = parse_document(chunk, source="").root
    except ProblemsError:
        return None
    metadata = _child(root, "metadata")
    if _text(_child(root, "kind")) != "ConfigMap" or _text(_child(metadata, "name")) != name:
        return None
    if (_text(_child(metadata, "namespace")) or "default") != namespace:
        return None
    value = _child(_child(root, "data"), "config")
    return value if isinstance(value, ScalarNode) and value.style == "|" else None


def _child(node: Node | None, key: str) -> Node | None:
    if isinstance(node, MappingNode):
        for name, value in node.value:
            if isinstance(name, ScalarNode) and name.value == key:
                return value if isinstance(value, Node) else None
    return None


def _text(node: Node | None) -> str:
    return str(node.value) if isinstance(node, ScalarNode) else ""
