"""Map files: their entries as HAProxy reads them, and what a configuration does with a map."""

import re
from collections.abc import Iterator
from enum import Enum
from typing import Final

from haptic_trio.haproxy.lexer import split_line
from haptic_trio.haproxy.model import Config, Directive, Generation

# Keys are found in a tree, whatever their order: equal strings, longest prefix, and networks.
_UNORDERED_METHODS: Final = frozenset({None, "str", "beg", "ip"})
_CONVERTER: Final = re.compile(r"\bmap(?:_(?P<method>[a-z]+)(?:_[a-z]+)?)?\(")
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
    entries = []
    for text in content.decode(errors="surrogateescape").split("\n"):
        line = text.rstrip("\r").strip(" \t")
        if not line or text[0] == "#":
            continue
        key, *value = _KEY_END.split(line, maxsplit=1)
        entries.append((key, value[0] if value else ""))
    return tuple(entries)


def find_map_use(generation: Generation, path: str) -> MapUse:
    """Return what the configuration of *generation* does with the map file *path*."""
    uses = {_use_in(directive, path) for directive in _lines_naming(generation, path)}
    for use in (MapUse.OTHER, MapUse.ORDERED, MapUse.UNORDERED):
        if use in uses:
            return use
    return MapUse.NONE


def _lines_naming(generation: Generation, path: str) -> Iterator[Directive]:
    text = generation.text
    at = text.find(path)
    if at < 0:
        # Quotes may divide the path in the text, never in the words.
        yield from _directives_naming(generation.config, path)
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
    uses = {_use_of_word(words, index, path) for index, word in enumerate(words) if path in word}
    if directive.raw and uses:
        return MapUse.OTHER
    for use in (MapUse.OTHER, MapUse.ORDERED, MapUse.UNORDERED):
        if use in uses:
            return use
    return MapUse.NONE


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
    return MapUse.ORDERED if MapUse.ORDERED in uses else MapUse.UNORDERED if uses else MapUse.NONE


def _names(word: str, path: str) -> bool:
    """Whether *word* holds *path* as a whole path, not as part of a longer one."""
    return re.search(rf"(?<![\w./-]){re.escape(path)}(?![\w./-])", word) is not None
