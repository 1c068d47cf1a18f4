"""Regular expressions of routes: which ones are accepted, and what HAProxy compiles for them.

HAProxy matches with PCRE, which backtracks, in a thread that serves the
requests of all tenants. An expression is therefore parsed, the cost of
matching it is bounded, and HAProxy compiles one that is written from the
parsed tree: the expression that runs is the one that was analysed. Captures
are left out, since nothing refers to them.
"""

from functools import lru_cache
from typing import Final

import msgspec

from haptic_trio.gateway.expressions.cost import Automaton, Polynomial, Scan, bound_of, stack_length, value_of
from haptic_trio.gateway.expressions.nodes import (
    ALL_BYTES,
    Alternatives,
    Assertion,
    ByteSet,
    Node,
    Repeat,
    Sequence,
    fixed_length,
)
from haptic_trio.gateway.expressions.syntax import MOST_CHARACTERS, ExpressionError, parse

MOST_STEPS: Final = 2_000_000
"""Maximum number of PCRE steps for one text: a few milliseconds."""
LONGEST_TEXT: Final = 8_192
"""Maximum length in bytes of a text that an expression is matched with."""
SHORTEST_LIMIT: Final = 256
"""An expression that cannot be matched with texts of this length is rejected."""
_SHOWN: Final = 80
_UNBOUNDED_ANY: Final = ByteSet(ALL_BYTES)


class Expression(msgspec.Struct, frozen=True):
    """A regular expression for a whole text."""

    pattern: str
    r"""As HAProxy compiles it, within `\A(?s:` and `)\z`."""
    longest: int
    """Bytes of the longest text that it may be matched with."""
    bound: tuple[int, ...]
    """Upper bound of the steps for a text of n bytes: the sum of `bound[k] * comb(n, k)`."""


def expression(text: str) -> Expression:
    """Return the expression *text*, or raise `ExpressionError` if it is not accepted."""
    # The cache holds the texts: an annotation may have 250 kB.
    found = _analysed(text) if len(text) <= MOST_CHARACTERS else _analyse(text)
    if isinstance(found, str):
        shown = text if len(text) <= _SHOWN else text[:_SHOWN] + "…"
        raise ExpressionError(f'the regular expression "{shown}" {found}')
    return found


def _analyse(text: str) -> Expression | str:
    """Return the expression, or its error."""
    try:
        node = parse(text)
        parts = _scans(node)
        bound = bound_of(Automaton(parts))
        longest = _longest(bound, stack_length(node))
    except ExpressionError as error:
        return str(error)
    pattern = "".join(_scan_text(part) if isinstance(part, Scan) else _text(part, is_item=True) for part in parts)
    return Expression(pattern, longest, tuple(bound))


_analysed: Final = lru_cache(maxsize=8192)(_analyse)


def _longest(bound: Polynomial, stack: int | None) -> int:
    low, high = 0, LONGEST_TEXT if stack is None else min(stack, LONGEST_TEXT)
    if high < SHORTEST_LIMIT:
        raise ExpressionError("repeats groups within groups too deeply; use fewer groups, or sets of characters")
    while low < high:
        middle = (low + high + 1) // 2
        if value_of(bound, middle) <= MOST_STEPS:
            low = middle
        else:
            high = middle - 1
    if low < SHORTEST_LIMIT:
        raise ExpressionError(
            f"can take more than {MOST_STEPS:,} steps for a text of {SHORTEST_LIMIT} characters; "
            "use fewer repetitions that can match the same characters, or separate them by others"
        )
    return low


def _scans(node: Node) -> list[Node | Scan]:
    """Return the parts of *node*, with scans instead of `.*` where a scan finds the same."""
    if not isinstance(node, Sequence):
        return [node]
    found: list[Node | Scan] = []
    items = list(node.items)
    while items:
        item = items.pop(0)
        inner: list[Node] = []
        while _is_any(item) and inner != items and not _is_any(items[len(inner)]):
            inner.append(items[len(inner)])
        body = Sequence(tuple(inner))
        length = fixed_length(body) if inner and len(inner) < len(items) else None
        if length and isinstance(item, Repeat):
            del items[: len(inner)]
            found.append(Scan(item.low, body, length))
        else:
            found.append(item)
    return found


def _is_any(node: Node) -> bool:
    return isinstance(node, Repeat) and node.body == _UNBOUNDED_ANY and node.high is None


def _scan_text(scan: Scan) -> str:
    return f"(?>.{_count(scan.least, None)}?{_text(scan.body, is_item=True)})"


def _text(node: Node, *, is_item: bool = False) -> str:
    """Return *node* as an expression; with *is_item* it may stand between others."""
    match node:
        case ByteSet(mask):
            return _set_text(mask)
        case Assertion(kind):
            return kind
        case Sequence(items):
            return "".join(_text(item, is_item=True) for item in items)
        case Alternatives(options):
            text = "|".join(map(_text, options))
            return f"(?:{text})" if is_item else text
        case Repeat(body, low, high, is_lazy):
            inner = _text(body) if isinstance(body, ByteSet) else f"(?:{_text(body)})"
            return inner + _count(low, high) + ("?" if is_lazy else "")


def _count(low: int, high: int | None) -> str:
    match low, high:
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case 0, 1:
            return "?"
        case _, None:
            return f"{{{low},}}"
        case _:
            return f"{{{low}}}" if low == high else f"{{{low},{high}}}"


@lru_cache(maxsize=1024)
def _set_text(mask: int) -> str:
    if mask == ALL_BYTES:
        return "."
    is_negated = mask.bit_count() > 128
    bytes_in = [byte for byte in range(256) if (mask >> byte & 1) != is_negated]
    if len(bytes_in) == 1 and not is_negated:
        return _byte_text(bytes_in[0])
    ranges: list[list[int]] = []
    for byte in bytes_in:
        if ranges and ranges[-1][1] == byte - 1:
            ranges[-1][1] = byte
        else:
            ranges.append([byte, byte])
    shown = (
        _byte_text(low) if low == high else _byte_text(low) + ("" if high == low + 1 else "-") + _byte_text(high)
        for low, high in ranges
    )
    return f"[{'^' if is_negated else ''}{''.join(shown)}]"


def _byte_text(byte: int) -> str:
    char = chr(byte)
    return char if char.isascii() and (char.isalnum() or char in "/_") else f"\\x{byte:02x}"
