"""Source map from places in the configuration to files and lines of the manifest directory."""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path

import msgspec
from yaml.nodes import MappingNode, Node, ScalarNode

from haptic_trio.cli.inputs.files import manifest_texts
from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.cli.output.findings import Area, Finding, find
from haptic_trio.config.load import LoadedConfig
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.stages.process import Load
from haptic_trio.validation_tests.results import CaseResult, Checked
from haptic_trio.yaml.documents import split_documents
from haptic_trio.yaml.reader import DocumentError, read_nodes


class Block(msgspec.Struct, frozen=True):
    """The text of a configuration within a file."""

    source: str
    """Source of problems in the configuration, such as `ConfigMap default/haptic-trio`."""
    path: Path
    first: int
    """Number of its first line, from 1."""
    indent: int


def placed(findings: Iterable[Finding], options: InputOptions | None) -> tuple[Finding, ...]:
    """Return *findings*, with places in the configuration mapped to the file that holds the ConfigMap.

    Returns them unchanged unless the configuration is a block scalar
    (`config: |`) in a file. Reads files.
    """
    found = tuple(findings)
    block = _block_for((finding.problem for finding in found), options)
    if block is None:
        return found
    return tuple(
        msgspec.structs.replace(finding, problem=_moved(finding.problem, block))
        if _is_in(finding.problem, block)
        else finding
        for finding in found
    )


def placing(load: Load, options: InputOptions) -> Load:
    """Return *load* with the places of its problems mapped as in `placed`."""

    def load_placed(config_map: Resource, secret: Resource | None) -> LoadedConfig:
        try:
            return load(config_map, secret)
        except ConfigInvalidError as exc:
            findings = placed(find(Area.CONFIGURATION, exc.problems), options)
            raise ConfigInvalidError(finding.problem for finding in findings) from exc

    return load_placed


def placed_cases(cases: Iterable[CaseResult], options: InputOptions | None) -> tuple[CaseResult, ...]:
    """Return *cases* with the places of tests and assertions mapped as in `placed`."""
    found = tuple(cases)
    assertions = (one for case in found for one in case.checked)
    block = _block_for(chain(found, assertions), options)
    if block is None:
        return found
    return tuple(
        msgspec.structs.replace(
            case,
            source=str(block.path) if _is_in(case, block) else case.source,
            line=case.line + block.first - 1 if _is_in(case, block) else case.line,
            checked=tuple(
                msgspec.structs.replace(one, source=str(block.path), line=one.line + block.first - 1)
                if _is_in(one, block)
                else one
                for one in case.checked
            ),
        )
        for case in found
    )


def _is_in(place: Problem | CaseResult | Checked, block: Block) -> bool:
    return place.source == block.source and bool(place.line)


def _block_for(places: Iterable[Problem | CaseResult | Checked], options: InputOptions | None) -> Block | None:
    """Return the block of the configuration if any of *places* is in it."""
    if options is None or options.manifests is None:
        return None
    namespace, name = options.source.namespace, options.source.config_map
    source = f"ConfigMap {namespace}/{name}"
    if not any(place.source == source and place.line for place in places):
        return None
    return find_block(options.manifests, namespace, name)


def find_block(directory: Path, namespace: str, name: str) -> Block | None:
    """Return the configuration of the ConfigMap *name* in a file below *directory*; None unless a block scalar."""
    for path, text in manifest_texts(directory):
        for chunk, _, line in split_documents(text):
            if "ConfigMap" not in chunk:
                continue
            value = _config_in(chunk, namespace, name)
            if value is not None:
                lines = chunk.splitlines()[value.start_mark.line + 1 : value.end_mark.line + 1]
                indents = [len(one) - len(one.lstrip(" ")) for one in lines if one.strip()]
                # Leading blank lines are part of the text.
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


def _config_in(chunk: str, namespace: str, name: str) -> ScalarNode | None:
    try:
        root = read_nodes(chunk)
    except DocumentError:
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
