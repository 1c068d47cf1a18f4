"""YAML scalars as plain values, and descriptions of nodes for messages.

There are two sets of rules. `resolve_plain` is for manifests, where a scalar
means what it means to `kubectl`. `read_scalar` is for configurations, where it
has the type that YAML 1.1 gives it, as far as JSON has that type.
"""

import math
import re
from typing import Final

from yaml.constructor import SafeConstructor
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from haptic_trio.errors import HapticError

TAG: Final = "tag:yaml.org,2002:"
"""The prefix of the tags of YAML's own types."""

_TEXT_TAGS: Final = frozenset({"str", "timestamp"})
_HINTED: Final = frozenset("+-.0123456789~yYnNtTfFoO")
_DIGITS: Final = frozenset("+-.0123456789")
_CONSTANTS: Final[dict[str, bool | None]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("~", "null", "Null", "NULL"), None),
}
_INT: Final = re.compile(r"[-+]?(?:0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)")
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")

Scalar = str | int | float | bool | None


class UnreadableScalarError(HapticError):
    """The scalar has no plain value; trying again helps only after an edit."""

    def __init__(self, message: str, hint: str) -> None:
        self.message = message
        self.hint = hint
        super().__init__(f"{message} ({hint})")


def tag_of(node: Node) -> str:
    """Return the short tag of *node*, such as `int`; foreign tags come back whole."""
    tag: str = node.tag
    return tag.removeprefix(TAG)


def read_scalar(node: ScalarNode) -> Scalar:
    """Return the value of *node* as JSON knows it; raises `UnreadableScalarError`.

    Dates and numbers in base 60 stay text: `22:22` is not meant as 1342.
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
        raise UnreadableScalarError(
            f"{shorten(text)} is not a valid value of type {tag}", "put text in quotes"
        ) from exc
    if not math.isfinite(number):
        raise UnreadableScalarError("infinite and undefined numbers are not supported", "put text in quotes")
    return number


def resolve_plain(text: str) -> str | int | float | bool | None:
    """Return what the unquoted scalar *text* means. Infinity and NaN, which JSON lacks, stay text."""
    if not text:
        return None
    if text[0] not in _HINTED:
        return text
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    return _number(text) if text[0] in _DIGITS else text


def _number(text: str) -> str | int | float:
    plain = text.replace("_", "")
    if _INT.fullmatch(plain) and len(plain) <= 70:
        sign, digits = (-1, plain[1:]) if plain[0] == "-" else (1, plain.lstrip("+"))
        prefixed = len(digits) > 1 and digits[0] == "0"
        if prefixed and digits[1] in "01234567":
            digits = f"0o{digits}"
        value = sign * int(digits, 0 if prefixed else 10)
        if -(2**63) <= value < 2**64:
            return value
    if not _FLOAT.fullmatch(plain):
        return text
    number = float(plain)
    if not math.isfinite(number):
        return text
    return int(number) if number.is_integer() and abs(number) < 2**53 else number


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
