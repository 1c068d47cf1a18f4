"""Emitters: typed ways for a value to become output. Each returns `Emitted` text or raises `EmitError`.

They reject rather than mangle; where one changes the spelling (lower case,
percent-encoding, units) its docstring says so.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from haptic_trio.templating.filters.emit import EmitError, describe_chars, number_text
from haptic_trio.templating.values.text import FORBIDDEN, Emitted

_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_NOT_TOKEN: Final = re.compile(r"[^A-Za-z0-9!#$%&'*+.^_`|~-]")
_NAME: Final = re.compile(r"[A-Za-z0-9_.:][A-Za-z0-9_.:-]{0,254}").fullmatch
_NOT_NAME: Final = re.compile(r"[^A-Za-z0-9_.:-]")
_NOT_COLUMN: Final = re.compile(FORBIDDEN.pattern[:-1] + r"\s]")
_NOT_PATH: Final = re.compile(FORBIDDEN.pattern[:-1] + r"\s#?\"'\\$<>{}|^`\[\]]")
_EXPRESSION: Final = re.compile(r"[\\$^|\[\]{}]")
_STRAY_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_LABEL: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?").fullmatch
_LABELS: Final = "labels of 1 to 63 letters, digits and inner '-', with '.' between them, and 253 characters at most"
_NOT_HOST: Final = re.compile(r"[^A-Za-z0-9.*-]")
_SPECIAL: Final = re.compile(r"([\\.^$*+?{}\[\]|()#&~ -])")
_DURATION_PART: Final = re.compile(r"([0-9]{1,12})(us|ms|s|m|h|d)")
_UNIT_US: Final = {"us": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}
_LONGEST_US: Final = 2_147_483_647_000  # HAProxy counts milliseconds in a signed 32-bit number
_SIZE: Final = re.compile(r"([0-9]{1,12})([kKmMgG]?)").fullmatch
_WHOLE: Final = re.compile(r"-?[0-9]{1,30}").fullmatch


def word(value: Any) -> Emitted:
    """One word of haproxy.cfg, in strong quotes: nothing inside is expanded.

    An empty word is rejected, since HAProxy would end the line's arguments
    there; so is a lone `}`, which ends an anonymous ACL even when quoted.
    """
    return _quoted(_text(value, "word"), "word")


def pattern(value: Any) -> Emitted:
    """A pattern of an ACL, behind `--`: it is compared as it is and never read as a flag such as `-i` or `-f`.

    Write it after the last flag: `{ req.hdr(x) -m str {{ value | pattern }} }`.
    """
    return Emitted("-- " + _quoted(_text(value, "pattern"), "pattern"))


def logformat(value: Any) -> Emitted:
    """One word that is a log-format string and stands for *value* literally."""
    return _quoted(_text(value, "logformat").replace("%", "%%"), "logformat")


def regex(value: Any) -> Emitted:
    """One word that is a regular expression and matches exactly *value*."""
    return _quoted(regex_escape(_text(value, "regex")), "regex")


def regex_escape(value: Any) -> str:
    """Return *value* as part of a regular expression, still data: `("^" ~ (host | regex_escape) ~ "$") | word`."""
    return _SPECIAL.sub(r"\\\1", _text(value, "regex_escape"))


def map_key(value: Any) -> Emitted:
    """The first column of a map file."""
    text = _without(_text(value, "map_key"), "map_key", _NOT_COLUMN)
    if text.startswith("#"):
        raise EmitError("map_key: the value begins with '#', which starts a comment in a map file")
    return Emitted(text)


def map_value(value: Any) -> Emitted:
    """The second column of a map file: HAProxy takes all up to the end of the line, so blanks inside are fine."""
    text = _without(_text(value, "map_value"), "map_value", FORBIDDEN)
    if text != text.strip():
        raise EmitError("map_value: the value begins or ends with a blank, which HAProxy would drop")
    return Emitted(text)


def map_field(value: Any) -> Emitted:
    """A field in the second column of a map file, for Lua to decode: percent-encoded, so no separator is in it."""
    return Emitted(quote(_without(_text(value, "map_field"), "map_field", FORBIDDEN), safe=""))


def header_name(value: Any) -> Emitted:
    """A header's name (RFC 9110 token), of those characters that HAProxy does not treat specially."""
    text = header_token(value, "header_name")
    if text.startswith("-"):
        raise EmitError("header_name: the value begins with '-', which HAProxy reads as a flag")
    rejected = re.compile(r"[#$%&'`|]")
    if rejected.search(text):
        raise EmitError(f"header_name: the value contains {describe_chars(text, rejected)}")
    return Emitted(text)


def header_token(value: Any, emitter: str) -> str:
    """Return *value*, a header's name (RFC 9110 token) of any characters, still data; `EmitError` names *emitter*."""
    text = _text(value, emitter)
    if not _TOKEN(text):
        raise EmitError(f"{emitter}: the value contains {describe_chars(text, _NOT_TOKEN)}")
    return text


def url_path(value: Any) -> Emitted:
    """A path, for maps and path matches. Characters beyond ASCII become percent-encoded UTF-8, as clients send them."""
    text = _text(value, "url_path")
    hint = "a path is not a regular expression" if _EXPRESSION.search(text) else "write it as % and two digits"
    text = _without(text, "url_path", _NOT_PATH, hint)
    if not text.startswith("/"):
        raise EmitError("url_path: the value does not begin with '/'")
    if _STRAY_PERCENT.search(text):
        raise EmitError(f"url_path: the value contains {describe_chars(text, _STRAY_PERCENT)}", "write it as %25")
    return Emitted("".join(c if c.isascii() else "".join(f"%{byte:02X}" for byte in c.encode()) for c in text))


def hostname(value: Any) -> Emitted:
    """A host name (RFC 1123), which may begin with `*.`; in lower case. International names as `xn--` labels only."""
    text = _text(value, "hostname")
    if found := _NOT_HOST.search(text):
        hint = _LABELS if found[0].isascii() else "write labels with other letters as xn--…"
        if found[0] in ":/":
            hint = "a host alone, without scheme, port and path"
        raise EmitError(f"hostname: the value contains {describe_chars(text, _NOT_HOST)}", hint)
    text = text.lower()
    labels = text.removeprefix("*.").split(".")
    if "*" in text.removeprefix("*."):
        raise EmitError(
            "hostname: the value contains '*' in another place than the first label", "such as *.example.com"
        )
    if len(text) > 253 or not all(_LABEL(label) for label in labels):
        raise EmitError(
            "hostname: the value is not a host name",
            _LABELS,
        )
    return Emitted(text)


def name(value: Any) -> Emitted:
    """A name as HAProxy allows it for proxies, servers and the like."""
    text = _text(value, "name")
    if not _NAME(text):
        found = _NOT_NAME.search(text)
        problem = f"holds {describe_chars(text, _NOT_NAME)}" if found else "begins with '-' or is too long"
        raise EmitError(f"name: the value {problem}", "ident(…) makes a valid name of any text")
    return Emitted(text)


def address(value: Any, brackets: bool = False) -> Emitted:
    """An IP address in its canonical spelling; with *brackets* an IPv6 address is put in `[]`."""
    text = _text(value, "address")
    try:
        parsed = ipaddress.ip_address(text)
    except ValueError:
        raise EmitError("address: the value is not an IP address") from None
    if parsed.version == 6 and parsed.scope_id:
        raise EmitError("address: the value has a zone, which HAProxy does not support")
    return Emitted(f"[{parsed}]" if brackets and parsed.version == 6 else str(parsed))


def integer(value: Any, min: int | None = None, max: int | None = None) -> Emitted:  # noqa: A002  named as templates say it
    """A whole number between *min* and *max*."""
    return Emitted(str(_whole(value, "integer", min, max)))


def port(value: Any) -> Emitted:
    """A port, 1 to 65535."""
    return Emitted(str(_whole(value, "port", 1, 65_535)))


def duration(value: Any) -> Emitted:
    """A time with its unit, such as `30s`, of at most 24.8 days. `1m30s` is written in one unit."""
    text = _text(value, "duration")
    if text == "0":
        return Emitted("0")
    micros = microseconds(text)
    if len(_DURATION_PART.findall(text)) == 1:
        return Emitted(text)
    largest = next(unit for unit in ("d", "h", "m", "s", "ms", "us") if micros % _UNIT_US[unit] == 0)
    return Emitted(f"{micros // _UNIT_US[largest]}{largest}")


def microseconds(text: str) -> int:
    """Return the microseconds of a time with its unit; raises `EmitError`."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise EmitError("duration: the value is not a duration", "a number and one of us, ms, s, m, h, d, such as 30s")
    micros = sum(int(number) * _UNIT_US[unit] for number, unit in parts)
    if micros > _LONGEST_US:
        raise EmitError("duration: the value is longer than 24.8 days, the longest that HAProxy can count")
    return micros


def size(value: Any) -> Emitted:
    """A size: a number of bytes or entries, which may end in `k`, `m` or `g`."""
    text = _text(value, "size")
    match = _SIZE(text)
    if not match or int(match.group(1)) << {"": 0, "k": 10, "m": 20, "g": 30}[match.group(2).lower()] >= 1 << 32:
        raise EmitError("size: the value is not a size below 4g", "a number, which may end in k, m or g")
    return Emitted(text)


def _text(value: Any, emitter: str) -> str:
    text = str(value) if isinstance(value, str) else number_text(value, emitter)
    if not text:
        raise EmitError(f"{emitter}: the value is empty", "use | default(…, true), or test it with `if` first")
    return text


def _without(text: str, emitter: str, pattern: re.Pattern[str], hint: str = "") -> str:
    if pattern.search(text):
        raise EmitError(f"{emitter}: the value contains {describe_chars(text, pattern)}", hint)
    return text


def _quoted(text: str, emitter: str) -> Emitted:
    _without(text, emitter, FORBIDDEN)
    if text == "}":
        raise EmitError(f"{emitter}: the value is a lone '}}', which would end an anonymous ACL")
    return Emitted("'" + text.replace("'", "'\\''") + "'")


def _whole(value: Any, emitter: str, low: int | None, high: int | None) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        text = "" if isinstance(value, bool) else _text(value, emitter)
        if not _WHOLE(text):
            raise EmitError(f"{emitter}: the value is not a whole number")
        value = int(text)
    if (low is not None and value < low) or (high is not None and value > high):
        bounds = f"{'' if low is None else low} to {'' if high is None else high}"
        raise EmitError(f"{emitter}: the value is not within {bounds.strip()}")
    return int(value)


EMITTERS: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        word, pattern, logformat, regex, regex_escape, map_key, map_value, map_field, header_name, url_path, hostname,
        name, address, integer, port, duration, size,
    )
}  # fmt: skip
