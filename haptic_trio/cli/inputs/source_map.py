"""Source map from places in the configuration to files and lines of the manifest directory."""

from collections.abc import Iterable
from pathlib import Path
from typing import Final

import msgspec
from yaml.nodes import ScalarNode

from haptic_trio.cli.inputs.files import manifest_texts
from haptic_trio.cli.inputs.object_places import child, placed_objects, text
from haptic_trio.cli.inputs.options import InputOptions
from haptic_trio.cli.output.findings import Area, Finding, find
from haptic_trio.config.load import Load, LoadedConfig
from haptic_trio.config.templates import MAIN_TEMPLATE
from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.k8s.resource import Resource
from haptic_trio.validation_tests.results import CaseResult, Checked
from haptic_trio.yaml.documents import split_documents
from haptic_trio.yaml.reader import DocumentError, read_nodes

_SECTIONS: Final = {"maps": "maps", "files": "files", "ssl": "sslCertificates", "crt-lists": "crtLists"}
"""Field of the configuration by the prefix of the names of its templates."""


class Block(msgspec.Struct, frozen=True):
    """The text of a configuration within a file."""

    source: str
    """Source of problems in the configuration, such as `ConfigMap default/haptic-trio`."""
    path: Path
    first: int
    """Number of its first line, from 1."""
    indent: int


def placed(findings: Iterable[Finding], options: InputOptions | None) -> tuple[Finding, ...]:
    """Return *findings*, with the places that users know: files and lines of the manifest directory.

    Places in the configuration and in its own templates are mapped to the file
    that holds the ConfigMap, if the configuration is a block scalar
    (`config: |`) there. Other problems of objects get the place of the object.
    Reads files.
    """
    found = tuple(findings)
    if options is None or options.manifests is None:
        return found
    located = None
    if any(finding.problem.line for finding in found):
        located = find_config(options.manifests, options.source.namespace, options.source.config_map)
    if located is not None:
        found = tuple(
            msgspec.structs.replace(finding, problem=_in_block(finding.problem, *located)) for finding in found
        )
    return placed_objects(found, options.manifests)


def with_places(load: Load, options: InputOptions) -> Load:
    """Return *load* with the places of its problems mapped as in `placed`, which it raises as `ConfigInvalidError`."""

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
    if options is None or options.manifests is None:
        return found
    located = find_config(options.manifests, options.source.namespace, options.source.config_map)
    if located is None:
        return found
    block, _config = located
    return tuple(
        msgspec.structs.replace(
            case,
            source=str(block.path) if _is_in(case, block) else case.source,
            line=case.line + block.first - 1 if _is_in(case, block) else case.line,
            checked=tuple(_placed_assertion(one, *located) for one in case.checked),
        )
        for case in found
    )


def _placed_assertion(one: Checked, block: Block, config: str) -> Checked:
    message = one.message
    for cause in one.causes:
        message = message.replace(str(cause), str(_in_block(cause, block, config)))
    if not _is_in(one, block):
        return msgspec.structs.replace(one, message=message)
    return msgspec.structs.replace(one, message=message, source=str(block.path), line=one.line + block.first - 1)


def _is_in(place: Problem | CaseResult | Checked, block: Block) -> bool:
    return place.source == block.source and bool(place.line)


def find_block(directory: Path, namespace: str, name: str) -> Block | None:
    """Return the configuration of the ConfigMap *name* in a file below *directory*; None unless a block scalar."""
    found = find_config(directory, namespace, name)
    return found[0] if found is not None else None


def find_config(directory: Path, namespace: str, name: str) -> tuple[Block, str] | None:
    """Return the place and the text of the configuration; see `find_block`."""
    for path, content in manifest_texts(directory):
        for chunk, _, line in split_documents(content):
            if "ConfigMap" not in chunk:
                continue
            value = _config_in(chunk, namespace, name)
            if value is not None:
                lines = chunk.splitlines()[value.start_mark.line + 1 : value.end_mark.line + 1]
                indents = [len(one) - len(one.lstrip(" ")) for one in lines if one.strip()]
                # Leading blank lines are part of the text.
                block = Block(
                    f"ConfigMap {namespace}/{name}",
                    path,
                    line + value.start_mark.line + 1,
                    indents[0] if indents else 0,
                )
                return block, str(value.value)
    return None


def _in_block(problem: Problem, block: Block, config: str) -> Problem:
    """Return *problem* with its place in the file, if it is in the configuration or in a template of it."""
    if _is_in(problem, block):
        return _moved(problem, block)
    if problem.line and (line := _template_line(config, problem.source, problem.line)):
        place = f"template {problem.source}:{problem.line}"
        return msgspec.structs.replace(
            problem,
            source=str(block.path),
            line=block.first - 1 + line,
            column=0,
            excerpt=f"{place}\n{problem.excerpt}".rstrip("\n"),
        )
    return problem


def _template_line(config: str, template: str, line: int) -> int:
    """Return the line of *config* with the line *line* of *template*; 0 unless *config* holds the template."""
    prefix, slash, name = template.partition("/")
    keys: tuple[str, ...] = (
        (_SECTIONS[prefix], name) if slash and prefix in _SECTIONS else ("templateSnippets", template)
    )
    if template == MAIN_TEMPLATE:
        keys = ("haproxyConfig",)
    try:
        node = read_nodes(config)
    except DocumentError:
        return 0
    for key in (*keys, "template"):
        node = child(node, key)
    if not isinstance(node, ScalarNode):
        return 0
    first = int(node.start_mark.line) + 1
    return first + line if node.style == "|" else first


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
    metadata = child(root, "metadata")
    if text(child(root, "kind")) != "ConfigMap" or text(child(metadata, "name")) != name:
        return None
    if (text(child(metadata, "namespace")) or "default") != namespace:
        return None
    value = child(child(root, "data"), "config")
    return value if isinstance(value, ScalarNode) and value.style == "|" else None
