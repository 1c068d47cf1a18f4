"""The tree of a regular expression: sets of bytes, sequences, alternatives, repetitions and assertions.

Sequences and alternatives are built by functions that normalise them.
Alternatives share what they begin with, so that `iPhone|iPad` becomes
`iP(?:hone|ad)`: which of them matches is then decided without backtracking.
"""

from collections.abc import Iterable
from typing import Final, TypeAlias

import msgspec

ALL_BYTES: Final = (1 << 256) - 1
BEGIN: Final = r"\A"
END: Final = r"\z"
WORD: Final = r"\b"
NOT_WORD: Final = r"\B"


class ByteSet(msgspec.Struct, frozen=True):
    """One byte out of a set: bit *n* of the mask stands for byte *n*."""

    mask: int


class Assertion(msgspec.Struct, frozen=True):
    """A condition on a position in the text."""

    kind: str


class Sequence(msgspec.Struct, frozen=True):
    """Nodes that match one after the other; without items it matches the empty text."""

    items: tuple["Node", ...] = ()


class Alternatives(msgspec.Struct, frozen=True):
    """Nodes of which one matches."""

    options: tuple["Node", ...]


class Repeat(msgspec.Struct, frozen=True):
    """A node that matches *low* to *high* times; without *high* any number of times from *low*."""

    body: "Node"
    low: int
    high: int | None
    is_lazy: bool = False


Node: TypeAlias = ByteSet | Assertion | Sequence | Alternatives | Repeat


def mask_of(numbers: Iterable[int]) -> int:
    """Return the mask of the set of these bytes."""
    mask = 0
    for number in numbers:
        mask |= 1 << number
    return mask


def sequence(items: Iterable[Node]) -> Node:
    """Return the sequence of *items*; inner sequences become part of it."""
    flat: list[Node] = []
    for item in items:
        if isinstance(item, Sequence):
            flat.extend(item.items)
        else:
            flat.append(item)
    return flat[0] if len(flat) == 1 else Sequence(tuple(flat))


def alternatives(options: Iterable[Node]) -> Node:
    """Return the node that matches what one of *options* does.

    What several of them begin with is matched once. Sets of single bytes
    become one set, unless they overlap: overlapping options stay apart, since
    their repetition is ambiguous, and the analysis rejects it.
    """
    groups: dict[Node | None, list[Node]] = {}
    for option in options:
        items = option.items if isinstance(option, Sequence) else (option,)
        groups.setdefault(items[0] if items else None, []).append(Sequence(items[1:]))
    found: list[Node] = []
    for head, tails in groups.items():
        if head is None:
            found += [Sequence()] * len(tails)
        elif len(tails) == 1:
            found.append(sequence((head, *tails)))
        else:
            found.append(sequence((head, alternatives(tails))))
    merged = _merged_sets(found)
    return merged[0] if len(merged) == 1 else Alternatives(tuple(merged))


def _merged_sets(options: list[Node]) -> list[Node]:
    sets = [option.mask for option in options if isinstance(option, ByteSet)]
    union = 0
    for mask in sets:
        if union & mask:
            return options
        union |= mask
    if len(sets) < 2:
        return options
    return [ByteSet(union), *(option for option in options if not isinstance(option, ByteSet))]


def shortest(node: Node) -> int:
    """Return the length of the shortest text that *node* can match."""
    match node:
        case ByteSet():
            return 1
        case Assertion():
            return 0
        case Sequence(items):
            return sum(map(shortest, items))
        case Alternatives(options):
            return min(map(shortest, options))
        case Repeat(body, low, _, _):
            return low * shortest(body)


def fixed_length(node: Node) -> int | None:
    """Return the length of the texts that *node* matches if all of them have the same; None for an assertion."""
    match node:
        case ByteSet():
            return 1
        case Assertion():
            return None
        case Sequence(items):
            return _sum(map(fixed_length, items))
        case Alternatives(options):
            lengths = set(map(fixed_length, options))
            return lengths.pop() if len(lengths) == 1 else None
        case Repeat(body, low, high, _):
            length = fixed_length(body)
            return None if length is None or low != high else low * length


def _sum(lengths: Iterable[int | None]) -> int | None:
    total = 0
    for length in lengths:
        if length is None:
            return None
        total += length
    return total


def has_condition(node: Node) -> bool:
    """Whether *node* holds an assertion that can fail within the text."""
    match node:
        case ByteSet():
            return False
        case Assertion(kind):
            return kind != END
        case Sequence(items):
            return any(map(has_condition, items))
        case Alternatives(options):
            return any(map(has_condition, options))
        case Repeat(body, _, _, _):
            return has_condition(body)
