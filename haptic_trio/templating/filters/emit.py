"""Output check: trusted text, and bare values that cannot be read as HAProxy syntax.

Every `{{ expression }}` passes through `emit`. Text that the template's author
wrote, or that an emitter made, is `Emitted` and passes. A plain string is
data: it passes only if no character of it could end a word, open a quote,
start a comment, an expansion or a log-format expression, or join it with
adjacent text into a list. Operations on strings return plain strings; only
concatenation of trusted parts returns trusted text.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from jinja2 import StrictUndefined, Undefined

from haptic_trio.templating.incremental.recorder import current_recorder
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.values.text import SENTINELS, Emitted

# Not in the set although most of HAProxy takes them for granted: `,` (lists of addresses, arguments of
# converters), `@` (`unix@`, `fd@`, `env@` in addresses) and `~`. A leading `-` would be a flag, and an
# empty value would let the words that follow move up.
_BARE: Final = re.compile(r"[A-Za-z0-9_.:/*+=][A-Za-z0-9_.:/*+=-]*").fullmatch
_BARE_CHARS: Final = re.compile(r"[^A-Za-z0-9_.:/*+=-]")

_NAMES: Final = {"\n": "newline", "\r": "carriage return", "\t": "tab", "\0": "NUL", " ": "space"}
_BARE_HINT: Final = "choose an emitter: | word, | logformat, | map_key, | hostname, | name, ident(…) …"


class EmitError(TemplateFaultError):
    """A value cannot become output; trying again helps after the object has changed.

    The message names characters and positions, never the value: it may come from a Secret.
    """

    value: str | None = None
    """The value that the filter got, to find the field that it comes from; never shown by itself."""


def emit(value: Any, place: str = "") -> str:
    """Return *value* as output, or raise `EmitError`; *place* is the expression as its author wrote it."""
    kind = type(value)
    if kind is Emitted:
        return value  # type: ignore[no-any-return]
    if kind is str:
        if _BARE(value):
            return value  # type: ignore[no-any-return]
        error = _bare_error(value, place)
        error.value = value
        raise error
    if kind is int:
        return int.__repr__(value)
    return _emit_other(value, place)


def _emit_other(value: Any, place: str) -> str:
    # Only an inline `if` without `else` makes the lenient kind.
    if type(value) is Undefined:
        return ""
    if isinstance(value, str):
        return emit(str(value), place)
    return number_text(value, place)


def number_text(value: Any, place: str) -> str:
    """Return a number or boolean as HAProxy writes it, or raise."""
    if isinstance(value, StrictUndefined):
        str(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, float) and math.isfinite(value):
        return repr(float(value))
    named = f"`{place}`" if place else "the value"
    if value is None or isinstance(value, Undefined):
        raise EmitError(f"{named} is null", "use | default(…), or test it with `if` first")
    raise EmitError(f"{named} is a {type(value).__name__}, not text", "output its fields, or use | join(…)")


def _bare_error(value: str, place: str) -> EmitError:
    named = f"`{place}`" if place else "the value"
    if not value:
        return EmitError(f"{named} is empty", "use | default(…, true), or test it with `if` first")
    found = list(_BARE_CHARS.finditer(value))
    if not found:
        return EmitError(f"{named} begins with '-', which HAProxy could take for a flag", "use | word")
    return EmitError(f"{named} contains {describe_chars(value, _BARE_CHARS)}", _BARE_HINT)


def describe_chars(value: str, pattern: re.Pattern[str]) -> str:
    """Name the first few kinds of characters in *value* that *pattern* finds, with their positions."""
    first: dict[str, int] = {}
    for match in pattern.finditer(value):
        first.setdefault(match.group(), match.start() + 1)
        if len(first) > 3:
            break
    named = [f"{char_name(char)} at character {position}" for char, position in list(first.items())[:3]]
    return ", ".join(named) + (", …" if len(first) > 3 else "")


def char_name(char: str) -> str:
    """Return a name for *char* that is printable itself."""
    if char in _NAMES:
        return f"a {_NAMES[char]}"
    if char.isascii() and char.isprintable():
        return f"{char!r}"
    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X}" + (f" ({name})" if name else "")


def concat(pieces: Iterable[str]) -> Emitted:
    """Join finished pieces of output; the result of a macro or block."""
    parts = pieces if isinstance(pieces, list) else list(pieces)
    current_recorder().build(sum(map(len, parts)))
    return Emitted("".join(parts))


def join_parts(parts: Iterable[Any]) -> str:
    """`a ~ b ~ …`: trusted if every part is trusted."""
    trusted = True
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            trusted = trusted and type(part) is Emitted
            texts.append(part)
        elif type(part) is Undefined:
            continue
        else:
            texts.append(number_text(part, "a part of ~"))
    current_recorder().build(sum(map(len, texts)))
    text = "".join(texts)
    return Emitted(text) if trusted else text


def trust(value: Any) -> Any:
    """Return *value* with every string in it marked as trusted; for values that the administrator wrote.

    Not reachable from templates. Raises `EmitError` for text that contains
    the engine's private marks.
    """
    if isinstance(value, str):
        if re.search(f"[{SENTINELS}]", value):
            raise EmitError(f"the value contains {describe_chars(value, re.compile(f'[{SENTINELS}]'))}")
        return Emitted(value)
    if isinstance(value, Mapping):
        return {trust(key): trust(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [trust(item) for item in value]
    return value
