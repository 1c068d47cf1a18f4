"""Keyword tables of several HAProxy versions, read from real binaries.

`keywords.json` beside this module has each word of `haproxy -dKall`, by group
and by the versions that know it, and the names missing in that listing that a
binary was found to accept. `tools/keywords/dump.py` writes it. Another target
version gets the tables of its neighbours, and a running controller adds the
listing of its own binary, so a word that the target knows is never rejected.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources
from typing import Final, NamedTuple, Self

import msgspec

from haptic_trio.haproxy.grammar.keyword_families import PROXY_KINDS

RULE_SETS: Final = (
    "http-request",
    "http-response",
    "http-after-response",
    "tcp-request connection",
    "tcp-request session",
    "tcp-request content",
    "tcp-response content",
)
# Number of words that identify a line; other lines are identified by their first word.
_LONG_KEYS: Final = """
option timeout stats http-request http-response http-after-response capture declare compression email-alert http-check
tcp-check external-check monitor persist rate-limit stick hold filter http-error tcp-request tcp-response
"""
_KEY_LENGTHS: Final = dict.fromkeys(_LONG_KEYS.split(), 2)
# It has a number in parentheses and one argument, which the listing does not show.
_NUMBERED: Final = frozenset({"set-proxy-v2-tlv-fmt"})
_PLACED: Final = re.compile(r"(?P<place>bind|server) <\S+>(?: <addr>)?(?: ssl)? (?P<entry>\S+(?: \+-?\d+)?)")
_LISTED: Final = {
    "converter functions:": re.compile(r"(?P<entry>[^\s(:]+(?:\([^)]*\))?):.*"),
    "fetch functions:": re.compile(r"\[[ Y.]*\] (?P<entry>[^\s(:]+(?:\([^)]*\))?):.*"),
    "ACL keywords:": re.compile(r"(?P<entry>\S+) = .*"),
    "filter names:": re.compile(r"(?P<entry>\S+) \[.*"),
    "service names:": re.compile(r"(?P<entry>\S+)"),
}
_GROUP_OF: Final = {
    "converter functions:": "converter",
    "fetch functions:": "fetch",
    "ACL keywords:": "acl",
    "filter names:": "filter",
    "service names:": "service",
}


class Shape(NamedTuple):
    """Numbers and types of the words after a keyword."""

    least: int
    """Minimum number of words."""
    most: int
    """Maximum number of words, without a condition; -1: any."""
    forms: str
    """Type of each of the first words: t time, s size, n number, - anything."""


class Arity(NamedTuple):
    """Minimum and maximum number of arguments."""

    least: int
    most: int


class Keywords(msgspec.Struct, frozen=True, kw_only=True):
    """Keywords of a configuration, by their place."""

    sections: Mapping[str, frozenset[str]]
    """First words of lines by kind of section; a kind with an empty set accepts any word."""
    options: frozenset[str]
    """Words after `option` in proxies."""
    forward_options: frozenset[str]
    """Words after `option` in `log-forward`."""
    timeouts: frozenset[str]
    """Words after `timeout` in proxies."""
    rules: Mapping[str, frozenset[str]]
    """Actions by rule set, such as `http-request`; a trailing `*` stands for any rest."""
    bind: Mapping[str, int]
    """Options of `bind` lines with the number of arguments; -1 where it varies."""
    server: Mapping[str, int]
    """Options of `server` lines with the number of arguments; -1 where it varies."""
    fetches: Mapping[str, Arity]
    """Sample fetches."""
    converters: Mapping[str, Arity]
    """Sample converters."""
    acls: frozenset[str]
    """First words of conditions that are not fetches, such as `hdr_beg`."""
    matches: frozenset[str]
    """Match methods, after `-m`."""
    filters: frozenset[str]
    """Words after `filter`."""
    services: frozenset[str]
    """Words after `use-service`."""
    shapes: Mapping[str, Mapping[tuple[str, ...], Shape]]
    """Shapes by `proxy` or kind of section, and by the key of `key_of`."""
    version: tuple[int, ...] = ()
    """Version of the target HAProxy, such as `(3, 2)`; empty for any version."""

    def with_dump(self, text: str) -> Self:
        """Return these keywords and those of *text*, the output of `haproxy -dKall`."""
        return msgspec.structs.replace(self, **dict(_united(self, _build(groups_of_dump(text)))))


class _Tables(msgspec.Struct, frozen=True):
    """The content of `keywords.json`."""

    versions: tuple[str, ...]
    groups: dict[str, dict[str, tuple[str, ...]]]
    """By place, by the versions that know them (separated by blanks): words with what they take."""


def key_of(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words that identify the shape of a line; parentheses after an action become `*`."""
    first = words[0]
    length = _KEY_LENGTHS.get(first, 1)
    if length == 1:
        return words[:1]
    if first in {"tcp-request", "tcp-response"} and len(words) > 1 and words[1] != "inspect-delay":
        length = 3
    key = words[:length]
    if "(" in key[-1]:
        return (*key[:-1], key[-1].partition("(")[0] + "*")
    return key


def keywords_of(version: str, dump: str = "") -> Keywords:
    """Return the keywords of HAProxy *version*, such as `3.2.26`; *dump* is the output of its `haproxy -dKall`.

    Another version than those of the tables gets the keywords of its
    neighbours. The *dump* of the binary in use adds words that the tables'
    builds lack.
    """
    found = msgspec.structs.replace(_keywords_of(_neighbours(version)), version=_number(version))
    if _number(version) > _number(_tables().versions[-1]):
        # It may accept more words after a keyword than any tested version.
        found = msgspec.structs.replace(found, shapes={})
    return found.with_dump(dump) if dump else found


@cache
def shipped_keywords() -> Keywords:
    """Return the keywords that any version in the tables knows."""
    return _keywords_of(_tables().versions)


@cache
def versions_that_know(group: str, word: str) -> tuple[str, ...]:
    """Return the versions in the tables that know *word* in *group*.

    Places are `kinds`, `proxy`, `option`, `timeout`, `bind`, `server`,
    `fetch`, `converter`, `acl`, `match`, `filter`, `service`, a rule set, or a kind of section.
    """
    knowing = {
        version
        for owners, entries in _tables().groups.get(group, {}).items()
        if any(_is_named(entry, word) for entry in entries)
        for version in owners.split()
    }
    return tuple(version for version in _tables().versions if version in knowing)


def table_of(version: str) -> dict[str, set[str]]:
    """Return the table of *version*, such as `3.2`, by group; empty for an unknown version."""
    table: dict[str, set[str]] = {}
    for group, by_owner in _tables().groups.items():
        for owners, entries in by_owner.items():
            if version in owners.split():
                table.setdefault(group, set()).update(entries)
    return table


def groups_of_dump(text: str) -> dict[str, list[str]]:
    """Return the entries in the output of `haproxy -dKall`, by the groups of the tables."""
    groups: dict[str, list[str]] = {}
    heading = place = ""
    for line in text.splitlines():
        if line.startswith("# List of registered "):
            heading = line.removeprefix("# List of registered ").removeprefix("sample ").strip()
        elif heading == "configuration keywords:":
            if not line.startswith("\t"):
                place = "proxy" if line.strip() == "listen" else line.strip()
                continue
            group, entry = _place(place, line.strip())
            groups.setdefault(group, []).append(entry)
        elif (pattern := _LISTED.get(heading)) is not None and (match := pattern.fullmatch(line.strip())) is not None:
            groups.setdefault(_GROUP_OF[heading], []).append(match["entry"])
    return groups


def _place(place: str, line: str) -> tuple[str, str]:
    if place != "proxy":
        return place, line
    if (match := _PLACED.fullmatch(line)) is not None:
        return match["place"], match["entry"]
    if line.startswith("option "):
        return "option", line.split()[1]
    rule_set = next((one for one in RULE_SETS if line.startswith(one + " ")), "proxy")
    return rule_set, line.removeprefix(rule_set + " ")


@cache
def _tables() -> _Tables:
    data = resources.files("haptic_trio.haproxy.grammar").joinpath("keywords.json").read_bytes()
    return msgspec.json.decode(data, type=_Tables)


def _neighbours(version: str) -> tuple[str, ...]:
    number = _number(version)
    shipped = _tables().versions
    below = [one for one in shipped if _number(one) <= number]
    above = [one for one in shipped if _number(one) >= number]
    return tuple(dict.fromkeys((*below[-1:], *above[:1])))


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(digits) for digits in re.findall(r"\d+", version)[:2])


@cache
def _keywords_of(versions: tuple[str, ...]) -> Keywords:
    wanted = set(versions)
    return _build(
        {
            group: [entry for owners, entries in by_owner.items() if wanted & set(owners.split()) for entry in entries]
            for group, by_owner in _tables().groups.items()
        }
    )


def _build(groups: Mapping[str, Iterable[str]]) -> Keywords:
    def words(group: str) -> frozenset[str]:
        return frozenset(groups.get(group, ()))

    sections = {kind: words(kind) for kind in {*groups.get("kinds", ()), "global"}}
    sections |= {kind: words("proxy") for kind in PROXY_KINDS}
    return Keywords(
        sections=sections,
        options=words("option"),
        forward_options=words("log-forward option"),
        timeouts=words("timeout"),
        rules={rule_set: words(rule_set) for rule_set in RULE_SETS},
        bind=_counts(groups.get("bind", ())),
        server=_counts(groups.get("server", ())),
        fetches=_arities(groups.get("fetch", ())),
        converters=_arities(groups.get("converter", ())),
        acls=words("acl"),
        matches=words("match"),
        filters=words("filter"),
        services=words("service"),
        shapes=_shapes(groups.get("shape", ())),
    )


def _shapes(entries: Iterable[str]) -> dict[str, dict[tuple[str, ...], Shape]]:
    shapes: dict[str, dict[tuple[str, ...], Shape]] = {}
    for entry in entries:
        place, *key, least, most, forms = entry.split(" ")
        shape = Shape(int(least), int(most), forms)
        found = shapes.setdefault(place, {}).setdefault(tuple(key), shape)
        # The versions differ; the widest range is used.
        if found != shape:
            widest = max(found.most, shape.most) if min(found.most, shape.most) >= 0 else -1
            same = found.forms if found.forms == shape.forms else "-"
            shapes[place][tuple(key)] = Shape(min(found.least, shape.least), widest, same)
    return shapes


def _counts(entries: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for entry in entries:
        name, _, count = entry.partition(" +")
        if name in _NUMBERED:
            counts[name + "*"] = 1
        else:
            counts[name] = int(count or 0)
    return counts


def _arities(entries: Iterable[str]) -> dict[str, Arity]:
    arities: dict[str, Arity] = {}
    for entry in entries:
        name, _, rest = entry.partition("(")
        needed, _, optional = rest.rstrip(")").partition("[")
        types = [one for one in needed.split(",") if one]
        # A proxy or a table defaults to the proxy of the line.
        least = len([one for one in types if one not in {"table", "frontend", "backend"}])
        # A single text argument may be empty.
        least = 0 if least == 1 and types[0] != "integer" else least
        most = len(types) + len([one for one in optional.strip("]").split(",") if one])
        # The versions differ; the widest range is used.
        found = arities.get(name, Arity(least, most))
        arities[name] = Arity(min(least, found.least), max(most, found.most))
    return arities


def _united(one: Keywords, other: Keywords) -> Iterator[tuple[str, object]]:
    for field in msgspec.structs.fields(Keywords):
        if field.name == "version":
            continue
        mine, theirs = getattr(one, field.name), getattr(other, field.name)
        unite: Callable[..., object] = _unite_sets if isinstance(mine, frozenset) else _unite_mappings
        yield field.name, unite(mine, theirs)


def _unite_sets(one: frozenset[str], other: frozenset[str]) -> frozenset[str]:
    return one | other


def _unite_mappings(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, object]:
    united = {**one, **other}
    for name in one.keys() & other.keys():
        mine, theirs = one[name], other[name]
        if isinstance(mine, frozenset) and isinstance(theirs, frozenset):
            united[name] = mine | theirs
    return united


def _is_named(entry: str, word: str) -> bool:
    name = re.split(r"[( ]", entry, maxsplit=1)[0]
    return name == word or (name.endswith("*") and word.startswith(name[:-1]))
