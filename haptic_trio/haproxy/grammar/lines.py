"""Checks of single lines whose first word is known: number of words, and names in the other words."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from haptic_trio.haproxy.grammar.conditions import (
    CONDITIONAL,
    check_acl,
    check_action,
    check_condition,
    check_flagged_formats,
    find_condition,
)
from haptic_trio.haproxy.grammar.expressions import NameFault, check_expression, check_format
from haptic_trio.haproxy.grammar.findings import Finding, hint_at
from haptic_trio.haproxy.grammar.keyword_families import PROXY_KINDS
from haptic_trio.haproxy.grammar.keywords import Keywords, Shape, key_of
from haptic_trio.haproxy.grammar.options import check_bind, check_default_server, check_server, check_template
from haptic_trio.haproxy.model import Directive

_RULE_HOOKS: Final[Mapping[str, frozenset[str]]] = {
    "tcp-request": frozenset({"connection", "session", "content", "inspect-delay"}),
    "tcp-response": frozenset({"content", "inspect-delay"}),
}
# HAProxy reads the first unit and ignores the rest of the word.
_FORMS: Final[Mapping[str, tuple[re.Pattern[str], str]]] = {
    "t": (re.compile(r"\d+((us|ms|[smhd]).*)?"), "time, such as 500ms or 10s"),
    "s": (re.compile(r"\d+([kmgKMG].*)?"), "size, such as 16384 or 16k"),
    "n": (re.compile(r"[+-]?\d+"), "number"),
}
_FORMAT_LINES: Final = frozenset({"log-format", "log-format-sd", "error-log-format", "unique-id-format"})


class Scope:
    """State of the check of a section, whose lines are checked in order."""

    def __init__(self, kind: str, keywords: Keywords) -> None:
        self.kind = kind
        self.keywords = keywords
        self.group = group_of(kind)
        self.shapes = keywords.shapes.get(self.group, {})
        self.checks = _PROXY_CHECKS if kind in PROXY_KINDS else _CHECKS.get(kind, {})
        self.acls: set[str] | None = set()
        """Names of the `acl` lines so far; None once a name depends on the environment."""

    def note(self, directive: Directive) -> None:
        """Record the name that an `acl` line declares."""
        if directive.words[0] == "acl" and self.acls is not None:
            if 1 in directive.raw:
                self.acls = None
            else:
                self.acls.update(directive.words[1:2])


def group_of(kind: str) -> str:
    """Return the group of the keyword tables for the first words of sections of *kind*."""
    return "proxy" if kind in PROXY_KINDS else kind


def check_line(scope: Scope, directive: Directive) -> Sequence[Finding]:
    """Check a line of *scope* whose first word is known and allowed there."""
    keyword = directive.words[0]
    check = scope.checks.get(keyword)
    if check is not None and (found := list(check(scope, directive))):
        return found
    # A reference to the environment may expand to any number of words.
    if directive.raw or keyword in _WHOLLY_CHECKED:
        return ()
    return _check_shape(scope, directive)


def check_word(directive: Directive, index: int, known: Iterable[str], what: str, group: str = "") -> Iterator[Finding]:
    """Check that the word at *index* exists and is one of *known*."""
    if index in directive.raw:
        return
    if len(directive.words) <= index or not directive.words[index]:
        yield Finding(directive, index, f"missing {what}")
        return
    word = directive.words[index]
    if word in known or any(name.endswith("*") and word.startswith(name[:-1]) for name in known):
        return
    yield Finding(directive, index, f"unknown {what} '{word}'", hint_at(word, known, group or what))


def _check_shape(scope: Scope, directive: Directive) -> Sequence[Finding]:
    words = directive.words
    key = key_of(words)
    shape = scope.shapes.get(key)
    if shape is None:
        return ()
    condition = _condition_of(words, len(key), shape) if words[0] in CONDITIONAL else 0
    return _check_arguments(scope, directive, len(key), condition or len(words), shape)


def _check_arguments(scope: Scope, directive: Directive, start: int, end: int, shape: Shape) -> Sequence[Finding]:
    """Check the words from *start* to *end* against *shape*."""
    words = directive.words
    if end - start < shape.least:
        missing = f"{shape.least} argument" + "s" * (shape.least > 1)
        return [Finding(directive, end, f"'{' '.join(words[:start])}' needs {missing}")]
    if 0 <= shape.most < end - start and not _continues_expression(words, start + shape.most, scope.keywords):
        return [Finding(directive, start + shape.most, f"unexpected '{words[start + shape.most]}'")]
    if shape.forms == "-":
        return ()
    return [
        Finding(directive, index, f"'{words[index]}' is not a {_FORMS[form][1]}")
        for index, form in zip(range(start, end), shape.forms, strict=False)
        if form != "-" and not _FORMS[form][0].fullmatch(words[index])
    ]


def _continues_expression(words: tuple[str, ...], at: int, keywords: Keywords) -> bool:
    """Whether the word at index *at* is a converter that continues the expression of a rule."""
    return words[0] in CONDITIONAL and re.split("[(,]", words[at], maxsplit=1)[0] in keywords.converters


def _condition_of(words: tuple[str, ...], start: int, shape: Shape | None) -> int:
    """Return the index of the condition of a rule whose arguments begin at *start*; 0 if it has none."""
    if shape is None or shape.most < 0:
        return find_condition(words, start + (shape.least if shape is not None else 0))
    at = start + shape.most
    return at if at < len(words) and words[at] in {"if", "unless"} else 0


def _check_option(scope: Scope, directive: Directive) -> Iterator[Finding]:
    return check_word(directive, 1, scope.keywords.options, "option")


def _check_forward_option(scope: Scope, directive: Directive) -> Iterator[Finding]:
    return check_word(directive, 1, scope.keywords.forward_options, "option", "log-forward option")


def _check_timeout(scope: Scope, directive: Directive) -> Iterator[Finding]:
    return check_word(directive, 1, scope.keywords.timeouts, "timeout")


def _check_filter(scope: Scope, directive: Directive) -> Iterator[Finding]:
    if directive.words[1:2] and directive.words[1].startswith("lua."):
        return iter(())
    return check_word(directive, 1, scope.keywords.filters, "filter")


def _check_http_rule(scope: Scope, directive: Directive) -> Iterator[Finding]:
    return _check_action(scope, directive, 1, directive.words[0])


def _check_tcp_rule(scope: Scope, directive: Directive) -> Iterator[Finding]:
    keyword = directive.words[0]
    unknown = list(check_word(directive, 1, _RULE_HOOKS[keyword], f"kind of '{keyword}' rule"))
    if unknown or 1 in directive.raw or directive.words[1] == "inspect-delay":
        yield from unknown or (() if directive.raw else _check_shape(scope, directive))
        return
    yield from _check_action(scope, directive, 2, f"{keyword} {directive.words[1]}")


def _check_action(scope: Scope, directive: Directive, index: int, rule_set: str) -> Iterator[Finding]:
    words = directive.words
    known = scope.keywords.rules[rule_set]
    # Almost all actions are known by their whole name, or by their name up to a parenthesis.
    if len(words) <= index or (words[index] not in known and f"{words[index].partition('(')[0]}*" not in known):
        # Lua code can register actions.
        if len(words) > index and words[index].startswith("lua."):
            return
        unknown = list(check_word(directive, index, known, f"'{rule_set}' action", rule_set))
        if unknown:
            yield from unknown
            return
    if directive.raw:
        return
    key = key_of(words)
    shape = scope.shapes.get(key)
    faults = list(check_action(words, index, scope.keywords))
    condition = _condition_of(words, index + 1, shape)
    if condition:
        faults += check_condition(words, condition, scope.keywords, scope.acls)
    if faults:
        yield from _as_findings(scope, directive, faults)
    elif shape is not None:
        yield from _check_arguments(scope, directive, len(key), condition or len(words), shape)


def _check_conditional(scope: Scope, directive: Directive) -> Iterator[Finding]:
    words = directive.words
    if directive.raw:
        return
    faults: list[NameFault] = []
    if words[0] == "redirect":
        faults += check_flagged_formats(words, 1, scope.keywords)
    elif words[0] == "stick" and len(words) > 2:
        faults += check_expression(words, 2, scope.keywords)
    elif words[0] == "use_backend" and len(words) > 1:
        faults += check_format(words, 1, scope.keywords)
    condition = find_condition(words, 1)
    if condition:
        faults += check_condition(words, condition, scope.keywords, scope.acls)
    yield from _as_findings(scope, directive, faults)


def _check_acl_line(scope: Scope, directive: Directive) -> Iterator[Finding]:
    faults = list(check_acl(directive.words, scope.keywords)) if not directive.raw else []
    if faults:
        yield from _as_findings(scope, directive, faults)
    scope.note(directive)


def _check_format_line(scope: Scope, directive: Directive) -> Iterator[Finding]:
    if len(directive.words) > 1 and not directive.raw:
        yield from _as_findings(scope, directive, check_format(directive.words, 1, scope.keywords))


def _check_server_line(scope: Scope, directive: Directive) -> Iterator[Finding]:
    check = _SERVER_CHECKS[directive.words[0]]
    for index, message, known in check(directive, scope.keywords):
        yield Finding(directive, index, message, hint_at(directive.words[index], known, "server") if known else "")


def _check_table_line(_scope: Scope, directive: Directive) -> Iterator[Finding]:
    # HAProxy accepts it, and ends at the first request, since it divides by the period.
    for index, word in enumerate(directive.words):
        if _RATE_OVER_NOTHING(word):
            yield Finding(directive, index, "a rate is counted over a period of 0", "a period such as 10s")


def _check_log_bind_line(scope: Scope, directive: Directive) -> Iterator[Finding]:
    # In this section HAProxy ignores a line without an address.
    return _check_bind_line(scope, directive) if len(directive.words) > 1 else iter(())


def _check_bind_line(scope: Scope, directive: Directive) -> Iterator[Finding]:
    for index, message, known in check_bind(directive, scope.keywords):
        yield Finding(directive, index, message, hint_at(directive.words[index], known, "bind") if known else "")


def _as_findings(scope: Scope, directive: Directive, faults: Iterable[NameFault]) -> Iterator[Finding]:
    keywords = scope.keywords
    names: Mapping[str, Iterable[str]] = {
        "fetch": keywords.fetches,
        "converter": keywords.converters,
        "match": keywords.matches,
        "declared": scope.acls or (),
    }
    for fault in faults:
        hint = hint_at(fault.name, names[fault.group], fault.group) if fault.name else ""
        yield Finding(directive, fault.word, fault.message, hint)


_Check = Callable[[Scope, Directive], Iterator[Finding]]
_WHOLLY_CHECKED: Final = frozenset(
    {
        *("server", "server-template", "default-server", "bind", "acl"),
        *("http-request", "http-response", "http-after-response", "tcp-request", "tcp-response"),
    }
)
_RATE_OVER_NOTHING: Final = re.compile(r"_rate\((?:[0-9]+,)?0+(?:us|ms|[smhd])?\)").search
_PROXY_CHECKS: Final[Mapping[str, _Check]] = {
    "stick-table": _check_table_line,
    **dict.fromkeys(CONDITIONAL, _check_conditional),
    **dict.fromkeys(_FORMAT_LINES, _check_format_line),
    "option": _check_option,
    "timeout": _check_timeout,
    "filter": _check_filter,
    "acl": _check_acl_line,
    "http-request": _check_http_rule,
    "http-response": _check_http_rule,
    "http-after-response": _check_http_rule,
    "tcp-request": _check_tcp_rule,
    "tcp-response": _check_tcp_rule,
    "server": _check_server_line,
    "server-template": _check_server_line,
    "default-server": _check_server_line,
    "bind": _check_bind_line,
}
_CHECKS: Final[Mapping[str, Mapping[str, _Check]]] = {
    "ring": {"server": _check_server_line},
    "log-forward": {"option": _check_forward_option, "bind": _check_log_bind_line},
}
_SERVER_CHECKS: Final = {
    "server": check_server,
    "server-template": check_template,
    "default-server": check_default_server,
}
