"""Lines of fields in YAML documents."""

import re
from typing import Final

from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

_STEP: Final = re.compile(r'\.?(?P<name>[^.\[\]"]+)|\["(?P<key>[^"]*)"\]|\[(?P<index>\d+)\]')


def line_of(node: Node, path: str) -> int:
    """Return the line of the field *path* within *node*, from 1; that of its nearest existing parent."""
    line = int(node.start_mark.line)
    for step in _STEP.finditer(path):
        name = step["name"] if step["name"] is not None else step["key"]
        if name is not None and isinstance(node, MappingNode):
            pairs = [(key, value) for key, value in node.value if isinstance(key, ScalarNode) and key.value == name]
            if not pairs:
                break
            line, node = int(pairs[0][0].start_mark.line), pairs[0][1]
        elif step["index"] is not None and isinstance(node, SequenceNode) and int(step["index"]) < len(node.value):
            node = node.value[int(step["index"])]
            line = int(node.start_mark.line)
        else:
            break
    return line + 1
