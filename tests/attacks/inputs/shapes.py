"""The shape of a line: what of it templates have written, with a placeholder for what may be data.

Shapes are learned from what the libraries render of benign objects, so that a
line with one word, flag, keyword or separator more than any of those shows.
"""

import re
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final

from haptic_trio.haproxy.lexer import split_line
from tests.attacks.inputs.values import TEXTS
from tests.bad_inputs.vocabulary import tokens

Shape = tuple[str, ...]

_CHUNK: Final = re.compile(r"[A-Za-z0-9_.:*+^~-]+")
_TOKEN: Final = re.compile(r"(^|\()[!D]+(\)|$)")
_EXPRESSION: Final = re.compile(r"%(?:\{[^}]*\})?\[(?:[^\[\]]|\[[^\[\]]*\])*\]")
_REPEATED: Final = re.compile(r"(?:D[,/|])+(?=D)")
_ITEM: Final = re.compile(r"[;&>?]")
_FIELD: Final = re.compile(r"=?[A-Za-z0-9._~%/:*!@$+-]*")
_OWN: Final = {"p": 1, "hr": 2, "qr": 2}
"""How many fields of an expression's item stand before what it costs."""
_ADDRESS: Final = re.compile(r"\[[0-9a-f:.]+\](?=:)")
# Some are words of templates as well, such as `true`.
_TEXTS: Final = frozenset(TEXTS)
QUOTES: Final = "'\""


class _Word:
    """A word of a line, and how it is written."""

    def __init__(self, value: str, written: str) -> None:
        self.value = value
        self.is_quoted = written[:1] in QUOTES


def words_of(line: str) -> list[_Word]:
    """Return the words of *line* as HAProxy reads them."""
    split = split_line(line)
    ends = (*split.offsets[1:], len(line))
    return [_Word(value, line[start:end]) for value, start, end in zip(split.words, split.offsets, ends, strict=True)]


@lru_cache(maxsize=200_000)
def shape(line: str) -> Shape:
    """Return the shape of a line of haproxy.cfg; empty for a comment or nothing."""
    found: list[str] = []
    flags = False
    for number, word in enumerate(words_of(line)):
        if number == 2 and found[1].endswith("-header") and _CHUNK.fullmatch(word.value.replace("!", "")):
            # The name of a header may be any word, of templates as well.
            found.append("D")
            continue
        if not word.is_quoted and word.value in ("{", "!{"):
            flags = True
        elif word.value == "--" or (not word.is_quoted and word.value == "}"):
            flags = False
        text = _word(word, may_be_flag=flags)
        if not found or found[-1] != text or not text.startswith("Q"):
            found.append(text)
    return tuple(found)


def flags_from_data(line: str) -> list[str]:
    """Return the quoted words of ACLs that HAProxy would read as flags: they begin with `-`, and no `--` is before."""
    found, inside, ended = [], False, False
    words = words_of(line)
    for number, word in enumerate(words):
        starts = not word.is_quoted and word.value in ("{", "!{")
        if starts or (number == 0 and word.value == "acl"):
            inside, ended = True, False
        elif not word.is_quoted and word.value == "}":
            inside = False
        elif inside and not word.is_quoted and word.value == "--":
            ended = True
        elif inside and not ended and word.is_quoted and word.value.startswith("-"):
            found.append(word.value)
    return found


def _word(word: _Word, *, may_be_flag: bool) -> str:
    if may_be_flag and word.value.startswith("-"):
        return word.value
    if word.is_quoted:
        # `%%` is a percent sign.
        expressions = _EXPRESSION.findall(word.value.replace("%%", ""))
        return "Q" + "".join(sorted(set(expressions)))
    text = _ADDRESS.sub("D", word.value)
    text = _CHUNK.sub(_chunk, text)
    # An exclamation mark may be part of the name of a header.
    return _TOKEN.sub(r"\1D\2", _REPEATED.sub("", text))


def _chunk(match: re.Match[str]) -> str:
    return match[0] if match[0] in tokens() and match[0] not in _TEXTS else "D"


def map_shapes(line: str) -> Iterator[Shape]:
    """Yield the shapes of the items that the value of an entry of a Gateway's map consists of."""
    _key, _, value = line.partition(" ")
    for item in _ITEM.split(value):
        operation, *more = item.split(",")
        name = operation if len(operation) <= 2 else _field(operation)
        own, numbers = more[: _OWN.get(name, len(more))], more[_OWN.get(name, len(more)) :]
        # What an expression costs at most is three numbers, or four for a polynomial of higher degree.
        if 3 <= len(numbers) <= 4 and all(map(str.isdigit, numbers)):
            numbers = ["0"]
        yield (name, *map(_field, own), *map(_field, numbers))


def _field(text: str) -> str:
    return "D" if _FIELD.fullmatch(text) else text


def sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section of a configuration, by its kind and name."""
    found: dict[str, list[str]] = {}
    current: list[str] = []
    for line in text.split("\n"):
        if line and not line[0].isspace() and line[0] not in "#.":
            current = found.setdefault(" ".join(line.split()[:2]), [])
        if line.strip() and not line.lstrip().startswith("#"):
            current.append(line)
    return found


class Learned:
    """What benign objects lead to."""

    def __init__(self) -> None:
        self.lines: set[tuple[str, Shape]] = set()
        self.items: set[Shape] = set()

    def learn(self, text: str, maps: Iterable[str]) -> None:
        """Take in a configuration, and maps with items."""
        for name, lines in sections(text).items():
            self.lines.update((name.split()[0], shape(line)) for line in lines)
        for one in maps:
            for line in filter(None, one.split("\n")):
                self.items.update(map_shapes(line))

    def unknown(self, text: str) -> list[str]:
        """Return the lines of a shape that none of those had."""
        return [
            f"{name}: {line.strip()}"
            for name, lines in sections(text).items()
            for line in lines
            if (name.split()[0], shape(line)) not in self.lines
        ]

    def unknown_items(self, text: str) -> list[str]:
        """Return the entries of a Gateway's map with an item that none of those had."""
        return [line for line in text.split("\n") if line and not self.items.issuperset(map_shapes(line))]
