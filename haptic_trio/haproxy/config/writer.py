"""Writer for haproxy.cfg, with minimal quoting: HAProxy reads the text back as the same words."""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from haptic_trio.haproxy.model import Config, Directive

# Printable ASCII characters without a special meaning for HAProxy's lexer, and all characters beyond ASCII.
_SAFE: Final = re.compile("[!$%&()*+,\\-./0-9:;<=>?@A-Z\\[\\]^_`a-z{|}~\x80-\ud7ff\ue000-\U0010ffff]+")
# Characters that need an escape, since strong quotes cannot contain them.
_ESCAPED: Final = re.compile("([\x01-\x1f\x7f']|[\udc80-\udcff])")
_NAMED_ESCAPES: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "'": "\\'"}


def quote_word(word: str) -> str:
    """Return *word* quoted, where needed, so that HAProxy reads exactly this word.

    Control characters and bytes that are not UTF-8 (surrogate escapes) become
    escapes. Raises ValueError for a word with a NUL character, which a
    configuration cannot contain.
    """
    if _SAFE.fullmatch(word):
        return word
    if "\0" in word:
        raise ValueError("a word of haproxy.cfg cannot hold a NUL character")
    if not word:
        return "''"
    return "".join(_quote_piece(piece) for piece in _ESCAPED.split(word) if piece)


def _quote_piece(piece: str) -> str:
    if _SAFE.fullmatch(piece):
        return piece
    if not _ESCAPED.fullmatch(piece):
        return f"'{piece}'"
    if piece in _NAMED_ESCAPES:
        return _NAMED_ESCAPES[piece]
    return f"\\x{ord(piece) & 0xFF:02x}"


def write_config(config: Config) -> str:
    """Return the text of *config*: a blank line between sections, directives indented, no comments."""
    blocks = ["\n".join(map(write_directive, config.preamble))] if config.preamble else []
    blocks += ["\n".join(_lines(section.header, section.directives)) for section in config.sections]
    return "\n\n".join(blocks) + "\n" if blocks else ""


def write_directive(directive: Directive) -> str:
    """Return one line, without indentation and line feed."""
    if not directive.raw:
        return " ".join(map(quote_word, directive.words))
    return " ".join(word if index in directive.raw else quote_word(word) for index, word in enumerate(directive.words))


def _lines(header: Directive, directives: Iterable[Directive]) -> Iterator[str]:
    yield write_directive(header)
    for directive in directives:
        yield "  " + write_directive(directive)
