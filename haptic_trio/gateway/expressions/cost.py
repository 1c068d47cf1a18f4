"""Bounds what a backtracking matcher does with an expression, for the worst text of each length.

The expression becomes an automaton with a position for each of its sets (a
Glushkov automaton), whose transitions are counted: one that two ways of
matching share counts twice. A matcher that backtracks walks the tree of all
paths that a text allows. The bound of that tree's size lets an adversary
choose the next byte for each path by itself, so that no text does worse.

If a cycle can match one text in two ways, the paths double with each round:
the expression is rejected. Otherwise each chain of cycles costs a polynomial,
which is kept as its coefficients in the basis of binomials, in which summing
up is shifting.
"""

from collections.abc import Iterable, Sequence
from itertools import pairwise, zip_longest
from math import comb
from typing import Final, TypeAlias

from haptic_trio.gateway.expressions.graphs import is_ambiguous, strong_components
from haptic_trio.gateway.expressions.nodes import (
    ALL_BYTES,
    Alternatives,
    Assertion,
    ByteSet,
    Node,
    Repeat,
    has_condition,
    shortest,
)
from haptic_trio.gateway.expressions.nodes import Sequence as SequenceNode
from haptic_trio.gateway.expressions.syntax import ExpressionError

MOST_POSITIONS: Final = 500
MOST_TRANSITIONS: Final = 5_000
_MOST_COPIES: Final = 64
"""A set that is repeated more often counts as repeated without limit."""
_MOST_DEGREE: Final = 5
_STACK_WORDS: Final = 3_000
"""PCRE's compiled code has a stack of 4,096 words (32 KiB); beyond it, a text that should match does not."""

Polynomial: TypeAlias = list[int]
"""Coefficients in the basis of binomials: the value for n is the sum of `c[k] * comb(n, k)`."""
Ways: TypeAlias = dict[int, int]
"""Positions, and in how many ways each is reached."""


class Scan:
    """`.*` and a body of fixed length that another `.*` follows: the first place of the body decides."""

    def __init__(self, least: int, body: Node, length: int) -> None:
        self.least = least
        """Minimum number of characters before the body."""
        self.body = body
        self.length = length


class Part:
    """Properties of a part of an expression that its neighbours depend on."""

    __slots__ = ("empty", "first", "last")

    def __init__(self, empty: int, first: Ways, last: Ways) -> None:
        self.empty = empty
        """In how many ways it matches the empty text."""
        self.first = first
        self.last = last


class Automaton:
    """The positions of an expression, and which may follow which."""

    def __init__(self, items: Sequence[Node | Scan]) -> None:
        self.masks: list[int] = []
        self.costs: list[int] = []
        """Cost of a position beyond its own step."""
        self.follow: list[Ways] = []
        self.scanning: set[int] = set()
        """Positions that are left once: nothing goes back to them."""
        self.guarded: set[int] = set()
        """Positions behind which an assertion may fail."""
        self._transitions = 0
        whole = self._chain([self._scan(item) if isinstance(item, Scan) else self._part(item) for item in items], items)
        self.first, self.last = whole.first, whole.last

    def _position(self, mask: int, cost: int = 0) -> int:
        if len(self.masks) >= MOST_POSITIONS:
            raise ExpressionError(f"has more than {MOST_POSITIONS} characters and sets; use smaller counts")
        self.masks.append(mask)
        self.costs.append(cost)
        self.follow.append({})
        return len(self.masks) - 1

    def _connect(self, last: Ways, first: Ways) -> None:
        self._transitions += len(last) * len(first)
        if self._transitions > MOST_TRANSITIONS:
            raise ExpressionError("has too many optional parts next to each other; use fewer")
        for position, ways in last.items():
            follow = self.follow[position]
            for after, others in first.items():
                follow[after] = follow.get(after, 0) + ways * others

    def _scan(self, scan: Scan) -> Part:
        # At each place the body may be tried in all ways there are, though only the first that matches counts.
        position = self._position(ALL_BYTES, value_of(bound_of(Automaton([scan.body])), scan.length))
        self.scanning.add(position)
        self.follow[position][position] = 1
        return Part(0, {position: 1}, {position: 1})

    def _part(self, node: Node) -> Part:
        match node:
            case ByteSet(mask):
                position = self._position(mask)
                return Part(0, {position: 1}, {position: 1})
            case Assertion():
                return Part(1, {}, {})
            case SequenceNode(items):
                return self._chain([self._part(item) for item in items], items)
            case Alternatives(options):
                parts = [self._part(option) for option in options]
                return Part(
                    sum(part.empty for part in parts),
                    _united(part.first for part in parts),
                    _united(part.last for part in parts),
                )
            case Repeat():
                return self._repeat(node)

    def _chain(self, parts: Sequence[Part], nodes: Sequence[Node | Scan]) -> Part:
        whole = Part(1, {}, {})
        for part, node in zip(parts, nodes, strict=True):
            if not isinstance(node, Scan) and has_condition(node):
                self.guarded.update(whole.last)
            self._connect(whole.last, part.first)
            whole.first = _united((whole.first, _times(part.first, whole.empty)))
            whole.last = _united((part.last, _times(whole.last, part.empty)))
            whole.empty *= part.empty
        return whole

    def _repeat(self, node: Repeat) -> Part:
        low, high = node.low, node.high
        if isinstance(node.body, ByteSet) and (low if high is None else high) > _MOST_COPIES:
            low, high = min(low, 1), None
        if (low, high) == (0, 1):
            once = self._part(node.body)
            return Part(1 + once.empty, once.first, once.last)
        copies = [self._part(node.body) for _ in range(high or max(low, 1))]
        for one, after in pairwise(copies):
            self._connect(one.last, after.first)
        if high is None:
            self._connect(copies[-1].last, copies[-1].first)
        last = _united(copy.last for copy in copies[max(low, 1) - 1 :])
        return Part(0 if low else 1, copies[0].first, last)

    def always_succeeds(self, position: int) -> bool:
        """Whether the matcher is done, with success, once it has come to *position*: a `.*` at the end."""
        return (
            self.masks[position] == ALL_BYTES
            and self.follow[position] == {position: 1}
            and position in self.last
            and position not in self.guarded
            and position not in self.scanning
        )


def bound_of(automaton: Automaton) -> Polynomial:
    """Return a bound of the steps for a text of *n* bytes; raises `ExpressionError` if it is exponential."""
    found: list[Polynomial] = [[]] * len(automaton.masks)
    done = {position for position in range(len(found)) if automaton.always_succeeds(position)}
    for position in done:
        found[position] = [2, 1]
    for members in strong_components([list(ways) for ways in automaton.follow]):
        if members[0] in done:
            continue
        steps = _bound_of_component(members, automaton, found)
        if len(steps) > _MOST_DEGREE + 1:
            raise ExpressionError("has too many repetitions that can match the same characters; use fewer of them")
        for position in members:
            found[position] = steps
    return _added([1 + sum(automaton.first.values())], _worst(automaton.first, automaton.masks, found))


def _bound_of_component(members: Sequence[int], automaton: Automaton, found: Sequence[Polynomial]) -> Polynomial:
    """Return the bound for each of *members*, which can be reached from each other; *found* has it for what follows."""
    inside = set(members)
    masks = automaton.masks
    each_step: Polynomial = []
    at_the_end: Polynomial = []
    is_cycle = is_unique = True
    for position in members:
        ways = automaton.follow[position]
        staying = [after for after in ways if after in inside]
        leaving = {after: count for after, count in ways.items() if after not in inside}
        is_cycle = bool(staying)
        is_unique = is_unique and _is_unique(staying, ways, masks)
        kept = _union(masks[after] for after in staying)
        cost = [1 + sum(ways.values()) + automaton.costs[position]]
        if position not in automaton.scanning:
            # A byte with which a path stays, while others leave: it may come again and again.
            cost = _added(cost, _worst(leaving, masks, found, within=kept))
        each_step = _largest(each_step, cost)
        at_the_end = _largest(at_the_end, _worst(leaving, masks, found))
    if not is_cycle:
        return _added(each_step, at_the_end)
    if is_unique:
        return _added(_summed(each_step), at_the_end)
    if is_ambiguous(members, automaton.follow, masks):
        raise ExpressionError(
            "repeats a group that can match the same text in more than one way (exponential time); "
            "use one repetition instead of nested ones, and alternatives that begin with different characters"
        )
    # A text leads from one member to another in one way at most, so there is one path to each.
    return [len(members) * steps for steps in _summed(_added(each_step, at_the_end))]


def value_of(bound: Polynomial, length: int) -> int:
    """Return the value of *bound* for texts of *length* bytes."""
    return sum(coefficient * comb(length, degree) for degree, coefficient in enumerate(bound))


def stack_length(node: Node) -> int | None:
    """Return the length of text up to which PCRE's stack is large enough; None if it is for every text."""
    fixed, rate = _stack(node)
    if fixed > _STACK_WORDS:
        return 0
    return int((_STACK_WORDS - fixed) / rate) if rate else None


def _stack(node: Node) -> tuple[float, float]:
    """Return how many words of stack *node* takes at most, and how many more for each byte of text."""
    match node:
        case SequenceNode(items):
            parts = [_stack(item) for item in items]
            return sum(fixed for fixed, _ in parts), max((rate for _, rate in parts), default=0)
        case Alternatives(options):
            parts = [_stack(option) for option in options]
            return 2 + max(fixed for fixed, _ in parts), max(rate for _, rate in parts)
        case Repeat(body, low, high, _):
            return _stack_of_repeat(body, low, high)
        case _:
            return 0, 0


def _stack_of_repeat(body: Node, low: int, high: int | None) -> tuple[float, float]:
    fixed, rate = _stack(body)
    if isinstance(body, ByteSet) or high == 1:
        return 2 + fixed, rate
    if high is None:
        return 3 + low * (1 + fixed), rate + (1 + fixed) / max(shortest(body), 1)
    return 3 + high * (1 + fixed), rate


def _is_unique(staying: Iterable[int], ways: Ways, masks: Sequence[int]) -> bool:
    """Whether the next byte decides which of the positions *staying* is next."""
    seen = 0
    for after in staying:
        if ways[after] > 1 or seen & masks[after]:
            return False
        seen |= masks[after]
    return True


def _worst(ways: Ways, masks: Sequence[int], found: Sequence[Polynomial], *, within: int = ALL_BYTES) -> Polynomial:
    """Return what the positions *ways* cost together, for the byte of the set *within* for which they cost most."""
    atoms: list[tuple[int, Polynomial]] = []
    for position, count in ways.items():
        mask = masks[position] & within
        cost = [count * coefficient for coefficient in found[position]]
        split: list[tuple[int, Polynomial]] = []
        for other, total in atoms:
            if shared := other & mask:
                split.append((shared, _added(total, cost)))
                mask &= ~shared
            if rest := other & ~shared:
                split.append((rest, total))
        if mask:
            split.append((mask, cost))
        atoms = split
    worst: Polynomial = []
    for _, total in atoms:
        worst = _largest(worst, total)
    return worst


def _union(masks: Iterable[int]) -> int:
    union = 0
    for mask in masks:
        union |= mask
    return union


def _united(many: Iterable[Ways]) -> Ways:
    found: Ways = {}
    for ways in many:
        for position, count in ways.items():
            found[position] = found.get(position, 0) + count
    return found


def _times(ways: Ways, factor: int) -> Ways:
    return {position: count * factor for position, count in ways.items()} if factor else {}


def _added(one: Polynomial, other: Polynomial) -> Polynomial:
    return [a + b for a, b in zip_longest(one, other, fillvalue=0)]


def _largest(one: Polynomial, other: Polynomial) -> Polynomial:
    return [max(a, b) for a, b in zip_longest(one, other, fillvalue=0)]


def _summed(one: Polynomial) -> Polynomial:
    """Return the sum of the values of *one* for 0 to n."""
    return _added(one, [0, *one])
