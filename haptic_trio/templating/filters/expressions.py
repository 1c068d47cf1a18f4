"""Filter for regular expressions of annotations, which Lua matches with a short text.

An expression is parsed, and the cost of matching it is bounded: see
`haptic_trio.gateway.expressions`. What is not accepted raises `EmitError`.
"""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from haptic_trio.gateway.expressions.check import expression
from haptic_trio.gateway.expressions.nodes import Alternatives
from haptic_trio.gateway.expressions.syntax import ExpressionError, parse
from haptic_trio.templating.filters.emit import EmitError, describe_chars, number_text
from haptic_trio.templating.values.text import FORBIDDEN, Emitted

_LONGEST: Final = 512
"""Bytes of the longest text: it bounds the work of a request."""


def search_pattern(value: Any) -> Emitted:
    r"""A field of a map: the longest text in bytes, `:`, and an expression that a text contains; percent-encoded.

    Lua matches it from the beginning of the text, within `\A(?s:` and `)`.
    """
    text = str(value) if isinstance(value, str) else number_text(value, "search_pattern")
    if not text or FORBIDDEN.search(text):
        problem = f"contains {describe_chars(text, FORBIDDEN)}" if text else "is empty"
        raise EmitError(f"search_pattern: the value {problem}")
    try:
        begins = text.startswith(("^", ".*")) and not isinstance(parse(text), Alternatives)
        found = expression(text if begins else f".*(?:{text})")
    except ExpressionError as exc:
        problem = str(exc).rpartition('" ')[2]
        raise EmitError(f"search_pattern: the value {problem}", "anchor it with ^ and $") from None
    return Emitted(f"{min(found.longest, _LONGEST)}:{quote(found.pattern, safe='')}")


EXPRESSIONS: Final[dict[str, Callable[..., Any]]] = {"search_pattern": search_pattern}
