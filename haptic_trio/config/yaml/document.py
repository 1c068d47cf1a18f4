"""YAML document of a configuration: nodes, the paths to them, and problems at their lines."""

import re
from collections.abc import Iterator
from functools import cached_property

from yaml.error import Mark
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.redaction.documents import without_credentials_in_yaml
from haptic_trio.yaml.reader import DocumentError, lines_of, read_nodes

MAP_TAG = "tag:yaml.org,2002:map"
STR_TAG = "tag:yaml.org,2002:str"
SEQ_TAG = "tag:yaml.org,2002:seq"
MERGE_TAG = "tag:yaml.org,2002:merge"

_LAST_STEP = re.compile(r'(?:(?:^|\.)[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]+\]|\["(?:[^"\\]|\\.)*"\])$')


def enclosing_paths(path: str) -> Iterator[str]:
    """Yield *path*, then the paths of what encloses it, innermost first, without the root."""
    while path:
        yield path
        shorter = _LAST_STEP.sub("", path)
        path = shorter if shorter != path else ""


class Document:
    """A parsed text; `root` is None when the text holds nothing."""

    def __init__(self, text: str, source: str, root: Node | None) -> None:
        self.source = source
        self.root = root
        self._text = text

    @property
    def is_empty(self) -> bool:
        """Whether the text holds nothing but blanks, comments and null."""
        return self.root is None or self.root.tag == "tag:yaml.org,2002:null"

    @cached_property
    def _shown_lines(self) -> list[str]:
        return lines_of(without_credentials_in_yaml(self._text))

    def problem(self, node: Node, path: str, message: str, hint: str = "") -> Problem:
        """Return a problem at the place of *node*."""
        mark: Mark = node.start_mark
        lines = self._shown_lines
        excerpt = lines[mark.line].rstrip() if mark.line < len(lines) else ""
        return Problem(
            message=message,
            source=self.source,
            line=mark.line + 1,
            column=mark.column + 1,
            path=path,
            hint=hint,
            excerpt=excerpt,
        )


def parse_document(text: str, *, source: str) -> Document:
    """Return the only document of *text*; raises `ConfigInvalidError` with the first syntax error."""
    try:
        return Document(text, source, read_nodes(text))
    except DocumentError as exc:
        problem = Problem(
            message=f"not valid YAML: {exc}", source=source, line=exc.line, column=exc.column, hint=exc.hint
        )
        raise ConfigInvalidError([problem]) from exc


def pairs_of(node: MappingNode) -> list[tuple[Node, Node]]:
    """Return keys and values of *node*, merge keys (`<<`) resolved: the mapping's own keys win."""
    own = [(key, value) for key, value in node.value if key.tag != MERGE_TAG]
    taken = {key.value for key, _ in own if isinstance(key, ScalarNode)}
    merged = []
    for key, value in node.value:
        if key.tag != MERGE_TAG:
            continue
        for source in value.value if isinstance(value, SequenceNode) else [value]:
            if not isinstance(source, MappingNode):
                continue
            for inner_key, inner_value in pairs_of(source):
                if isinstance(inner_key, ScalarNode) and inner_key.value not in taken:
                    taken.add(inner_key.value)
                    merged.append((inner_key, inner_value))
    return own + merged
