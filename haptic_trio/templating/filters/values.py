"""Filters for values in the notation of annotations: switches, lists, networks, sizes, path patterns.

Each either means one thing to HAProxy or raises `EmitError`; what a filter
returns as `Emitted` is one word of haproxy.cfg or of a map.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from haptic_trio.gateway import connection_headers
from haptic_trio.ingress.served import PATTERN_TAILS
from haptic_trio.templating.filters.content import b64decode
from haptic_trio.templating.filters.emit import EmitError, number_text
from haptic_trio.templating.filters.emitters import (
    duration,
    header_token,
    hostname,
    integer,
    microseconds,
    pattern,
    port,
    regex_escape,
    size,
    url_path,
    word,
)
from haptic_trio.templating.filters.origins import ORIGINS
from haptic_trio.templating.filters.request_paths import PATHS
from haptic_trio.templating.incremental.recorder import CURRENT
from haptic_trio.templating.values.text import Emitted

_ON: Final = frozenset({"true", "on", "yes", "1"})
_OFF: Final = frozenset({"false", "off", "no", "0"})
_SHORTEST_RATE_PERIOD: Final = 100_000
"""Microseconds."""
_BYTES: Final = re.compile(r"([0-9]{1,12})([kKmMgG]?)").fullmatch
_SHIFT: Final = {"": 0, "k": 10, "m": 20, "g": 30}
_MOST_BYTES: Final = 1 << 40
_TARGET: Final = re.compile(r"(?:https?://[A-Za-z0-9.\[\]:$_-]+)?(?:/[A-Za-z0-9._~:/?#@!&()*+,;=%$-]*)?").fullmatch
_REWRITE: Final = re.compile(r"/[A-Za-z0-9._~:/@!&()*+,;=%$-]*").fullmatch
_VARIABLE: Final = re.compile(r"\$(\w*)")
_VARIABLES: Final = {"request_uri": "%[pathq]", "host": "%[var(txn.host)]", "scheme": "%[var(txn.scheme)]"}
# HAProxy hashes what each request says, and nothing else meanwhile: 5,000 rounds, as crypt(3) has, take it 2 ms for a
# usual password, and 4 ms for one of 72 bytes, the longest that the macro `has_password` has it hash by default.
_MOST_ROUNDS_OF_HASH: Final = 5_000
_CRYPT: Final = re.compile(
    r"\$(?:1|[56](?:\$rounds=([0-9]{4,9}))?)\$[./A-Za-z0-9]{1,16}\$(?:[./A-Za-z0-9]{22}|[./A-Za-z0-9]{43}|[./A-Za-z0-9]{86})"
).fullmatch
_USER: Final = re.compile(r"[A-Za-z0-9._@+-]{1,64}").fullmatch
_MOST_USERS: Final = 1_000
# HAProxy hashes once for each user whenever it reads a configuration; a million rounds take it two thirds of a second.
_MOST_ROUNDS: Final = 1_000_000
# Lighttpd and PHP make `_` of other characters as well.
_DASH: Final = "[^a-z0-9]"
_RESPELLED: Final = "(?=.*[^a-z0-9-])"
_ROUNDS: Final = {"$1": 1_000, "$5": 5_000, "$6": 5_000}


class PathPattern(NamedTuple):
    """A path that may end in a regular expression."""

    prefix: str
    """Its beginning; still data."""
    regex: Emitted
    """A word that is a regular expression and matches it, with its groups."""
    pattern: Emitted
    """The same as a pattern of an ACL, behind `--`."""
    groups: int


def switch(value: Any) -> bool:
    """Whether *value* is a true value; anything but a true or false value is rejected."""
    text = _text(value, "switch").lower()
    if text not in _ON | _OFF:
        raise EmitError("switch: the value is neither true nor false")
    return text in _ON


def choice(value: Any, options: Any) -> Any:
    """*value* if it is one of *options*; of a mapping, what that has for it."""
    text = _text(value, "choice")
    if not isinstance(options, Iterable) or text not in options:
        raise EmitError(f"choice: the value is not one of {', '.join(sorted(map(str, options)))}")
    return options[text] if isinstance(options, Mapping) else Emitted(text)


def words(value: Any, separator: str = ",") -> list[str]:
    """The parts of a list in one text, stripped, without empty ones; still data."""
    return [part.strip() for part in _text(value, "words").split(separator) if part.strip()]


def network(value: Any) -> Emitted:
    """An address or a network (CIDR) in its canonical spelling; bits beyond the mask are cleared."""
    text = _text(value, "network")
    if "%" in text:
        raise EmitError("network: the value has a zone, which HAProxy does not support")
    try:
        return Emitted(str(ipaddress.ip_network(text, strict=False)))
    except ValueError:
        raise EmitError(
            "network: the value is neither an address nor a network", "such as 192.0.2.7 or 192.0.2.0/24"
        ) from None


def seconds(value: Any) -> Emitted:
    """A time; a bare number is in seconds."""
    text = _text(value, "seconds")
    return duration(text + "s" if text.isascii() and text.isdigit() else text)


def milliseconds(value: Any) -> Emitted:
    """A time; a bare number is in milliseconds."""
    text = _text(value, "milliseconds")
    return duration(text + "ms" if text.isascii() and text.isdigit() else text)


def rate_period(value: Any) -> Emitted:
    """The time over which HAProxy counts a rate, at least 100 ms; a bare number is in milliseconds."""
    found = milliseconds(value)
    if found == "0" or microseconds(found) < _SHORTEST_RATE_PERIOD:
        raise EmitError("rate_period: the time over which a rate is counted is too short", "at least 100ms")
    return found


def check_interval(value: Any, shortest: Any = "500ms") -> Emitted:
    """The time between two checks of a server, which is at least *shortest*; a bare number is in milliseconds."""
    found = milliseconds(value)
    if found == "0" or microseconds(found) < microseconds(milliseconds(shortest)):
        raise EmitError(
            "check_interval: the checks of a server would follow each other too fast",
            f"at least {shortest}; an administrator can allow less by shortestCheckInterval",
        )
    return found


def whole_seconds(value: Any) -> Emitted:
    """A time as a number of seconds; a bare number is one already."""
    text = _text(value, "whole_seconds")
    if text.isascii() and text.isdigit():
        return integer(text, 0, 1_000_000_000)
    amount = re.fullmatch(r"([0-9]{1,9})(ms|s|m|h|d)", text)
    if not amount:
        raise EmitError("whole_seconds: the value is not a duration", "a number and one of ms, s, m, h, d, such as 30s")
    scale = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}[amount.group(2)]
    return Emitted(str(int(amount.group(1)) * scale // 1_000))


def table_size(value: Any) -> Emitted:
    """A number of entries of a stick-table, which may end in `k` or `m`; at most ten million."""
    if not 0 < byte_count(value) <= 10 << 20:
        raise EmitError("table_size: the value is not within 1 to 10m")
    return size(value)


def byte_count(value: Any) -> int:
    """A size in bytes, from a number that may end in `k`, `m` or `g`; at most a terabyte."""
    match = _BYTES(_text(value, "byte_count"))
    count = int(match.group(1)) << _SHIFT[match.group(2).lower()] if match else _MOST_BYTES + 1
    if count > _MOST_BYTES:
        raise EmitError("byte_count: the value is not a size of at most 1024g", "a number, which may end in k, m or g")
    return count


def redirect_target(value: Any) -> Emitted:
    """One word that is the log-format of a Location; `$request_uri`, `$host` and `$scheme` stand for the request's."""
    text = _text(value, "redirect_target")
    if not _TARGET(text):
        raise EmitError(
            "redirect_target: the value is neither an http(s) URL nor a path", "such as https://example.com/new or /new"
        )

    def replaced(match: re.Match[str]) -> str:
        if match.group(1) not in _VARIABLES:
            raise EmitError("redirect_target: the value contains an unknown variable", "$request_uri, $host or $scheme")
        return _VARIABLES[match.group(1)]

    return word(_VARIABLE.sub(replaced, text.replace("%", "%%")))


def path_pattern(value: Any) -> PathPattern:
    """A path that may end in one of a few regular expressions, such as `/api(/|$)(.*)`; others are rejected."""
    text = _text(value, "path_pattern").removeprefix("^")
    for tail, ending in PATTERN_TAILS.items():
        if text.endswith(tail):
            prefix = text.removesuffix(tail)
            _checked_prefix(prefix)
            return _path_pattern(prefix or "/", "^" + _escaped(prefix) + ending, ending.count("("))
    _checked_prefix(text)
    return _path_pattern(text, "^" + _escaped(text.rstrip("/")) + "(/|$)", 0)


def rewrite_target(value: Any, groups: int) -> Emitted:
    """One word that is a new path for `replace-path`; `$1` to `$9` stand for the *groups* of its pattern."""
    text = _text(value, "rewrite_target")
    if not _REWRITE(text):
        raise EmitError("rewrite_target: the value is not a path; queries cannot be rewritten")

    def replaced(match: re.Match[str]) -> str:
        number = match.group(1)
        if not re.fullmatch("[1-9]", number):
            raise EmitError("rewrite_target: the value contains a variable other than $1 to $9")
        return "\\" + number if int(number) <= groups else ""

    return word(_VARIABLE.sub(replaced, text.replace("%", "%%")))


def backreferences(value: Any) -> str:
    """*value* with `$1` to `$9` for `\\1` to `\\9`, as `rewrite_target` takes it; still data."""
    text = _text(value, "backreferences")
    if "$" in text:
        raise EmitError("backreferences: the value contains '$'")
    return re.sub(r"\\([1-9])", r"$\1", text)


def unquoted(value: Any) -> str:
    """*value* without the double quotes around it, if there are any; still data."""
    text = _text(value, "unquoted").strip()
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text


def realm(value: Any) -> Emitted:
    """One word that is the name of what a password is for; it lands between double quotes in a header."""
    text = _text(value, "realm")
    if re.search(r'["\\%]', text):
        raise EmitError('realm: the value contains ", \\ or %')
    return word(text)


def cookie_domain(value: Any) -> Emitted:
    """The domain of a cookie: a host name that may begin with a dot, which has no meaning (RFC 6265)."""
    text = hostname(value.removeprefix(".") if isinstance(value, str) else value)
    if text.startswith("*"):
        raise EmitError("cookie_domain: a cookie has no wildcard domain", "subdomains receive the cookie as well")
    return text


def cookie_path(value: Any) -> Emitted:
    """One word that is the attribute Path of a cookie."""
    text = url_path(value)
    if re.search("[;,]", text):
        raise EmitError("cookie_path: the value contains ; or ,")
    return word("Path=" + text)


def header_names(value: Any, respelled: bool = False, others_of: Iterable[str] = ()) -> Emitted:
    """One word that is a regular expression for header names, from a list of them; `*` stands for any characters.

    It is for `del-header … -m reg`. In a name without `*`, each character but letters and digits stands for all such
    characters, in others `-` does: variables of CGI, WSGI or PHP do not distinguish them. With *respelled* the names as
    given do not match. Names in *others_of* never match as given, but their other spellings do.
    """
    spelled = {header_token(name, "header_names").lower() for name in value}
    given = {name if "*" in name else re.sub("[^a-z0-9]", "-", name) for name in spelled}
    wide = [name for name in given if "*" in name]
    names = sorted(name for name in given if not any(name != other and fnmatchcase(name, other) for other in wide))
    if not names:
        raise EmitError("header_names: the list is empty")
    others = [header_token(name, "header_names").lower() for name in others_of]
    first = "".join(sorted({name[0] for name in (*names, *others)}))
    ahead = "" if any(name.startswith(("*", "-")) for name in names) else f"(?=[{regex_escape(first)}])"
    nested = [name[2:] for name in names if re.match("x-.", name)]
    patterns = [*_name_patterns(name for name in names if not re.match("x-.", name))]
    patterns += [f"x{_DASH}(?:{'|'.join(_name_patterns(nested))})"] if nested else []
    patterns += [f"{_RESPELLED}(?:{'|'.join(_name_patterns(others))})"] if others else []
    as_given = "|".join(regex_escape(name).replace("\\*", ".*") for name in sorted(spelled))
    spelling = "" if not respelled else _RESPELLED if spelled == given else f"(?!(?:{as_given})$)"
    return word(f"^{spelling}{ahead}(?:{'|'.join(patterns)})$")


def is_connection_header(value: Any) -> bool:
    """Whether only HAProxy sets the header of this name, or applications may take it for the length of a message."""
    return connection_headers.is_connection_header(_text(value, "is_connection_header"))


def host_and_port(value: Any) -> Emitted:
    """A host name or IPv4 address, which a port may follow."""
    host, colon, number = _text(value, "host_and_port").partition(":")
    return Emitted(hostname(host) + (":" + port(number) if colon else ""))


def htpasswd(value: Any, rounds: int = _MOST_ROUNDS_OF_HASH) -> list[tuple[Emitted, Emitted]]:
    """The users and password hashes of a password file, `user:hash` a line; hashes of *rounds* at most."""
    lines = [line.strip() for line in _text(value, "htpasswd").split("\n")]
    users = [line.partition(":")[::2] for line in lines if line and not line.startswith("#")]
    if len({name for name, _ in users}) < len(users):
        raise EmitError("htpasswd: a user is listed twice")
    return _users(users, "htpasswd", rounds)


def passwords(value: Any, rounds: int = _MOST_ROUNDS_OF_HASH) -> list[tuple[Emitted, Emitted]]:
    """The users and password hashes of a mapping, as `htpasswd` gives them; its values are Base64, as in a Secret."""
    if not isinstance(value, Mapping):
        raise EmitError("passwords: the value is not a mapping of users")
    return _users([(name, b64decode(hashed).strip()) for name, hashed in value.items()], "passwords", rounds)


def password(value: Any, user: Any, rounds: int = _MOST_ROUNDS_OF_HASH) -> tuple[Emitted, Emitted]:
    """The pair of *user* and the hash *value*, as `htpasswd` gives it."""
    hashed = _text(value, "password").strip()
    pair = _user(_text(user, "password"), hashed, rounds)
    _count_rounds(_rounds(hashed))
    return pair


def under(value: Any, prefix: str) -> dict[str, Any]:
    """The items of *value* whose keys begin with *prefix*, by the rest of the key; empty if it is not a mapping."""
    if not isinstance(value, Mapping) or not value:
        return {}
    run = CURRENT.get(None)
    # Templates ask for the same again and again, once for each path of an Ingress.
    known = run.under.get((id(value), prefix)) if run is not None else None
    if known is not None:
        return known[1]
    found = {key.removeprefix(prefix): item for key, item in value.items() if key.startswith(prefix)}
    if run is not None:
        run.under[id(value), prefix] = value, found
    return found


def _users(users: Sequence[tuple[str, str]], filter_name: str, most: int) -> list[tuple[Emitted, Emitted]]:
    if not users or len(users) > _MOST_USERS:
        raise EmitError(f"{filter_name}: {len(users)} users; expected 1 to {_MOST_USERS}")
    found = [_user(*user, most) for user in users]
    rounds = sum(_rounds(hashed) for _, hashed in users)
    if rounds > _MOST_ROUNDS:
        raise EmitError(
            f"{filter_name}: all hashes together have more than {_MOST_ROUNDS:,} rounds",
            "fewer users (200 with the usual 5,000 rounds), or fewer rounds",
        )
    _count_rounds(rounds)
    return found


def _count_rounds(rounds: int) -> None:
    """Count *rounds* for the current fragment; all fragments of a namespace share a limit."""
    run = CURRENT.get(None)
    if run is not None:
        run.add_rounds(rounds)


def _rounds(hashed: str) -> int:
    match = _CRYPT(hashed)
    return int(match[1]) if match is not None and match[1] else _ROUNDS[hashed[:2]]


def _user(name: str, hashed: str, most: int) -> tuple[Emitted, Emitted]:
    if not _USER(name):
        raise EmitError(
            "htpasswd: a user's name is empty, too long or contains characters other than A-Z a-z 0-9 . _ @ + -"
        )
    if not _CRYPT(hashed):
        raise EmitError(
            "htpasswd: a password has a hash that is not supported", "make it with `openssl passwd -6` (or -5, -1)"
        )
    if _rounds(hashed) > most:
        raise EmitError(
            f"htpasswd: a hash has more than {most:,} rounds, which hold up the requests of others",
            "make it with `openssl passwd -6`, which takes 5,000; an administrator can allow more by passwordRounds",
        )
    return word(name), word(hashed)


def _path_pattern(prefix: str, expression: str, groups: int) -> PathPattern:
    return PathPattern(prefix, word(expression), pattern(expression), groups)


def _checked_prefix(prefix: str) -> None:
    url_path(prefix or "/")
    if re.search(r"[()*+]", prefix):
        raise EmitError("path_pattern: regular expressions of this form are not supported", ", ".join(PATTERN_TAILS))


def _escaped(prefix: str) -> str:
    return regex_escape(url_path(prefix)) if prefix else ""


def _name_patterns(names: Iterable[str]) -> Iterable[str]:
    return (regex_escape(name).replace("\\-", _DASH).replace("\\*", ".*") for name in names)


def _text(value: Any, name: str) -> str:
    text = str(value) if isinstance(value, str) else number_text(value, name)
    if not text.strip():
        raise EmitError(f"{name}: the value is empty")
    return text


VALUES: Final[dict[str, Callable[..., Any]]] = {
    function.__name__: function
    for function in (
        switch, choice, words, network, seconds, milliseconds, rate_period, check_interval, whole_seconds, table_size,
        byte_count, backreferences,
        unquoted, redirect_target, path_pattern, rewrite_target,
        realm, cookie_domain, cookie_path, header_names, host_and_port, htpasswd, password, passwords, under,
        is_connection_header,
    )
} | PATHS | ORIGINS  # fmt: skip
