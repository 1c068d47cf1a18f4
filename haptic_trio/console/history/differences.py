"""Differences of two versions of haproxy.cfg in chunks: only lines in chunks that they do not share are compared."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from difflib import Match, SequenceMatcher
from itertools import islice, takewhile
from operator import eq
from typing import Any, NamedTuple

from haptic_trio.chunked import Page, Paged, Piece, stretches
from haptic_trio.console.protocol import DiffLine
from haptic_trio.explain.site import hidden

MOST_LINES = 500
"""Maximum number of lines of a difference; more are counted only."""
MOST_DIFFERING = 2000
"""Differing lines on either side of a range, beyond which they are only counted."""
LONGEST = 1000
"""Characters of a line."""
MOST_STEPS = 2_000_000
"""Pairs of equal lines that the search for common lines of two versions visits, in about 0.1 s of CPU time."""


class Text(NamedTuple):
    """A version of haproxy.cfg."""

    paged: Paged[Piece]
    secrets: Mapping[Page[Piece], frozenset[int]]
    """Of each page: the pieces that derive from a Secret."""


class Line(NamedTuple):
    """A line, redacted if it derives from a Secret."""

    text: str
    made_by: str = ""


class Difference(NamedTuple):
    """Added and removed lines."""

    added: int
    removed: int
    lines: tuple[DiffLine, ...]
    """The first of them."""


def compare_texts(before: Text, after: Text) -> Difference:
    """Return the difference from *before* to *after*."""
    added, removed, lines = 0, 0, list[DiffLine]()
    budget = Budget()
    for old, new in _ranges(before.paged, after.paged):
        if (counts := _counts_if_very_many(_texts(before, old), _texts(after, new))) is not None:
            added, removed = added + counts[0], removed + counts[1]
            continue
        found = compare(_lines(before, old), _lines(after, new), _first(before, old), _first(after, new), budget=budget)
        added, removed = added + found.added, removed + found.removed
        lines += found.lines[: MOST_LINES - len(lines)]
    return Difference(added, removed, tuple(lines))


def _counts_if_very_many(before: list[str], after: list[str]) -> tuple[int, int] | None:
    """Return the numbers of added and removed lines if there are too many to show them; None otherwise."""
    head, tail = _common_ends(before, after)
    removed, added = len(before) - head - tail, len(after) - head - tail
    return (added, removed) if max(removed, added) > MOST_DIFFERING else None


def _common_ends(before: Sequence[str], after: Sequence[str]) -> tuple[int, int]:
    """Return how many lines both have in common at the beginning, and at the end."""
    head = sum(1 for _ in takewhile(bool, map(eq, before, after)))
    most = min(len(before), len(after)) - head
    return head, sum(1 for _ in takewhile(bool, map(eq, islice(reversed(before), most), reversed(after))))


class Budget:
    """Rest of `MOST_STEPS`: tenants decide how often a line is repeated, and the search takes cubic time for that."""

    def __init__(self) -> None:
        self.steps = MOST_STEPS


class _Matcher(SequenceMatcher[str]):
    """Search that takes all other lines for replaced ones when the budget is used up."""

    def __init__(self, before: list[str], after: list[str], budget: Budget) -> None:
        super().__init__(None, before, after, autojunk=False)
        self._before = before
        self._counts = Counter(after)
        self._budget = budget

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Return the longest run of common lines; an empty one without budget."""
        self._budget.steps -= sum(1 + self._counts[line] for line in self._before[alo:ahi])
        if self._budget.steps < 0:
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def compare(
    before: Sequence[Line], after: Sequence[Line], at: int = 1, to: int = 1, *, budget: Budget | None = None
) -> Difference:
    """Return the difference from *before*, whose first line has number *at*, to *after*, with number *to*."""
    head, tail = _common_ends([one.text for one in before], [one.text for one in after])
    old, new = before[head : len(before) - tail], after[head : len(after) - tail]
    if max(len(old), len(new)) > MOST_DIFFERING:
        # Too many lines for a line-by-line match.
        return Difference(len(new), len(old), ())
    lines: list[DiffLine] = []
    for i1, i2, j1, j2 in _edits([one.text for one in old], [one.text for one in new], budget or Budget()):
        lines += [_shown("-", at + head + number, old[number]) for number in range(i1, i2)]
        lines += [_shown("+", to + head + number, new[number]) for number in range(j1, j2)]
    removed = sum(line.sign == "-" for line in lines)
    return Difference(len(lines) - removed, removed, tuple(lines[:MOST_LINES]))


def _edits(before: list[str], after: list[str], budget: Budget) -> Iterator[tuple[int, int, int, int]]:
    """Yield the ranges of lines that differ, in order.

    Lines that occur once in both versions, such as headers of backends, are
    matched first; only the lines between two of them are searched. The search
    among lines that each backend repeats would take most of the time.
    """
    i1 = j1 = 0
    for i2, j2 in (*_anchors(before, after), (len(before), len(after))):
        old, new = before[i1:i2], after[j1:j2]
        if old != new:
            for kind, a1, a2, b1, b2 in _Matcher(old, new, budget).get_opcodes():
                if kind != "equal":
                    yield i1 + a1, i1 + a2, j1 + b1, j1 + b2
        i1, j1 = i2, j2


def _anchors(before: list[str], after: list[str]) -> list[tuple[int, int]]:
    """Return the places of lines that occur once in both versions: the most that are in the same order."""
    counts, others = Counter(before), Counter(after)
    places = {line: number for number, line in enumerate(after) if others[line] == 1}
    pairs = [(number, places[line]) for number, line in enumerate(before) if counts[line] == 1 and line in places]
    # The longest increasing run of places in *after*: for each length, the run that ends first.
    ends: list[int] = []
    last: list[int] = []
    former: list[int] = []
    for number, (_, place) in enumerate(pairs):
        length = bisect_left(ends, place)
        ends[length : length + 1] = [place]
        last[length : length + 1] = [number]
        former.append(last[length - 1] if length else -1)
    found: list[tuple[int, int]] = []
    number = last[-1] if last else -1
    while number >= 0:
        found.append(pairs[number])
        number = former[number]
    return found[::-1]


def _shown(sign: str, number: int, line: Line) -> DiffLine:
    text = line.text if len(line.text) <= LONGEST else line.text[:LONGEST] + "…"
    return DiffLine(sign=sign, line=number, text=text, made_by=line.made_by)


def _ranges(before: Paged[Piece], after: Paged[Piece]) -> Iterator[tuple[range, range]]:
    """Yield the ranges of pages that differ, as numbers of pages; lines do not cross from one into the next."""
    found = stretches(before, after)
    if found is None:
        yield range(len(before.pages)), range(len(after.pages))
        return
    old, new = range(0), range(0)
    shift = 0
    for stretch in found:
        next_old = range(stretch.page, stretch.page + len(stretch.before))
        next_new = range(stretch.page + shift, stretch.page + shift + len(stretch.after))
        shift += len(stretch.after) - len(stretch.before)
        if (old or new) and not any(page.summary(breaks_in) for page in before.pages[old.stop : next_old.start]):
            next_old, next_new = range(old.start, next_old.stop), range(new.start, next_new.stop)
        elif old or new:
            yield old, new
        old, new = next_old, next_new
    if old or new:
        yield old, new


def _first(text: Text, pages: range) -> int:
    """Return the number of the line in which *pages* begin."""
    return 1 + sum(page.summary(breaks_in) for page in text.paged.pages[: pages.start])


def _texts(text: Text, pages: range) -> list[str]:
    """Return the texts of `_lines`, not redacted; takes a tenth of its time."""
    lines = "".join([piece.text for piece, _ in _whole_lines(text, pages)]).split("\n")
    return lines if lines[-1] else lines[:-1]


def _lines(text: Text, pages: range) -> list[Line]:
    """Return the lines of *pages*, with the parts of the first and the last one that are in other pages."""
    found: list[Line] = []
    line, is_secret, origin = "", False, None
    for piece, piece_is_secret in _whole_lines(text, pages):
        *ended, rest = piece.text.split("\n")
        for part in ended:
            origin = _inner(origin, piece.origin)
            found.append(_line(line + part, origin, is_secret=is_secret or piece_is_secret))
            line, is_secret, origin = "", False, None
        if rest:
            line, is_secret, origin = line + rest, is_secret or piece_is_secret, _inner(origin, piece.origin)
    if line:
        found.append(_line(line, origin, is_secret=is_secret))
    return found


def _whole_lines(text: Text, pages: range) -> Iterator[tuple[Piece, bool]]:
    head: list[tuple[Piece, bool]] = []
    for piece, is_secret in _pieces(text, range(pages.start - 1, -1, -1), -1):
        _, broken, rest = piece.text.rpartition("\n")
        head.append((Piece(rest, piece.origin), is_secret))
        if broken:
            break
    yield from reversed(head)
    yield from _pieces(text, pages)
    for piece, is_secret in _pieces(text, range(pages.stop, len(text.paged.pages))):
        first, broken, _ = piece.text.partition("\n")
        yield Piece(first + broken, piece.origin), is_secret
        if broken:
            break


def _pieces(text: Text, pages: range, step: int = 1) -> Iterator[tuple[Piece, bool]]:
    for number in pages:
        page = text.paged.pages[number]
        secrets = text.secrets[page]
        for at in range(len(page.items))[::step]:
            yield page.items[at], at in secrets


def _line(text: str, origin: Any, *, is_secret: bool) -> Line:
    return Line(hidden(text) if is_secret else text, str(origin.subject) if origin is not None else "")


def _inner(one: Any, other: Any) -> Any:
    """Return the inner one of two origins of parts of a line."""
    if one is None or (other is not None and other.depth > one.depth):
        return other
    return one


def breaks_in(pieces: tuple[Piece, ...]) -> int:
    """Return the number of line breaks in *pieces*."""
    return sum(piece.text.count("\n") for piece in pieces)
