"""Redaction of credentials in template sources and configurations, of which problems quote lines.

Template authors should take credentials from Secrets, but may write them
down. Problems are printed, logged, shown by the console and sent to API
clients, so every literal that may be a credential is replaced:

- the arguments `auth=` and `headers=`, and the variables, macros and
  arguments of macros of the same template that these arguments are made of
- the value after a name such as `token`, `password` or `Authorization`
- user, password and query of URLs
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

BLANK: Final = "…"
_LONGEST: Final = 1 << 20
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
_ARGUMENTS: Final = frozenset({"auth", "headers"})
_SECRET_NAME: Final = re.compile(
    r"(?:password|passwd|passphrase|token|secret|authori[sz]ation|credential|bearer|cookie|private[-_]?key|api[-_]?key)s?",
    re.IGNORECASE,
)
_COMMENTED: Final = re.compile(r"\b(?P<name>auth|headers)(?P<between>\s*=\s*)\{[^{}]*:\s*(?:\[\s*)?[\"'][^{}]*\}?")
_WORD: Final = re.compile(r"\S+").finditer
_OPENING: Final = frozenset("([{")
_CLOSING: Final = frozenset(")]}")
_OPERATORS: Final = frozenset(("and", "else", "if", "in", "is", "not", "or"))
_URL: Final = re.compile(
    r"(?P<scheme>\b[A-Za-z][A-Za-z0-9+.-]{0,20}://)(?P<user>[^\s/@'\"]{1,1000}@)?(?P<rest>[^\s?'\"]*)(?P<query>\?[^\s'\"]*)?"
)
_WRITTEN: Final = re.compile(
    rf"""
    (?P<before>
        {_SECRET_NAME.pattern}['"]?[ \t]*(?:=(?!=)|:)[ \t]*(?=['"])
        |^[ \t]*user[ \t]+\S+[ \t]+(?:groups[ \t]+\S+[ \t]+)?(?:insecure-)?password[ \t]+
        |^[ \t]*stats[ \t]+auth[ \t]+
        |^[ \t]*(?:pre)?setenv[ \t]+(?=\S*?{_SECRET_NAME.pattern})\S+[ \t]+
        |\b(?:set|add)-header[ \t]+['"]?(?:proxy-)?authorization['"]?[ \t]+
    )
    (?P<value>"[^"\n]*"|'[^'\n]*'|(?!\{{[{{%])\S+)
    """,
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_SETTING: Final = re.compile(
    rf"^(?P<key>[ \t]*(?:-[ \t]+)?['\"]?[\w.-]*{_SECRET_NAME.pattern}['\"]?[ \t]*:[ \t]+)(?![|>&*!{{\[]).+$",
    re.IGNORECASE | re.MULTILINE,
)
_SCHEMES: Final = re.compile(r"\b(?P<name>Bearer|Basic)[ ]+(?!\{\{)[^\s'\"]+", re.IGNORECASE)

_Kind: TypeAlias = Literal["string", "name", "mark"]


class _Token(NamedTuple):
    kind: _Kind
    text: str
    start: int
    end: int


class _Code(NamedTuple):
    """A tag, and where it stands."""

    tokens: tuple[_Token, ...]
    start: int
    end: int

    @property
    def word(self) -> str:
        """Kind of the statement; empty for other text."""
        return self.tokens[0].text if self.tokens and self.tokens[0].kind == "name" else ""


class _Assignment(NamedTuple):
    """Something that gives *names* a value: *tokens*, and the tags and the text between two tags."""

    names: frozenset[str]
    tokens: Sequence[_Token]
    first: int = 0
    """Number of the first tag."""
    end: int = 0
    """Number of the last one."""
    calls: str = ""
    """Macro whose arguments are a part of the value."""


def is_secret_name(name: str) -> bool:
    """Whether the value of a field with this *name* may be a credential."""
    return _SECRET_NAME.search(name) is not None


def without_credentials(source: str) -> str:
    """Return the template *source* with `…` in place of what may be a credential; lines stay where they are.

    Of one that is very long nothing is left but its lines.
    """
    if len(source) > _LONGEST:
        return "\n" * source.count("\n")
    codes = list(_read(source))
    spans = set(_find_spans(codes))
    by_name: dict[str, list[_Assignment]] = {}
    for one in _assignments(codes):
        for name in one.names:
            by_name.setdefault(name, []).append(one)
    pending = [name for code in codes for name in _names_given(code.tokens)]
    parts = _Parts(len(codes))
    while pending:
        for one in by_name.pop(pending.pop(), ()):
            tokens = [one.tokens]
            for number in parts.take(one.first, one.end):
                tokens.append(codes[number].tokens)
                after, before = codes[number].end, codes[number + 1].start
                spans.update((after + word.start(), after + word.end()) for word in _WORD(source[after:before]))
            for each in tokens:
                spans.update(_strings(each))
                pending += (token.text for token in each if token.kind == "name" and token.text in by_name)
            pending += [f"{one.calls}("] if one.calls else []
    return _plain(_blanked(source, spans))


class _Parts:
    """Tags and the text after each, of which each is taken once, however many ranges it is in."""

    def __init__(self, count: int) -> None:
        self._next = list(range(count + 1))

    def take(self, first: int, end: int) -> Iterator[int]:
        """Yield the numbers from *first* to before *end* that were not taken before."""
        while (number := self._find(first)) < end:
            self._next[number] = number + 1
            yield number

    def _find(self, number: int) -> int:
        while (following := self._next[number]) != number:
            self._next[number] = self._next[following]
            number = following
        return number


@lru_cache(maxsize=256)
def shown_source(source: str) -> str:
    """Return `without_credentials` of a template, of which many lines may be asked for."""
    return without_credentials(source)


def without_credentials_in_yaml(text: str) -> str:
    """Return *text*, a YAML document that may contain templates, with credentials replaced by `…`."""
    return _SETTING.sub(rf"\g<key>{BLANK}", without_credentials(text))


def _read(source: str) -> Iterator[_Code]:
    position = 0
    while (tag := _TAG.search(source, position)) is not None:
        if len(tag[0]) > len("{{"):
            position = tag.end()
            continue
        tokens: list[_Token] = []
        depth, position = 0, tag.end()
        while (match := _TOKEN.match(source, position)) is not None:
            position = match.end()
            # Within brackets two of them are the ends of two mappings.
            if match.lastgroup == "end" and not (match[0] == "}}" and depth > 0):
                break
            if match.lastgroup in ("mark", "end"):
                depth += sum((char in _OPENING) - (char in _CLOSING) for char in match[0])
            if match.lastgroup in ("string", "name", "mark"):
                tokens.append(_Token(match.lastgroup, match[0], match.start(), match.end()))  # type: ignore[arg-type]
            elif match.lastgroup == "end":
                tokens += [_Token("mark", char, match.start(), match.end()) for char in match[0]]
        if tokens and tokens[0].text in ("-", "+"):
            del tokens[0]
        yield _Code(tuple(tokens), tag.start(), position)


def _find_spans(codes: Iterable[_Code]) -> Iterator[tuple[int, int]]:
    """Yield the positions of literals whose preceding name is that of a secret."""
    for code in codes:
        for value in _values(code.tokens, lambda token: _SECRET_NAME.search(token.text) is not None):
            yield from _strings(value)


def _names_given(tokens: Sequence[_Token]) -> Iterator[str]:
    """Yield the names in what is given to `auth=` and `headers=`."""
    for value in _values(tokens):
        yield from (token.text for token in value if token.kind == "name")


def _values(
    tokens: Sequence[_Token], is_name: Callable[[_Token], bool] = lambda _token: False
) -> Iterator[Sequence[_Token]]:
    """Yield the values of `auth=` and `headers=`, and of tokens that satisfy *is_name*; values do not nest."""
    number = 0
    while number < len(tokens) - 1:
        token, follower = tokens[number], tokens[number + 1].text
        number += 1
        if token.kind == "mark" or follower not in (":", "="):
            continue
        is_given = token.text.strip("'\"") in _ARGUMENTS and (follower == "=" or token.kind == "string")
        if is_given or is_name(token):
            end = _end_of_value(tokens, number + 1)
            yield tokens[number + 1 : end]
            number = end


def _end_of_value(tokens: Sequence[_Token], start: int) -> int:
    """Return where the expression ends that begins at *start*: at the comma or bracket after it."""
    depth = 0
    for number in range(start, len(tokens)):
        token = tokens[number]
        if token.kind != "mark":
            continue
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if depth < 0 or (depth == 0 and token.text == ","):
            return number
    return len(tokens)


def _assignments(codes: Sequence[_Code]) -> Iterator[_Assignment]:
    ends = _find_ends(codes)
    for number, code in enumerate(codes):
        tokens = code.tokens
        split = _split_of(tokens)
        if code.word in ("set", "for", "with", "do") and split is not None:
            yield _Assignment(_names(tokens[1:split]), tokens[split:])
        elif code.word in ("set", "macro"):
            yield _Assignment(_names(tokens[1:2]), tokens[2:], number, ends[number])
        elif code.word == "call":
            yield _Assignment(frozenset({"caller"}), tokens[1:], number, ends[number])
        if code.word == "macro" and len(tokens) > 1:
            parameters = _names(tokens[2:]) | {"kwargs", "varargs"}
            yield _Assignment(parameters, tokens[2:], calls=tokens[1].text)
        if code.word == "with":
            at = 1
            while at < len(tokens) - 1:
                if tokens[at].kind == "name" and tokens[at + 1].text == "=":
                    end = _end_of_value(tokens, at + 2)
                    yield _Assignment(frozenset({tokens[at].text}), tokens[at + 2 : end])
                    at = end
                at += 1
    macros = {code.tokens[1].text for code in codes if code.word == "macro" and len(code.tokens) > 1}
    for code in codes:
        yield from _arguments(code.tokens, macros)


def _find_ends(codes: Sequence[_Code]) -> list[int]:
    """Return for each tag the number of the next one that ends a block of its kind; without one, that of the last."""
    found, ends = dict[str, int](), [0] * len(codes)
    for number in range(len(codes) - 1, -1, -1):
        found[codes[number].word] = number
        ends[number] = found.get(f"end{codes[number].word}", len(codes) - 1)
    return ends


def _split_of(tokens: Sequence[_Token]) -> int | None:
    """Return where `=` or `in` follows the names of a tag."""
    depth = 0
    for number, token in enumerate(tokens):
        depth += (token.text in _OPENING) - (token.text in _CLOSING)
        if depth == 0 and token.text in ("=", "in"):
            return number
    return None


def _arguments(tokens: Sequence[_Token], macros: Collection[str]) -> Iterator[_Assignment]:
    """Yield what calls of *macros* give to them: what is in the arguments, but not in those of a call within."""
    calls: list[list[_Token] | None] = [None]
    for number, token in enumerate(tokens):
        if calls[-1] is not None:
            calls[-1].append(token)
        if token.text in _OPENING:
            name = tokens[number - 1].text if number and token.text == "(" else ""
            given: list[_Token] | None = [] if name in macros else calls[-1]
            calls.append(given)
            if name in macros and given is not None:
                yield _Assignment(frozenset({f"{name}("}), given)
        elif token.text in _CLOSING and len(calls) > 1:
            calls.pop()


def _names(tokens: Iterable[_Token]) -> frozenset[str]:
    return frozenset(token.text for token in tokens if token.kind == "name")


def _strings(tokens: Sequence[_Token]) -> Iterator[tuple[int, int]]:
    """Yield where literals are in *tokens*, but for keys of mappings and what is looked up in one."""
    for number, token in enumerate(tokens):
        after = tokens[number + 1].text if number + 1 < len(tokens) else ""
        if token.kind == "string" and after != ":" and not (after == "]" and _is_looked_up(tokens, number)):
            yield token.start, token.end


def _is_looked_up(tokens: Sequence[_Token], number: int) -> bool:
    """Whether the token *number* is what is looked up, and not the only item of a list."""
    bracket = number - 1
    if bracket < 1 or tokens[bracket].text != "[":
        return False
    owner = tokens[bracket - 1]
    return owner.text in _CLOSING or (owner.kind == "name" and owner.text not in _OPERATORS)


def _blanked(source: str, spans: Iterable[tuple[int, int]]) -> str:
    parts, position = [], 0
    for start, end in sorted(spans):
        if start < position:
            continue
        quote = source[start] if source[start] in "\"'" else ""
        breaks = "\n" * source.count("\n", start, end)
        parts += [source[position:start], quote, BLANK, breaks, quote]
        position = end
    return "".join(parts) + source[position:]


def _plain(text: str) -> str:
    text = _URL.sub(_without_userinfo, text)
    text = _COMMENTED.sub(_without_mapping, text)
    text = _SCHEMES.sub(rf"\g<name> {BLANK}", text)
    return _WRITTEN.sub(_without_value, text)


def _without_userinfo(match: re.Match[str]) -> str:
    user, query = f"{BLANK}@" if match["user"] else "", f"?{BLANK}" if match["query"] else ""
    return f"{match['scheme']}{user}{match['rest']}{query}"


def _without_mapping(match: re.Match[str]) -> str:
    # What is left to blank is in comments; in code it has been done, and everything but literals is worth showing.
    if BLANK in match[0]:
        return match[0]
    breaks = "\n" * match[0].count("\n")
    return f"{match['name']}{match['between']}{{{BLANK}{breaks}}}"


def _without_value(match: re.Match[str]) -> str:
    value = match["value"]
    if BLANK in value:
        return match[0]
    quote = value[0] if value[0] in "\"'" else ""
    return f"{match['before']}{quote}{BLANK}{quote}"
