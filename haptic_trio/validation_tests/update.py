"""Update of `expected` values in test files, without touching other text."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from haptic_trio.config.yaml.document import parse_document
from haptic_trio.errors import HapticError
from haptic_trio.yaml.documents import split_documents
from haptic_trio.yaml.reader import DocumentError, read_nodes

INDENT: Final = 2


class UpdateError(HapticError):
    """A text cannot be updated in place and has to be edited by hand."""


def update_tests(text: str, found: Mapping[tuple[str, int], str], *, source: str) -> str:
    """Return *text*, a file of tests or a configuration, with new `expected` texts.

    *found* has them by name of the test and index of the assertion. Raises
    UpdateError for those that come from an alias, `ConfigInvalidError` for
    invalid YAML.
    """
    lines = text.splitlines()
    _apply(lines, _edits(text, found, source))
    return "\n".join(lines) + "\n"


def update_config_map(
    text: str, found: Mapping[tuple[str, int], str], *, namespace: str, name: str, source: str
) -> str | None:
    """Return *text*, a file of manifests, with new `expected` texts in the ConfigMap; None if that is not in it.

    Raises UpdateError when the configuration is not a block scalar.
    """
    for chunk, start, _ in split_documents(text):
        try:
            root = read_nodes(chunk)
        except DocumentError:
            # The configuration was valid before: this document is another object.
            continue
        if not _is_config_map(root, namespace, name):
            continue
        _, value = _entry(_child(root, "data"), "config")
        if not isinstance(value, ScalarNode) or value.style != "|":
            raise UpdateError(f"{source}: the configuration is not a block scalar (`config: |`)")
        lines = chunk.splitlines()
        first, last = value.start_mark.line + 1, _last_line(value, lines)
        block = lines[first : last + 1]
        indent = min((len(line) - len(line.lstrip(" ")) for line in block if line.strip()), default=0)
        inner = "\n".join(line[indent:] for line in block) + "\n"
        _apply(
            lines,
            [
                _Edit(
                    first + edit.first,
                    first + edit.last,
                    [f"{' ' * indent}{line}" if line else "" for line in edit.block],
                )
                for edit in _edits(inner, found, source, before=text.count("\n", 0, start) + first)
            ],
        )
        return text[:start] + "\n".join(lines) + "\n" + text[start + len(chunk) :]
    return None


class _Edit(NamedTuple):
    first: int
    last: int
    block: list[str]


def _edits(text: str, found: Mapping[tuple[str, int], str], source: str, before: int = 0) -> list[_Edit]:
    """Return the edits of *text*, which begins after *before* lines of the file."""
    tests = _child(parse_document(text, source=source).root, "validationTests")
    lines = text.splitlines()
    edits = []
    for (name, index), new in found.items():
        assertions = _child(_child(tests, name), "assertions")
        item = assertions.value[index] if isinstance(assertions, SequenceNode) else None
        key, value = _entry(item, "expected")
        if key is None or not isinstance(value, ScalarNode) or value.start_mark.line < key.start_mark.line:
            raise UpdateError(f"{source}: the expected text of assertion {index} of {name!r} cannot be found")
        if isinstance(item, MappingNode) and item.flow_style:
            line = before + key.start_mark.line + 1
            raise UpdateError(f"{source}:{line}: write the assertion without braces to update it")
        first = key.start_mark.line
        edits.append(_Edit(first, _last_line(value, lines), _block(lines[first], key, new)))
    return edits


def _apply(lines: list[str], edits: Iterable[_Edit]) -> None:
    for edit in sorted(edits, reverse=True):
        lines[edit.first : edit.last + 1] = edit.block


def _is_config_map(root: Node | None, namespace: str, name: str) -> bool:
    metadata = _child(root, "metadata")
    return (
        _text(_child(root, "kind")) == "ConfigMap"
        and _text(_child(metadata, "name")) == name
        and (_text(_child(metadata, "namespace")) or "default") == namespace
    )


def _text(node: Node | None) -> str:
    return str(node.value) if isinstance(node, ScalarNode) else ""


def _child(node: Node | None, key: str) -> Node | None:
    return _entry(node, key)[1]


def _entry(node: Node | None, key: str) -> tuple[Node | None, Node | None]:
    if isinstance(node, MappingNode):
        for name, value in node.value:
            if isinstance(name, ScalarNode) and name.value == key:
                return name, value
    return None, None


def _last_line(value: ScalarNode, lines: list[str]) -> int:
    """Return the last line of *value*, the one of a block's text without the blank lines and comments behind it."""
    if value.style not in {"|", ">"}:
        return int(value.end_mark.line)
    first = value.start_mark.line
    end = min(len(lines), value.end_mark.line + (value.end_mark.column > 0))
    inner = [line for line in lines[first + 1 : end] if line.strip()]
    indent = len(inner[0]) - len(inner[0].lstrip(" ")) if inner else 0
    last = first
    for number in range(first + 1, end):
        line = lines[number]
        if line.strip() and len(line) - len(line.lstrip(" ")) >= indent:
            last = number
    return last


def _block(line: str, key: Node, new: str) -> list[str]:
    column = key.start_mark.column
    if not new:
        return [f'{line[:column]}expected: ""']
    # A text whose first line is indented has to say by how much the block is.
    hint = str(INDENT) if new.startswith((" ", "\n")) else ""
    inner = " " * (column + INDENT)
    return [f"{line[:column]}expected: |{hint}", *(f"{inner}{one}" if one else "" for one in new.splitlines())]
