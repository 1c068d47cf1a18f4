"""Content-defined pieces of files, so that only differing pieces are sent.

A haproxy.cfg is cut before each section, any other content after lines with
certain checksums: a change in one place does not move the other cuts. The
*recipe* of a content is the digests of its pieces, in order. Relative to a
base that the receiver has, a recipe is a few *steps*: ranges of pieces of the
base, and digests of new pieces.

Only the sender decides how a content is cut; the receiver joins pieces.
"""

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from haptic_trio.errors import HapticError
from haptic_trio.haproxy.model import Config, Section, digest_of

SMALL: Final = 4096
"""Contents and sections up to this size (bytes) are not cut."""
LARGEST: Final = 65536
"""Bytes of the largest piece."""
MEAN_LINES: Final = 64
"""Average lines in a piece of a file."""

Step: TypeAlias = str | tuple[int, int]
"""The digest of a piece, or a range of pieces of the base: first and count."""


class RecipeError(HapticError):
    """Steps are invalid or exceed a limit; permanent."""


class TooLargeError(RecipeError):
    """The content is larger, or has more pieces, than the receiver takes."""


class OutsideBaseError(RecipeError):
    """The steps do not fit the base; steps without a base help."""


class Pieces(msgspec.Struct, frozen=True):
    """A content and its recipe."""

    recipe: tuple[str, ...]
    contents: Mapping[str, bytes]
    """By digest."""


def cut_config(config: Config) -> Pieces:
    """Cut a haproxy.cfg before each section; cached for unchanged pages of sections."""
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
    """Cut a content that is not a haproxy.cfg."""
    parts = [(digest_of(part), part) for part in _cut_at_lines(content)]
    return Pieces(tuple([digest for digest, _part in parts]), dict(parts))


def _cut_at_lines(content: bytes) -> Iterator[bytes]:
    if len(content) <= SMALL:
        if content:
            yield content
        return
    start = position = 0
    for line in content.splitlines(keepends=True):
        # Limits the size of pieces also without line feeds.
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
    """Return the digest over the digests of the pieces, to verify the result of steps."""
    return digest_of("".join(recipe))


def make_steps(recipe: Sequence[str], base: Sequence[str]) -> tuple[Step, ...]:
    """Return *recipe* as steps relative to *base*; a common beginning and a common end are one range each."""
    head = _count_same(recipe, base)
    tail = _count_same(recipe[head:][::-1], base[head:][::-1])
    # Finds pieces that moved.
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
    """Return the recipe of *steps* relative to *base*; raises RecipeError, also for more than *limit* pieces."""
    if len(steps) > limit:
        raise TooLargeError(f"more than {limit} pieces")
    recipe: list[str] = []
    for step in steps:
        if isinstance(step, str):
            recipe.append(step)
        else:
            first, count = step
            if first < 0 or count < 1 or first + count > len(base):
                raise OutsideBaseError(
                    f"a step refers to pieces {first} to {first + count}, but the base has {len(base)}"
                )
            if len(recipe) + count > limit:
                raise TooLargeError(f"more than {limit} pieces")
            recipe += base[first : first + count]
    if len(recipe) > limit:
        raise TooLargeError(f"more than {limit} pieces")
    return tuple(recipe)


def join_pieces(recipe: Sequence[str], find: Callable[[str], bytes | None], *, limit: int) -> bytes:
    """Return the content of *recipe*; *find* must know all pieces. Raises RecipeError above *limit* bytes."""
    parts = []
    size = 0
    for digest in recipe:
        piece = find(digest)
        assert piece is not None
        size += len(piece)
        # A short recipe can repeat a large piece many times.
        if size > limit:
            raise TooLargeError(f"more than {limit} bytes")
        parts.append(piece)
    return parts[0] if len(parts) == 1 else b"".join(parts)
