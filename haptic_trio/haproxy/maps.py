"""Map files: their entries as HAProxy reads them, and what a configuration does with a map."""

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final

from haptic_trio.haproxy.lexer import split_line
from haptic_trio.haproxy.model import Config, Directive, Generation

# Keys are found in a tree, whatever their order: equal strings, longest prefix, and networks.
_UNORDERED_METHODS: Final = frozenset({None, "str", "beg", "ip"})
_CONVERTER: Final = re.compile(r"\bmap(?:_(?P<method>[a-z]+)(?:_[a-z]+)?)?\(")
# White space to Python that is none to the reader of maps.
_ODD_SPACE: Final = re.compile("[\r\v\f\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_KEY_END: Final = re.compile("[ \t]+")
_UPDATE: Final = re.compile(r"(?:set-map|del-map)\((?P<path>.*)\)", re.DOTALL)


class MapUse(Enum):
    """What a configuration does with a map file."""

    NONE = "the configuration does not name it"
    UNORDERED = "keys are looked up whatever their order"
    ORDERED = "the first key that matches wins"
    OTHER = "something else than look-ups"


def parse_map_file(content: bytes) -> tuple[tuple[str, str], ...]:
    """Return the entries of a map file, in order, as HAProxy reads them.

    A line is a comment only if `#` is its very first character; blanks are
    spaces and tabs; the key ends at the first blank, and the value loses
    blanks at both ends. Bytes that are not UTF-8 become surrogate escapes.
    """
    text = content.decode(errors="surrogateescape")
    split = _split_entry if _ODD_SPACE.search(text) else _split_plain_entry
    lines = (line for line in text.split("\n") if line[:1] != "#")
    return tuple(entry for line in lines if (entry := split(line)) is not None)


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
    use = _gravest(_use_in(directive, path) for directive in _lines_naming(generation.text, path))
    if use is MapUse.NONE:
        # Quotes may divide the path in the text, never in the words.
        use = _gravest(_use_in(directive, path) for directive in _directives_naming(generation.config, path))
    return use


def _gravest(uses: Iterable[MapUse]) -> MapUse:
    found = set(uses)
    return next((use for use in (MapUse.OTHER, MapUse.ORDERED, MapUse.UNORDERED) if use in found), MapUse.NONE)


def _lines_naming(text: str, path: str) -> Iterator[Directive]:
    """Yield the lines of *text* that hold *path*: far faster than looking at every word."""
    at = text.find(path)
    while at >= 0:
        start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
        end = end if end >= 0 else len(text)
        split = split_line(text[start:end])
        if split.words:
            yield Directive(split.words, 0, split.raw)
        at = text.find(path, end)


def _directives_naming(config: Config, path: str) -> Iterator[Directive]:
    for section in config.sections:
        for directive in section.directives:
            if any(path in word for word in directive.words):
                yield directive


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
