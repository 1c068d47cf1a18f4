"""Map files: their entries as HAProxy reads them, and what a configuration does with a map."""

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from itertools import chain
from typing import Final, TypeAlias

import msgspec

from haptic_trio.haproxy.model import Directive, Generation
from haptic_trio.haproxy.text_lines import Lines
from haptic_trio.pages import Piece, stretches

Entry: TypeAlias = tuple[str, str]
"""Key and value."""

# Keys are found in a tree, whatever their order: equal strings, longest prefix, and networks.
_UNORDERED_METHODS: Final = frozenset({None, "str", "beg", "ip"})
_CONVERTER: Final = re.compile(r"\bmap(?:_(?P<method>[a-z]+)(?:_[a-z]+)?)?\(")
# White space to Python that is none to the reader of maps.
_ODD_SPACE: Final = re.compile("[\r\v\f\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_KEY_END: Final = re.compile("[ \t]+")
_FEW: Final = 200
_UPDATE: Final = re.compile(r"(?:set-map|del-map)\((?P<path>.*)\)", re.DOTALL)


class MapUse(Enum):
    """What a configuration does with a map file."""

    NONE = "the configuration does not name it"
    UNORDERED = "keys are looked up whatever their order"
    ORDERED = "the first key that matches wins"
    OTHER = "something else than look-ups"


def parse_map_file(content: bytes) -> tuple[Entry, ...]:
    """Return the entries of a map file, in order, as HAProxy reads them.

    A line is a comment only if `#` is its very first character; blanks are
    spaces and tabs; the key ends at the first blank, and the value loses
    blanks at both ends. Bytes that are not UTF-8 become surrogate escapes.
    """
    return _parse_text(content.decode(errors="surrogateescape"))


def map_entries(lines: Lines) -> Iterator[Entry]:
    """Yield the entries of a map file, in order; see `parse_map_file`."""
    return chain.from_iterable(lines.pages.summaries(_parse_pieces))


class MapChange(msgspec.Struct, frozen=True):
    """How two maps differ, as far as their pages do; keys that are in neither are the same in both."""

    before: dict[str, str]
    after: dict[str, str]
    unique: bool
    """Whether no key of either map is there twice; what the dictionaries hold means nothing otherwise."""
    same: bool
    """Whether entries and their order are the same; may be False for some that are."""


def diff_maps(before: Lines, after: Lines) -> MapChange:
    """Compare two maps; costs what their pages hold in which they differ, once it is known that keys are unique."""
    old, new = {id(page) for page in before.pages.pages}, {id(page) for page in after.pages.pages}
    was = [entry for page in before.pages.pages if id(page) not in new for entry in page.summary(_parse_pieces)]
    now = [entry for page in after.pages.pages if id(page) not in old for entry in page.summary(_parse_pieces)]
    former, latter = dict(was), dict(now)
    unique = _has_unique_keys(before)
    if unique and after.unique is None:
        shared = [page.summary(_index_keys) for page in before.pages.pages if id(page) in new]
        fresh = [key for key in latter if key not in former]
        if len(fresh) <= _FEW:
            after.unique = len(latter) == len(now) and not any(key in keys for key in fresh for keys in shared)
    return MapChange(former, latter, unique and _has_unique_keys(after), _keeps_entries(before, after))


def _keeps_entries(before: Lines, after: Lines) -> bool:
    places = stretches(before.pages, after.pages)
    return places is not None and all(
        list(chain.from_iterable(page.summary(_parse_pieces) for page in place.before))
        == list(chain.from_iterable(page.summary(_parse_pieces) for page in place.after))
        for place in places
    )


def _has_unique_keys(lines: Lines) -> bool:
    if lines.unique is None:
        keys = [key for key, _ in map_entries(lines)]
        lines.unique = len(set(keys)) == len(keys)
    return lines.unique


def _parse_pieces(pieces: tuple[Piece, ...]) -> tuple[Entry, ...]:
    return _parse_text("".join([piece.text for piece in pieces]))


def _index_keys(pieces: tuple[Piece, ...]) -> frozenset[str]:
    return frozenset([key for key, _ in _parse_pieces(pieces)])


def _parse_text(text: str) -> tuple[Entry, ...]:
    split = _split_entry if _ODD_SPACE.search(text) else _split_plain_entry
    lines = (line for line in text.split("\n") if line[:1] != "#")
    return tuple([entry for line in lines if (entry := split(line)) is not None])


def _split_entry(line: str) -> tuple[str, str] | None:
    key, *value = _KEY_END.split(line.rstrip("\r").strip(" \t"), maxsplit=1)
    return (key, value[0] if value else "") if key else None


def _split_plain_entry(line: str) -> tuple[str, str] | None:
    """Do the same faster where all white space is spaces and tabs."""
    words = line.split(maxsplit=1)
    if len(words) == 2:
        return words[0], words[1].rstrip()
    return (words[0], "") if words else None


def find_map_use(generation: Generation, path: str) -> MapUse:
    """Return what the configuration of *generation* does with the map file *path*."""
    return _gravest(_use_in(directive, path) for directive in generation.config.naming(path))


def _gravest(uses: Iterable[MapUse]) -> MapUse:
    found = set(uses)
    return next((use for use in (MapUse.OTHER, MapUse.ORDERED, MapUse.UNORDERED) if use in found), MapUse.NONE)


def _use_in(directive: Directive, path: str) -> MapUse:
    words = directive.words
    use = _gravest(_use_of_word(words, index, path) for index, word in enumerate(words) if path in word)
    return MapUse.OTHER if directive.raw and use is not MapUse.NONE else use


def _use_of_word(words: tuple[str, ...], index: int, path: str) -> MapUse:
    word = words[index]
    if word == path:
        # `acl … -M -f PATH` makes a map of the file; its matching method stands elsewhere on the line.
        return MapUse.ORDERED if words[index - 1] == "-f" and "-M" in words else MapUse.OTHER
    update = _UPDATE.fullmatch(word)
    if update is not None:
        return MapUse.UNORDERED if update["path"] == path else MapUse.NONE
    rest, uses = word, set()
    for match in _CONVERTER.finditer(word):
        argument = word[match.end() :]
        if argument.startswith(path) and argument[len(path) : len(path) + 1] in {",", ")"}:
            unordered = match["method"] in _UNORDERED_METHODS
            uses.add(MapUse.UNORDERED if unordered else MapUse.ORDERED)
            rest = rest.replace(match[0] + path, "", 1)
    if path in rest and _names(rest, path):
        return MapUse.OTHER
    return _gravest(uses)


def _names(word: str, path: str) -> bool:
    """Whether *word* holds *path* as a whole path, not as part of a longer one."""
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", word) is not None
