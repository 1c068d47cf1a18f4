"""Delta: the difference of two generations as data, written to the journal and sent to agents.

A delta names the generation that it starts from and the one that it leads to;
`apply_delta` verifies both. Sections and lines are identified by their
position, so both sides must have the same starting generation.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, groupby
from typing import Final, TypeVar

import msgspec

from haptic_trio.chunked import Page, Paged, Piece, Splice, Stretch, spliced, stretches
from haptic_trio.errors import HapticError
from haptic_trio.haproxy.config.parser import read_head, read_section
from haptic_trio.haproxy.model import (
    BY_LINE,
    AuxFile,
    Config,
    FileKind,
    Files,
    Generation,
    Section,
    make_file,
    make_generation,
)
from haptic_trio.haproxy.text_lines import Lines, lines_in, pages_of

P = TypeVar("P")
T = TypeVar("T")

_EXACT_LIMIT: Final = 4000
"""More differing items than this are replaced as a whole instead of compared one by one."""


class DeltaError(HapticError):
    """A delta does not fit its starting generation, or does not lead to its target. A permanent error."""


class TextSplice(msgspec.Struct, frozen=True, array_like=True):
    """Replacement of a range of sections or lines; positions are those of the starting generation."""

    at: int
    removed: int
    added: tuple[bytes, ...] = ()


class FileDelta(msgspec.Struct, frozen=True, array_like=True):
    """An added or changed file."""

    path: str
    kind: FileKind
    secret: bool
    content: bytes | None = None
    """The whole content; None if `lines` change the existing content."""
    lines: tuple[TextSplice, ...] = ()

    def __repr__(self) -> str:
        # The content may be a private key.
        return f"FileDelta({self.path!r}, {self.kind})"


class Delta(msgspec.Struct, frozen=True, array_like=True):
    """Difference from generation `base` to generation `id`."""

    base: str
    id: str
    sections: tuple[TextSplice, ...] = ()
    """Each text is one complete section."""
    files: tuple[FileDelta, ...] = ()
    removed: tuple[str, ...] = ()
    """Paths of removed files."""
    head: bytes | None = None
    """The text before the first section; None if it is unchanged."""

    def __repr__(self) -> str:
        return f"Delta({self.base[:12]} to {self.id[:12]}, {len(self.sections)} places, {len(self.files)} files)"


def make_delta(before: Generation, after: Generation) -> Delta:
    """Return the delta from *before* to *after*."""
    old, new = before.files.differing(after.files)
    return Delta(
        before.id,
        after.id,
        tuple(
            TextSplice(one.at, one.removed, tuple([_encode(section.text) for section in one.added]))
            for one in _compare(before.config.sections, after.config.sections, _sections_of, len, _seal_of)
        ),
        tuple(
            _make_file_delta(old.get(path), file)
            for path, file in new.items()
            if (known := old.get(path)) is not file and (known is None or known != file)
        ),
        tuple(path for path in old if path not in new),
        _encode(after.config.head) if after.config.head != before.config.head else None,
    )


def apply_delta(before: Generation, delta: Delta) -> Generation:
    """Return the target generation of *delta* from *before*; unchanged pages are shared.

    Raises DeltaError if the delta starts from another generation, does not
    fit, or leads to another generation than its target.
    """
    if delta.base != before.id:
        raise DeltaError(f"the delta starts from generation {delta.base}, not from {before.id}")
    try:
        config = _apply_config(before.config, delta)
        files = before.files.changed((_apply_file(before.files, one) for one in delta.files), delta.removed)
    except (ValueError, KeyError) as exc:
        raise DeltaError(f"the delta does not fit: {exc}") from exc
    after = make_generation(config, files)
    if after.id != delta.id:
        raise DeltaError(f"the delta leads to generation {after.id}, not to {delta.id}")
    return after


def encode_delta(delta: Delta) -> bytes:
    """Return *delta* as bytes."""
    return msgspec.msgpack.encode(delta)


def decode_delta(data: bytes) -> Delta:
    """Parse the result of `encode_delta`; raises DeltaError for anything else."""
    try:
        return msgspec.msgpack.decode(data, type=Delta)
    except msgspec.DecodeError as exc:
        raise DeltaError(f"not a delta: {exc}") from exc


def _make_file_delta(old: AuxFile | None, new: AuxFile) -> FileDelta:
    if old is None or old.kind is not new.kind or new.kind not in BY_LINE:
        return FileDelta(new.path, new.kind, new.secret, new.content)
    splices = [
        TextSplice(one.at, one.removed, one.added)
        for one in _compare(old.lines.pages, new.lines.pages, lines_in, _count_lines, _itself)
    ]
    return FileDelta(new.path, new.kind, new.secret, None, tuple(splices))


def _apply_config(config: Config, delta: Delta) -> Config:
    sections = spliced(
        config.sections,
        [Splice(one.at, one.removed, tuple([_read(text) for text in one.added])) for one in delta.sections],
    )
    if delta.head is None:
        return Config(sections, config.preamble, config.head)
    head = _decode(delta.head)
    return Config(sections, read_head(head), head)


def _apply_file(files: Files, delta: FileDelta) -> AuxFile:
    if delta.content is not None:
        return make_file(delta.kind, delta.path, delta.content, secret=delta.secret)
    lines = Lines(_splice_lines(files[delta.path].lines.pages, delta.lines))
    return AuxFile(delta.kind, delta.path, lines, "", delta.secret)


def _splice_lines(pages: Paged[Piece], splices: Sequence[TextSplice]) -> Paged[Piece]:
    """Return *pages* with *splices* applied; pages without changed lines are shared."""
    firsts = [0, *accumulate(pages.summaries(_count_lines))]
    total = firsts.pop()
    touched: dict[int, list[TextSplice]] = {}
    for one in splices:
        page = max(0, bisect_right(firsts, one.at) - 1)
        last = max(page, bisect_right(firsts, one.at + one.removed - 1) - 1)
        if not 0 <= one.at <= one.at + one.removed <= total:
            raise ValueError(f"the splice at line {one.at} is outside of the file")
        for number in range(page, last + 1):
            touched.setdefault(number, [])
        touched[page].append(one)
    if not firsts:
        return pages_of(_splice((), 0, splices))
    found: list[Page[Piece]] = []
    for is_touched, run in groupby(range(len(firsts)), touched.__contains__):
        numbers = list(run)
        old = pages.pages[numbers[0] : numbers[-1] + 1]
        if is_touched:
            lines = [line for page in old for line in page.summary(lines_in)]
            due = [one for number in numbers for one in touched[number]]
            old = pages_of(_splice(lines, firsts[numbers[0]], due)).pages
        found += old
    return Paged(found)


def _splice(lines: Sequence[bytes], first: int, splices: Sequence[TextSplice]) -> Iterator[bytes]:
    """Yield *lines*, the first of which is number *first*, with *splices* applied."""
    at = 0
    for one in splices:
        start = one.at - first
        if not at <= start <= start + one.removed <= len(lines):
            raise ValueError(f"the splice at line {one.at} is outside of the file")
        yield from lines[at:start]
        yield from one.added
        at = start + one.removed
    yield from lines[at:]


def _read(text: bytes) -> Section:
    section = read_section(_decode(text))
    if section is None:
        raise ValueError("the text of an added section is not exactly one section")
    return section


def _compare(
    before: Paged[P],
    after: Paged[P],
    items_of: Callable[[tuple[P, ...]], Sequence[T]],
    count: Callable[[tuple[P, ...]], int],
    key: Callable[[T], bytes],
) -> Iterator[Splice[T]]:
    """Yield splices that turn *before* into *after*, with few items at reasonable cost."""
    places = stretches(before, after)
    if places is None:
        places = [Stretch(0, 0, before.pages, after.pages)]
    at, page = 0, 0
    for place in places:
        at += sum([one.summary(count) for one in before.pages[page : place.page]])
        old, new = ([item for one in pages for item in one.summary(items_of)] for pages in (place.before, place.after))
        yield from _compare_items(at, old, new, key)
        at += len(old)
        page = place.page + len(place.before)


def _compare_items(at: int, old: Sequence[T], new: Sequence[T], key: Callable[[T], bytes]) -> Iterator[Splice[T]]:
    one, other = list(map(key, old)), list(map(key, new))
    start = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    longest = min(len(one), len(other)) - start
    pairs = zip(reversed(one), reversed(other), strict=False)
    end = min(longest, next((n for n, (a, b) in enumerate(pairs) if a != b), longest))
    left, right = one[start : len(one) - end], other[start : len(other) - end]
    if not (left and right) or len(left) + len(right) > _EXACT_LIMIT:
        if left or right:
            yield Splice(at + start, len(left), tuple(new[start : len(new) - end]))
        return
    for tag, low, high, new_low, new_high in SequenceMatcher(None, left, right, autojunk=False).get_opcodes():
        if tag != "equal":
            yield Splice(at + start + low, high - low, tuple(new[start + new_low : start + new_high]))


def _seal_of(section: Section) -> bytes:
    return section.seal


def _itself(item: bytes) -> bytes:
    return item


def _sections_of(sections: tuple[Section, ...]) -> tuple[Section, ...]:
    return sections


def _count_lines(pieces: tuple[Piece, ...]) -> int:
    text = "".join([piece.text for piece in pieces])
    return text.count("\n") + (text[-1:] not in {"", "\n"})


def _encode(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _decode(data: bytes) -> str:
    return data.decode(errors="surrogateescape")
