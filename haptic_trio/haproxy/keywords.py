"""Which words HAProxy knows: tables read from `haproxy -dKall`, and what that listing leaves out.

`keywords.json` beside this module is the listing of HAProxy 2.8, made by
`bench/dump_keywords.py`. The listing has only the keywords that modules
register; the rest, and the names that later versions added, are in
`haptic_trio.haproxy.unlisted`. The tables err on the side of knowing too
much: what a version lacks, `haproxy -c` of that version says.
"""

import re
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import Final, Self

import msgspec

from haptic_trio.haproxy import unlisted

_RULE_SETS: Final = (
    "http-request",
    "http-response",
    "http-after-response",
    "tcp-request connection",
    "tcp-request session",
    "tcp-request content",
    "tcp-response content",
)
_OPTION: Final = re.compile(r"(?:bind <addr>(?: ssl)?|server <name> <addr>) (?P<name>\S+)(?: \+(?P<count>-?\d+))?")


class Keywords(msgspec.Struct, frozen=True, kw_only=True):
    """The words that may stand in a configuration, by place."""

    sections: Mapping[str, frozenset[str]]
    """First words of lines by kind of section; a kind that maps to nothing takes any word."""
    options: frozenset[str]
    """Words after `option` in proxies."""
    rules: Mapping[str, frozenset[str]]
    """Actions by rule set, such as `http-request`; a trailing `*` stands for any rest."""
    bind: Mapping[str, int]
    """Options of `bind` lines with the number of arguments; -1 where it varies."""
    server: Mapping[str, int]
    """Options of `server` lines with the number of arguments; -1 where it varies."""

    def with_dump(self, text: str) -> Self:
        """Return these keywords and those of *text*, the output of `haproxy -dKall` of some version."""
        return msgspec.structs.replace(self, **_merged(self, parse_keyword_dump(text)))


class KeywordDump(msgspec.Struct, frozen=True, kw_only=True):
    """What `haproxy -dKall` says about the configuration file."""

    global_words: tuple[str, ...] = ()
    proxy_words: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    rules: dict[str, tuple[str, ...]] = {}
    bind: dict[str, int] = {}
    server: dict[str, int] = {}


def parse_keyword_dump(text: str) -> KeywordDump:
    """Read the configuration part of the output of `haproxy -dKall`."""
    lines = _configuration_lines(text)
    proxy = lines.get("listen", [])
    rules = {
        rule_set: tuple(line.removeprefix(rule_set + " ") for line in proxy if line.startswith(rule_set + " "))
        for rule_set in _RULE_SETS
    }
    return KeywordDump(
        global_words=tuple(lines.get("global", ())),
        proxy_words=tuple(line for line in proxy if " " not in line),
        options=tuple(line.split()[1] for line in proxy if line.startswith("option ")),
        rules=rules,
        bind=_option_counts(proxy, "bind "),
        server=_option_counts(proxy, "server "),
    )


@cache
def shipped_keywords() -> Keywords:
    """Return the keywords known without asking any HAProxy."""
    data = resources.files("haptic_trio.haproxy").joinpath("keywords.json").read_bytes()
    dump = msgspec.json.decode(data, type=KeywordDump)
    by_hand = Keywords(
        sections=unlisted.SECTIONS,
        options=unlisted.OPTIONS,
        rules=unlisted.RULES,
        bind=unlisted.BIND_OPTIONS,
        server=unlisted.SERVER_OPTIONS,
    )
    return msgspec.structs.replace(by_hand, **_merged(by_hand, dump))


def _merged(known: Keywords, dump: KeywordDump) -> dict[str, object]:
    sections = dict(known.sections)
    sections["global"] |= frozenset(dump.global_words)
    for kind in unlisted.PROXY_KINDS:
        sections[kind] |= frozenset(dump.proxy_words)
    rules = dict(known.rules)
    for rule_set, actions in dump.rules.items():
        rules[rule_set] |= frozenset(actions)
    return {
        "sections": sections,
        "options": known.options | frozenset(dump.options),
        "rules": rules,
        "bind": {**known.bind, **dump.bind},
        "server": {**known.server, **dump.server},
    }


def _configuration_lines(text: str) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    group: list[str] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("# List of"):
            inside = "configuration keywords" in line
        elif inside and line.startswith("\t"):
            group.append(line.strip())
        elif inside and line:
            group = lines.setdefault(line.strip(), [])
    return lines


def _option_counts(lines: list[str], start: str) -> dict[str, int]:
    matches = (_OPTION.fullmatch(line) for line in lines if line.startswith(start))
    return {match["name"]: int(match["count"] or 0) for match in matches if match is not None}
