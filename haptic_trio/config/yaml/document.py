"""YAML document as nodes with line numbers, read with limits on depth and expansion.

PyYAML's composer recurses in C and overflows the stack on deep nesting, which
ends the process; and aliases can make a small text expand without bound or
contain itself. So nodes are composed by the composer in Python, with a limit,
over the events of the fast parser, and what aliases expand to is counted.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import msgspec
from yaml import CSafeLoader
from yaml.composer import Composer
from yaml.error import Mark, MarkedYAMLError, YAMLError
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode
from yaml.reader import ReaderError

from haptic_trio.config.yaml.errors import ConfigInvalidError
from haptic_trio.errors import Problem
from haptic_trio.templating.credentials import without_credentials_in_yaml

MAX_DEPTH = 64
MAX_NODES = 200_000

MAP_TAG = "tag:yaml.org,2002:map"
STR_TAG = "tag:yaml.org,2002:str"
SEQ_TAG = "tag:yaml.org,2002:seq"
MERGE_TAG = "tag:yaml.org,2002:merge"

_PLAIN_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_LAST_STEP = re.compile(r'(?:(?:^|\.)[A-Za-z_][A-Za-z0-9_-]*|\[[0-9]+\]|\["(?:[^"\\]|\\.)*"\])$')


def key_path(path: str, key: str) -> str:
    """Return the path of *key* within the mapping at *path*; keys that are no plain word are quoted."""
    if not _PLAIN_KEY.fullmatch(key):
        return f"{path}[{msgspec.json.encode(key).decode()}]"
    return f"{path}.{key}" if path else key


def item_path(path: str, index: int) -> str:
    """Return the path of item *index* within the list at *path*."""
    return f"{path}[{index}]"


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

    @cached_property
    def _shown_lines(self) -> list[str]:
        return without_credentials_in_yaml(self._text).splitlines()

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
        root = _Loader(text).get_single_node()
    except (YAMLError, UnicodeEncodeError) as exc:
        raise ConfigInvalidError([_syntax_problem(exc, source)]) from exc
    document = Document(text, source, root)
    if root is not None:
        _check_expansion(document, root)
    return document


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


class _Loader(Composer, CSafeLoader):
    """The composer in Python over the events of libyaml."""

    def __init__(self, text: str) -> None:
        CSafeLoader.__init__(self, text)
        Composer.__init__(self)
        self._depth = 0

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            # Two classes of marks, one of the fast parser, with the same fields.
            mark: Any = getattr(self.peek_event(), "start_mark", None)
            raise MarkedYAMLError(problem=f"nested deeper than {MAX_DEPTH} levels", problem_mark=mark)
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _check_expansion(document: Document, root: Node) -> None:
    sizes: dict[int, tuple[int, int]] = {}
    open_nodes: set[int] = set()

    def refuse(node: Node, message: str) -> ConfigInvalidError:
        return ConfigInvalidError([document.problem(node, "", message, "write the parts out instead of using aliases")])

    # An alias refers backwards, to a node that has been measured, so the
    # recursion is as deep as the text and not as its expansion.
    def measure(node: Node) -> tuple[int, int]:
        if id(node) in sizes:
            return sizes[id(node)]
        if id(node) in open_nodes:
            raise refuse(node, "an alias refers to a part that contains it")
        open_nodes.add(id(node))
        children: list[Node] = []
        if isinstance(node, SequenceNode):
            children = node.value
        elif isinstance(node, MappingNode):
            children = [child for pair in node.value for child in pair]
        measured = [measure(child) for child in children]
        size = 1 + sum(size for size, _ in measured)
        depth = 1 + max((depth for _, depth in measured), default=0)
        open_nodes.discard(id(node))
        if size > MAX_NODES:
            raise refuse(node, f"more than {MAX_NODES} values")
        if depth > MAX_DEPTH:
            raise refuse(node, f"nested deeper than {MAX_DEPTH} levels")
        sizes[id(node)] = size, depth
        return size, depth

    measure(root)


def _syntax_problem(error: Exception, source: str) -> Problem:
    if isinstance(error, MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        message = ", ".join(part for part in (error.context, error.problem) if part)
        return Problem(
            message=f"not valid YAML: {message}",
            source=source,
            line=mark.line + 1 if mark else 0,
            column=mark.column + 1 if mark else 0,
            hint=_syntax_hint(message),
        )
    if isinstance(error, ReaderError | UnicodeEncodeError):
        return Problem(message="the text holds a character that YAML does not allow", source=source)
    return Problem(message=f"not valid YAML: {error}", source=source)


def _syntax_hint(message: str) -> str:
    if "\\t" in message or "'\t'" in message:
        return "indent with spaces, not with tabs"
    if "cannot start any token" in message:
        return "indent with spaces, not with tabs; a text that begins with @, ` or % goes in quotes"
    if "single document" in message:
        return "remove the `---` between the documents"
    if "mapping values are not allowed" in message:
        return "put text that contains `: ` in quotes, or check the indentation"
    return ""
