"""YAML scalars as plain values, and descriptions of nodes for messages."""

import math

from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from haptic_trio.errors import HapticError

_PREFIX = "tag:yaml.org,2002:"
_TEXT_TAGS = frozenset({"str", "timestamp"})

Scalar = str | int | float | bool | None


class UnreadableScalarError(HapticError):
    """The scalar stands for no plain value; trying again is futile."""

    def __init__(self, message: str, hint: str) -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} ({hint})")


def tag_of(node: Node) -> str:
    """Return the short tag of *node*, such as `int`; foreign tags come back whole."""
    tag: str = node.tag
    return tag.removeprefix(_PREFIX)


def read_scalar(node: ScalarNode) -> Scalar:
    """Return the value of *node* as JSON knows it; raises `UnreadableScalarError`.

    Dates and numbers in base 60 stay text: nobody who writes `22:22` means 1342.
    """
    tag = tag_of(node)
    text: str = node.value
    if tag in _TEXT_TAGS or (tag == "int" and ":" in text) or (tag == "float" and ":" in text):
        return text
    if tag not in {"null", "bool", "int", "float"}:
        raise UnreadableScalarError(f"the tag {node.tag!r} is not supported", "remove it, or put the text in quotes")
    if tag == "null":
        return None
    # A fresh constructor: it gathers state only for collections, which never reach it.
    constructor = SafeConstructor()
    try:
        if tag == "bool":
            return bool(constructor.construct_yaml_bool(node))
        if tag == "int":
            return int(constructor.construct_yaml_int(node))
        number = float(constructor.construct_yaml_float(node))
    except (ValueError, KeyError, IndexError, OverflowError) as exc:
        raise UnreadableScalarError(f"{shorten(text)} is no value of type {tag}", "put text in quotes") from exc
    if not math.isfinite(number):
        raise UnreadableScalarError("infinite and undefined numbers are not supported", "put text in quotes")
    return number


def describe_node(node: Node) -> str:
    """Return words for what *node* is, such as `the number 5`."""
    if isinstance(node, MappingNode):
        return "a mapping"
    if isinstance(node, SequenceNode):
        return "a list"
    text: str = node.value
    match tag_of(node):
        case "null":
            return "nothing"
        case "bool":
            return f"the truth value {shorten(text)}"
        case "int" | "float":
            return f"the number {shorten(text)}"
        case _:
            return f"the text {shorten(repr(text))}"


def shorten(text: str) -> str:
    """Return *text*, cut to what fits into a sentence."""
    return text if len(text) <= 40 else f"{text[:37]}..."
