"""Reader of the tags of templates, for redaction: also of those that do not compile."""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, Literal, NamedTuple, TypeAlias

from haptic_trio.redaction.names import is_secret_name

_TAG: Final = re.compile(
    r"""
    \{\#.*?(?:\#\}|\Z)
    |\{%[-+]?\s*raw\s*[-+]?%\}.*?(?:\{%[-+]?\s*endraw\s*[-+]?%\}|\Z)
    |\{\{
    |\{%
    """,
    re.VERBOSE | re.DOTALL,
)
_TOKEN: Final = re.compile(
    r"""
    (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|["'][^\n]*)
    |(?P<name>[^\W\d]\w*)
    |(?P<end>[-+]?[%}]\})
    |(?P<space>\s+)
    |(?P<mark>==|[^\s])
    """,
    re.VERBOSE | re.DOTALL,
)
OPENING: Final = frozenset("([{")
CLOSING: Final = frozenset(")]}")
_OPERATORS: Final = frozenset(("and", "else", "if", "in", "is", "not", "or"))
_Kind: TypeAlias = Literal["string", "name", "mark"]


class Token(NamedTuple):
    """A word of a tag, and where it stands."""

    kind: _Kind
    text: str
    start: int
    end: int


class Code(NamedTuple):
    """A tag, and where it stands."""

    tokens: tuple[Token, ...]
    start: int
    end: int

    @property
    def word(self) -> str:
        """Kind of the statement; empty for other text."""
        return self.tokens[0].text if self.tokens and self.tokens[0].kind == "name" else ""


def read_tags(source: str) -> Iterator[Code]:
    """Yield the tags of *source* with statements and expressions, but for those in comments and raw blocks."""
    position = 0
    while (tag := _TAG.search(source, position)) is not None:
        if len(tag[0]) > len("{{"):
            position = tag.end()
            continue
        tokens: list[Token] = []
        depth, position = 0, tag.end()
        while (match := _TOKEN.match(source, position)) is not None:
            position = match.end()
            # Within brackets two of them are the ends of two mappings.
            if match.lastgroup == "end" and not (match[0] == "}}" and depth > 0):
                break
            if match.lastgroup in ("mark", "end"):
                depth += sum((char in OPENING) - (char in CLOSING) for char in match[0])
            if match.lastgroup in ("string", "name", "mark"):
                tokens.append(Token(match.lastgroup, match[0], match.start(), match.end()))  # type: ignore[arg-type]
            elif match.lastgroup == "end":
                tokens += [Token("mark", char, match.start(), match.end()) for char in match[0]]
        if tokens and tokens[0].text in ("-", "+"):
            del tokens[0]
        yield Code(tuple(tokens), tag.start(), position)


def names_of(tokens: Iterable[Token]) -> frozenset[str]:
    """Return the names in *tokens*."""
    return frozenset(token.text for token in tokens if token.kind == "name")


def strings_in(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield where literals are in *tokens*, but for keys of mappings and what is looked up in one."""
    for number, token in enumerate(tokens):
        after = tokens[number + 1].text if number + 1 < len(tokens) else ""
        if token.kind == "string" and after != ":" and not (after == "]" and _is_looked_up(tokens, number)):
            yield token.start, token.end


def literals_in(tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """Yield `strings_in` of *tokens* and keys of mappings, but for those that are names of secrets."""
    yield from strings_in(tokens)
    for token, follower in pairwise(tokens):
        if token.kind == "string" and follower.text == ":" and not is_secret_name(token.text):
            yield token.start, token.end


def _is_looked_up(tokens: Sequence[Token], number: int) -> bool:
    """Whether the token *number* is what is looked up, and not the only item of a list."""
    bracket = number - 1
    if bracket < 1 or tokens[bracket].text != "[":
        return False
    owner = tokens[bracket - 1]
    return owner.text in CLOSING or (owner.kind == "name" and owner.text not in _OPERATORS)
