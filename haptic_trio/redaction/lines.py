"""Search for what follows the name of a secret on a line of a template."""

import re
import string
from collections.abc import Iterator, Sequence
from typing import Final

from haptic_trio.redaction.names import SECRET_NAME, is_secret_name
from haptic_trio.redaction.tags import Code, Token, names_of, strings_in

_PIECE: Final = re.compile(r"\{\#.*?(?:\#\}|\Z)|[^\n{]+|.", re.DOTALL)
_KEY: Final = re.compile(r"[\w./-]{0,100}\\?['\"]?[ \t]*:(?=[\s'\"]|\Z)")
_END_OF_NAME: Final = re.compile(r"[\w-]*['\")\]:=,]*")
_BEFORE_NAME: Final = "-_.(" + string.ascii_letters + string.digits
_MESSAGES: Final = frozenset({"fail", "warn"})
"""Functions whose texts are prose."""


def find_in_lines(source: str, codes: Sequence[Code]) -> Iterator[tuple[int, int] | str]:
    """Yield what follows the name of a secret on a line of text: positions, and names in tags."""
    is_after, position = False, 0
    for number in range(len(codes) + 1):
        code = codes[number] if number < len(codes) else None
        for piece in _PIECE.finditer(source, position, code.start if code else len(source)):
            if piece[0].startswith("{#") or piece[0] == "\n":
                is_after = is_after and "\n" not in piece[0]
                continue
            spans = _find_after_name(piece[0], is_after)
            is_after = is_after or spans is not None
            yield from ((piece.start() + start, piece.start() + end) for start, end in spans or ())
        if code is None:
            return
        yield from _find_in_tag(code.tokens, is_after)
        if is_after and source.startswith("{{", code.start):
            yield from names_of(code.tokens)
        position = code.end


def _find_in_tag(tokens: Sequence[Token], is_after: bool) -> Iterator[tuple[int, int]]:
    """Yield the positions of literals in a tag that follow the name of a secret, in a literal or before the tag."""
    if not is_after and any(token.text in _MESSAGES for token in tokens):
        return
    for number, token in enumerate(tokens):
        if token.kind != "string":
            continue
        if is_after:
            yield from strings_in(tokens[number:])
            return
        spans = _find_after_name(token.text, False) if " " in token.text else None
        is_after = spans is not None
        yield from ((token.start + start, token.start + end) for start, end in spans or ())
        value = tokens[number + 2] if number + 2 < len(tokens) and tokens[number + 1].text == "," else None
        if value is not None and value.kind == "string" and tokens[number - 1].text == "(" and _names(token, value):
            yield value.start, value.end


def _names(name: Token, value: Token) -> bool:
    return is_secret_name(name.text) and not is_secret_name(value.text)


def _find_after_name(text: str, is_after: bool) -> list[tuple[int, int]] | None:
    """Return the positions of what may be a credential in *text* of a line; None unless it has the name of a secret.

    *is_after*: whether a name is before *text*.
    """
    found, start = [], 0
    if not is_after:
        name = next((one for one in SECRET_NAME.finditer(text) if not _KEY.match(text, one.end())), None)
        if name is None:
            return None
        # Values may be in the word before the name, as in `str(VALUE),strcmp(txn.token)`.
        before = text[: name.start()].rstrip(_BEFORE_NAME)
        found.append((max(before.rfind(" "), before.rfind("\t")) + 1, len(before)))
        rest = _END_OF_NAME.match(text, name.end())
        start = rest.end() if rest is not None else name.end()
    end = len(text.rstrip().rstrip("\"'"))
    found.append((start + len(text[start:end]) - len(text[start:end].lstrip()), end))
    return [(first, last) for first, last in found if any(map(str.isalnum, text[first:last]))]
