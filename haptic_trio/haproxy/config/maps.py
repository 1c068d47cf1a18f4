"""Map files and ACL lists: their entries, and how a configuration uses them.

An entry of a list is a key without a value.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from haptic_trio.chunked import Piece, stretches
from haptic_trio.haproxy.model import FileChange, FileKind, Generation
from haptic_trio.haproxy.text_lines import Lines

Entry: TypeAlias = tuple[str, str]
"""Key and value."""

# Methods that look keys up in a tree, independent of their order: equal strings, longest prefix, and networks.
_UNORDERED_METHODS: Final = frozenset({None, "str", "beg", "ip"})
_CONVERTER: Final = re.compile(r"\bmap(?:_(?P<method>[a-z]+)(?:_[a-z]+)?)?\(")
# White space to Python, but not to HAProxy's parser of maps.
_OTHER_SPACE: Final = re.compile("[\r\v\f\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_KEY_END: Final = re.compile("[ \t]+")
_FEW: Final = 200
_LINES_KEPT: Final = 1024
_UPDATE: Final = re.compile(r"(?:set|del)-map\((?P<path>.*)\)", re.DOTALL)
# Flags between the sample of an ACL and its files, with the number of their arguments.
_FLAGS: Final = {"-i": 0, "-n": 0, "-M": 0, "-m": 1, "-f": 1}


class MapUse(Enum):
    """Uses of a file of entries in a configuration."""

    NONE = "the configuration does not name it"
    UNORDERED = "keys are looked up whatever their order"
    ORDERED = "the first key that matches wins"
    LIST = "conditions ask whether one of the keys matches"
    OTHER = "something other than lookups"


def parse_map_file(content: bytes) -> tuple[Entry, ...]:
    """Return the entries of a map file, in order, as HAProxy reads them.

    A line is a comment only if `#` is its first character. Blanks are spaces
    and tabs. The key ends at the first blank; blanks around the value are
    removed. Bytes that are not UTF-8 become surrogate escapes.
    """
    return _parse_text(content.decode(errors="surrogateescape"))


def parse_list_file(content: bytes) -> tuple[Entry, ...]:
    """Return the entries of an ACL list, in order, as HAProxy reads them.

    Comments and leading blanks are as in a map. The rest of the line, up to a
    carriage return, is the key, blanks included.
    """
    return _parse_list_text(content.decode(errors="surrogateescape"))


class Form(NamedTuple):
    """Parsers for the entries of a file."""

    name: str
    read: Callable[[tuple[Piece, ...]], tuple[Entry, ...]]
    keys: Callable[[tuple[Piece, ...]], frozenset[str]]


def form_of(use: MapUse) -> Form:
    """Return the parsers for files with this use."""
    return _LIST if use is MapUse.LIST else _MAP


def file_entries(lines: Lines, form: Form) -> Iterator[Entry]:
    """Yield the entries of a file, in order; see `parse_map_file` and `parse_list_file`."""
    return chain.from_iterable(lines.pages.summaries(form.read))


class MapChange(msgspec.Struct, frozen=True):
    """Entries of the pages in which two files differ; all other keys are equal in both files."""

    before: dict[str, str]
    after: dict[str, str]
    unique: bool
    """Whether no key is repeated in either file; if False, the dictionaries are meaningless."""
    same: bool
    """Whether entries and their order are certainly equal; may be False for equal files."""


def diff_maps(before: Lines, after: Lines, form: Form) -> MapChange:
    """Compare two files of entries.

    The cost depends on the pages that differ, once it is known that the keys
    are unique.
    """
    old, new = {id(page) for page in before.pages.pages}, {id(page) for page in after.pages.pages}
    was = [entry for page in before.pages.pages if id(page) not in new for entry in page.summary(form.read)]
    now = [entry for page in after.pages.pages if id(page) not in old for entry in page.summary(form.read)]
    former, latter = dict(was), dict(now)
    unique = _has_unique_keys(before, form)
    if unique and form.name not in after.unique:
        shared = [page.summary(form.keys) for page in before.pages.pages if id(page) in new]
        fresh = [key for key in latter if key not in former]
        if len(fresh) <= _FEW:
            known = any(key in keys for key in fresh for keys in shared)
            after.unique[form.name] = len(latter) == len(now) and not known
    return MapChange(former, latter, unique and _has_unique_keys(after, form), _keeps_entries(before, after, form))


def _keeps_entries(before: Lines, after: Lines, form: Form) -> bool:
    places = stretches(before.pages, after.pages)
    return places is not None and all(
        list(chain.from_iterable(page.summary(form.read) for page in place.before))
        == list(chain.from_iterable(page.summary(form.read) for page in place.after))
        for place in places
    )


def _has_unique_keys(lines: Lines, form: Form) -> bool:
    if form.name not in lines.unique:
        keys = [key for key, _ in file_entries(lines, form)]
        lines.unique[form.name] = len(set(keys)) == len(keys)
    return lines.unique[form.name]


def _read_map(pieces: tuple[Piece, ...]) -> tuple[Entry, ...]:
    return _parse_text("".join([piece.text for piece in pieces]))


def _index_map(pieces: tuple[Piece, ...]) -> frozenset[str]:
    return frozenset([key for key, _ in _read_map(pieces)])


def _read_list(pieces: tuple[Piece, ...]) -> tuple[Entry, ...]:
    return _parse_list_text("".join([piece.text for piece in pieces]))


def _index_list(pieces: tuple[Piece, ...]) -> frozenset[str]:
    return frozenset([key for key, _ in _read_list(pieces)])


_MAP: Final = Form("map", _read_map, _index_map)
_LIST: Final = Form("list", _read_list, _index_list)


def _parse_list_text(text: str) -> tuple[Entry, ...]:
    lines = (line.lstrip(" \t").partition("\r")[0] for line in text.split("\n") if line[:1] != "#")
    return tuple([(line, "") for line in lines if line])


def _parse_text(text: str) -> tuple[Entry, ...]:
    split = _split_entry if _OTHER_SPACE.search(text) else _split_plain_entry
    lines = (line for line in text.split("\n") if line[:1] != "#")
    return tuple([entry for line in lines if (entry := split(line)) is not None])


def _split_entry(line: str) -> tuple[str, str] | None:
    key, *value = _KEY_END.split(line.rstrip("\r").strip(" \t"), maxsplit=1)
    return (key, value[0] if value else "") if key else None


def _split_plain_entry(line: str) -> tuple[str, str] | None:
    """Same as `_split_entry`, but faster; for text in which all white space is spaces and tabs."""
    words = line.split(maxsplit=1)
    if len(words) == 2:
        return words[0], words[1].rstrip()
    return (words[0], "") if words else None


def find_map_use(generation: Generation, path: str) -> MapUse:
    """Return how the configuration of *generation* uses the file *path*."""
    return _combine_uses([_use_in(line.words, line.raw, path) for line in generation.config.naming(path)])


def has_entries(generation: Generation, change: FileChange) -> bool:
    """Whether *change* is a change of a map, or of a file that *generation* uses only as an ACL list.

    This includes a map that is used as a list.
    """
    kinds = {file.kind for file in (change.running, change.desired) if file is not None}
    if kinds == {FileKind.MAP}:
        return True
    return kinds == {FileKind.FILE} and find_map_use(generation, change.path) is MapUse.LIST


def _combine_uses(uses: Iterable[MapUse]) -> MapUse:
    found = set(uses) - {MapUse.NONE}
    if MapUse.LIST in found:
        # HAProxy does not accept a file for both uses.
        return MapUse.LIST if len(found) == 1 else MapUse.OTHER
    return next((use for use in (MapUse.OTHER, MapUse.ORDERED, MapUse.UNORDERED) if use in found), MapUse.NONE)


@lru_cache(_LINES_KEPT)
def _use_in(words: tuple[str, ...], raw: frozenset[int], path: str) -> MapUse:
    """Return how a line with *words* uses the file *path*. The same few lines are asked for in each plan."""
    use = _combine_uses([_use_of_word(words, index, path) for index, word in enumerate(words) if path in word])
    return MapUse.OTHER if raw and use is not MapUse.NONE else use


def _use_of_word(words: tuple[str, ...], index: int, path: str) -> MapUse:
    word = words[index]
    if word == path:
        return _use_in_condition(words, index)
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
    return _combine_uses(uses)


def _use_in_condition(words: tuple[str, ...], index: int) -> MapUse:
    """Return the use of the file named by the word at *index*, in a condition or an `acl` line."""
    if words[0] == "acl":
        start = 3
    else:
        # Skip the brace, which may be negated, and the sample.
        start = 2 + max((at for at in range(index) if words[at].lstrip("!") == "{"), default=index)
    at = start
    while at < index and words[at] in _FLAGS:
        at += 1 + _FLAGS[words[at]]
    if at != index + 1 or words[index - 1] != "-f":
        return MapUse.OTHER
    if "-M" in words[start:index]:
        # `-M` reads the file as a map; its match method is elsewhere on the line.
        return MapUse.ORDERED
    return MapUse.OTHER if "-M" in words else MapUse.LIST


def _names(word: str, path: str) -> bool:
    """Whether *word* contains *path* as a whole path, not as part of a longer one."""
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", word) is not None
