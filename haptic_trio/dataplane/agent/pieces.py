"""Content-defined pieces of files, so that only differing pieces are sent.

A haproxy.cfg is cut before each section, any other content where the
checksum of a line says so: a change in one place leaves all other cuts where
they were. A content's *recipe* is the digests of its pieces, in order. Sent
on top of a content that the receiver has, a recipe is a few *steps*: ranges
of the other's pieces, and digests of new ones.

How a content is cut is a matter of the sender alone; the receiver only joins.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import Config, Section, digest_of

SMALL: Final = 4096
"""Bytes of a content, or of a section, that is not cut."""
LARGEST: Final = 65536
"""Bytes of the largest piece."""
MEAN_LINES: Final = 64
"""Lines that a piece of a file has on average."""

Step: TypeAlias = str | tuple[int, int]
"""The digest of a piece, or a range of the other recipe's pieces: the first, and how many."""


class RecipeError(HapticError):
    """Steps that lead nowhere; trying the same again is futile."""


class OutsideBaseError(RecipeError):
    """The base has other pieces than the steps were made over; steps over nothing help."""


class Pieces(msgspec.Struct, frozen=True):
    """A content and its recipe."""

    recipe: tuple[str, ...]
    contents: Mapping[str, bytes]
    """By digest."""


def cut_config(config: Config) -> Pieces:
    """Cut a haproxy.cfg before each section; pages of sections that were cut before are not cut again."""
    recipe: list[str] = []
    contents: dict[str, bytes] = {}
    for parts in ([*_cut_text(config.head)], *config.sections.summaries(_cut_sections)):
        for digest, part in parts:
            recipe.append(digest)
            contents[digest] = part
    return Pieces(tuple(recipe), contents)


def _cut_sections(sections: tuple[Section, ...]) -> list[tuple[str, bytes]]:
    return [part for section in sections for part in _cut_text(section.text)]


def _cut_text(text: str) -> Iterator[tuple[str, bytes]]:
    for part in _cut_at_lines(text.encode(errors="surrogateescape")):
        yield digest_of(part), part


def cut_file(content: bytes) -> Pieces:
    """Cut any other content."""
    parts = [(digest_of(part), part) for part in _cut_at_lines(content)]
    return Pieces(tuple([digest for digest, _part in parts]), dict(parts))


def _cut_at_lines(content: bytes) -> Iterator[bytes]:
    if len(content) <= SMALL:
        if content:
            yield content
        return
    start = position = 0
    for line in content.splitlines(keepends=True):
        # A piece is bounded even where there is no line feed.
        while position + len(line) - start > LARGEST:
            if position > start:
                yield content[start:position]
                start = position
                continue
            yield content[start : start + LARGEST]
            line = line[LARGEST:]  # noqa: PLW2901 - the rest of it
            start += LARGEST
            position = start
        position += len(line)
        if zlib.crc32(line) % MEAN_LINES == 0:
            yield content[start:position]
            start = position
    if position > start:
        yield content[start:position]


def digest_recipe(recipe: Sequence[str]) -> str:
    """Return the hash over the digests of the pieces: who follows steps can tell whether they led there."""
    return digest_of("".join(recipe))


def make_steps(recipe: Sequence[str], base: Sequence[str]) -> tuple[Step, ...]:
    """Return *recipe* as steps over *base*; what is the same at beginning and end is two ranges."""
    head = _count_same(recipe, base)
    tail = _count_same(recipe[head:][::-1], base[head:][::-1])
    # What has moved is found by where it stood.
    places = {digest: place for place, digest in enumerate(base)} if head + tail < len(recipe) else {}
    steps: list[Step] = [(0, head)] if head else []
    for digest in recipe[head : len(recipe) - tail]:
        place = places.get(digest)
        last = steps[-1] if steps else ""
        if place is None:
            steps.append(digest)
        elif isinstance(last, tuple) and sum(last) == place:
            steps[-1] = (last[0], last[1] + 1)
        else:
            steps.append((place, 1))
    if tail:
        steps.append((len(base) - tail, tail))
    return tuple(steps)


def _count_same(one: Sequence[str], other: Sequence[str]) -> int:
    for number, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return number
    return min(len(one), len(other))


def follow_steps(steps: Sequence[Step], base: Sequence[str], *, limit: int) -> tuple[str, ...]:
    """Return the recipe that *steps* over *base* give; raises RecipeError, also for more than *limit* pieces."""
    if len(steps) > limit:
        raise RecipeError(f"more than {limit} pieces")
    recipe: list[str] = []
    for step in steps:
        if isinstance(step, str):
            recipe.append(step)
        else:
            first, count = step
            if first < 0 or count < 1 or first + count > len(base):
                raise OutsideBaseError(f"pieces {first} to {first + count} of {len(base)} that the base has")
            if len(recipe) + count > limit:
                raise RecipeError(f"more than {limit} pieces")
            recipe += base[first : first + count]
    if len(recipe) > limit:
        raise RecipeError(f"more than {limit} pieces")
    return tuple(recipe)


def join_pieces(recipe: Sequence[str], find: Callable[[str], bytes | None], *, limit: int) -> bytes:
    """Return the content of *recipe*, all of whose pieces must be found; raises RecipeError above *limit* bytes."""
    parts = []
    size = 0
    for digest in recipe:
        piece = find(digest)
        assert piece is not None
        size += len(piece)
        # Many times the same piece is short to write.
        if size > limit:
            raise RecipeError(f"more than {limit} bytes")
        parts.append(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)
