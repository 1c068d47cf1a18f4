"""Placement rules of haproxy.cfg: section headers, first words, and the lines that each section allows.

Only errors with which HAProxy does not start are reported, and only those
that depend on the line and its section alone. The keywords of lines inside
`.if` are not checked, since HAProxy reads only one branch.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from haptic_trio.haproxy.grammar.conditions import find_quoted_flags
from haptic_trio.haproxy.grammar.findings import Finding, hint_at, suggest
from haptic_trio.haproxy.grammar.keyword_families import OPEN_PREFIXES, PROXY_KINDS
from haptic_trio.haproxy.grammar.keywords import Keywords
from haptic_trio.haproxy.grammar.lines import Scope, check_line, check_word, group_of
from haptic_trio.haproxy.model import Directive

__all__ = [
    "UNNAMED_KINDS",
    "Finding",
    "HeaderParts",
    "check_directives",
    "check_header",
    "check_macro",
    "read_header",
    "suggest",
]

UNNAMED_KINDS: Final = frozenset({"global", "traces", "namespace_list"})
_NAME_OPTIONAL: Final = frozenset({"defaults", "crt-store"})
# Kinds whose names HAProxy does not check character by character.
_FREE_NAMES: Final = frozenset({"cache", "defaults", "program", "crt-store", "acme"})
# HAProxy rejects more words after these headers; HAProxy 2.8 silently ignores them after `backend`.
_EXTRA_REJECTED_AFTER: Final = """
backend global frontend listen peers userlist cache log-forward fcgi-app program acme crt-store log-profile traces
"""
_EXTRA_REJECTED: Final = frozenset(_EXTRA_REJECTED_AFTER.split())
_NAME: Final = re.compile("[A-Za-z0-9_:.-]+")
_NEGATABLE_IN_PROXIES: Final = frozenset({"option", "log"})
_FORBIDDEN_IN_DEFAULTS: Final = """
bind capture description dispatch filter force-persist id ignore-persist monitor redirect server server-template stick
use-server use_backend
"""
_FORBIDDEN: Final[Mapping[str, frozenset[str]]] = {
    "defaults": frozenset(_FORBIDDEN_IN_DEFAULTS.split()),
    "frontend": frozenset({"default-server", "server", "server-template"}),
}
_FORBIDDEN_UNNAMED: Final = frozenset({"acl", "http-after-response", "http-request", "http-response"})
_CONDITIONS: Final = frozenset({".if", ".elif", ".else", ".endif"})
_MESSAGES: Final = frozenset({".diag", ".notice", ".warning", ".alert"})


class HeaderParts(NamedTuple):
    """Parsed words of a section header."""

    name: str
    base: str
    """The `defaults` section named after `from`; empty if there is none."""
    extra: int
    """Index of the first word after name and base."""


def read_header(words: tuple[str, ...]) -> HeaderParts:
    """Parse the words of a section header."""
    if words[0] not in PROXY_KINDS:
        return HeaderParts(words[1] if len(words) > 1 and words[0] not in UNNAMED_KINDS else "", "", 2)
    name = words[1] if len(words) > 1 else ""
    if len(words) > 3 and words[2] == "from":
        return HeaderParts(name, words[3], 4)
    # A section of another kind would have the name "from".
    if words[0] == "defaults" and len(words) > 2 and words[1] == "from":
        return HeaderParts("", words[2], 3)
    return HeaderParts(name, "", 2)


def check_header(header: Directive) -> Iterator[Finding]:
    """Check the name and the number of words of a section header."""
    kind, words = header.words[0], header.words
    parts = read_header(words)
    if kind in UNNAMED_KINDS:
        if len(words) > 1 and kind in _EXTRA_REJECTED:
            yield Finding(header, 1, f"section '{kind}' takes no name", f"remove '{words[1]}'")
        return
    if not parts.name and kind not in _NAME_OPTIONAL:
        yield Finding(header, 1, f"section '{kind}' needs a name", f"write '{kind} <name>'")
        return
    if parts.name and kind not in _FREE_NAMES and 1 not in header.raw and not _NAME.fullmatch(parts.name):
        hint = "names consist of ASCII letters, digits, and _ : . -"
        yield Finding(header, 1, f"character not permitted in the name of a '{kind}' section", hint)
    if len(words) > parts.extra and (kind in _EXTRA_REJECTED or parts.base):
        hint = "addresses belong to 'bind' lines" if kind in {"frontend", "listen"} else ""
        yield Finding(header, parts.extra, f"unexpected '{words[parts.extra]}' after the name", hint)


def check_directives(
    kind: str, name: str, directives: Sequence[Directive], keywords: Keywords, *, conditional: bool
) -> Iterator[Finding]:
    """Check the lines of a section; *conditional*: the section begins inside an `.if`."""
    known = keywords.sections[kind]
    forbidden = _FORBIDDEN.get(kind, frozenset())
    if kind == "defaults" and not name:
        forbidden |= _FORBIDDEN_UNNAMED
    scope = Scope(kind, keywords)
    depth = int(conditional)
    for directive in directives:
        keyword = directive.words[0]
        if directive.dashed:
            yield from _check_quoted_flags(directive)
        if keyword[0] == ".":
            depth = max(0, depth + (keyword == ".if") - (keyword == ".endif"))
            yield from check_macro(directive, conditional=depth > 0)
        elif depth:
            scope.note(directive)
        elif keyword not in known:
            if known:
                yield from _check_unknown(kind, directive, keywords)
        elif keyword in forbidden:
            hint = "give the section a name" if keyword in _FORBIDDEN_UNNAMED else ""
            yield Finding(directive, 0, f"'{keyword}' is not allowed in this '{kind}' section", hint)
        elif found := check_line(scope, directive):
            yield from found
    if kind in PROXY_KINDS and not conditional:
        yield from _check_server_names(directives)


def check_macro(directive: Directive, *, conditional: bool) -> Iterator[Finding]:
    """Check a directive that begins with a dot; the caller checks that `.if` and `.endif` match."""
    keyword, count = directive.words[0], len(directive.words)
    if conditional and keyword not in _CONDITIONS:
        return
    if keyword not in _CONDITIONS | _MESSAGES:
        yield Finding(directive, 0, f"unknown directive '{keyword}'", suggest(keyword, _CONDITIONS | _MESSAGES))
    elif keyword in {".else", ".endif"} and count > 1:
        yield Finding(directive, 1, f"'{keyword}' takes no argument")
    elif keyword in _MESSAGES and count > 2:
        yield Finding(directive, 2, f"'{keyword}' takes one argument", "quote it if it contains spaces")


def _check_quoted_flags(directive: Directive) -> Iterator[Finding]:
    hint = "write a value with `| pattern`, which puts it behind `--`; write a flag without quotes"
    for at in find_quoted_flags(directive):
        yield Finding(directive, at, f"HAProxy reads '{directive.words[at]}' as a flag in spite of its quotes", hint)


def _check_unknown(kind: str, directive: Directive, keywords: Keywords) -> Iterator[Finding]:
    words = directive.words
    at = 1 if words[0] in {"no", "default"} and len(words) > 1 else 0
    word = words[at]
    if at in directive.raw or (kind == "global" and word.startswith(OPEN_PREFIXES)):
        return
    if word not in keywords.sections[kind]:
        yield Finding(directive, at, f"unknown keyword '{word}' in section '{kind}'", _hint(kind, word, keywords))
    elif kind in PROXY_KINDS:
        if word not in _NEGATABLE_IN_PROXIES:
            hint = "it is allowed before 'option' and 'log' only"
            yield Finding(directive, 0, f"'{words[0]}' is not allowed before '{word}'", hint)
        elif word == "option":
            yield from check_word(directive, 2, keywords.options, "option")


def _hint(kind: str, word: str, keywords: Keywords) -> str:
    elsewhere = sorted(other for other, known in keywords.sections.items() if word in known)
    if elsewhere:
        return f"it is allowed in sections of kind {', '.join(elsewhere)}"
    known = [*keywords.sections[kind], *keywords.sections]
    as_section = hint_at(word, (), "kinds")
    return as_section or hint_at(word, known, group_of(kind))


def _check_server_names(directives: Sequence[Directive]) -> Iterator[Finding]:
    names = [directive.words[1:2] for directive in directives if directive.words[0] == "server"]
    if len(set(names)) == len(names):
        return
    seen: dict[str, Directive] = {}
    depth = 0
    for directive in directives:
        keyword = directive.words[0]
        depth += (keyword == ".if") - (keyword == ".endif")
        if keyword != "server" or depth or len(directive.words) < 3 or 1 in directive.raw:
            continue
        first = seen.setdefault(directive.words[1], directive)
        if first is not directive:
            # A relative position, since a section may move without being checked again.
            hint = f"rename one of them: the other is {directive.line - first.line} lines above"
            yield Finding(directive, 1, f"another server of this section is named '{directive.words[1]}'", hint)
