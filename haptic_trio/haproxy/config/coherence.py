"""Checks between sections: unique names, `from` references, matching `.if` and `.endif`.

`check_coherence` finds all problems by reading every section. `is_coherent`
quickly confirms that there are none, from a summary of each page of sections;
if it is not certain, it returns False, and `check_coherence` decides.

Versions of HAProxy differ in which names may be repeated: see `NameRules`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

import msgspec

from haptic_trio.haproxy.grammar.keyword_families import PROXY_KINDS
from haptic_trio.haproxy.grammar.placement import UNNAMED_KINDS, Finding, read_header, suggest
from haptic_trio.haproxy.model import Directive, Section

# A `listen` is a frontend and a backend, and a `log-forward` has the name of both.
_TWO_SPACES: Final = {
    "frontend": ("frontend",),
    "backend": ("backend",),
    **dict.fromkeys(("listen", "log-forward"), ("frontend", "backend")),
}
_ONE_SPACE: Final = dict.fromkeys((*_TWO_SPACES, "defaults"), ("proxy",))
# HAProxy warns of a repeated userlist and skips it, and continues a repeated `crt-store`.
_MAY_REPEAT: Final = frozenset({"defaults", "userlist", "crt-store"})

Name = tuple[str, str]
"""Namespace, and name."""


class NameRules(NamedTuple):
    """Rules for names that may be repeated."""

    spaces: Mapping[str, tuple[str, ...]]
    """Namespaces of the name of a proxy, by its kind."""
    last_counts: bool
    """Of several `defaults` sections with one name the last one is used; otherwise they cannot be referred to."""
    may_replace: bool
    """A `defaults` section may have the name of one that others refer to."""


@cache
def rules_of(version: tuple[int, ...]) -> NameRules:
    """Return the rules of HAProxy *version*, such as `(3, 2)`; for an empty version those of the oldest.

    A version between two tested ones gets the more tolerant rules.
    """
    return NameRules(
        spaces=_ONE_SPACE if version >= (3, 3) else _TWO_SPACES,
        last_counts=version >= (3, 3),
        may_replace=version < (3, 2),
    )


class PlacedSection(msgspec.Struct, frozen=True):
    """A section and its position in the configuration."""

    section: Section
    header: Directive
    """With its line number in the configuration."""
    inside: bool
    """Whether it begins inside an `.if`: such a section may exist in several branches."""


class Claims(msgspec.Struct, frozen=True):
    """Names and references of a page of sections."""

    names: tuple[Name, ...]
    """Names that must be unique, repetitions included."""
    bases: frozenset[str]
    """Names of `defaults` sections that others refer to."""
    defaults: tuple[tuple[str, str], ...] = ()
    """If the page has `defaults` sections: base of each section, and its own name if it is a `defaults` section."""
    has_branches: bool = False
    """Whether a section begins inside an `.if`, or a section does not close each `.if` that it opens."""


class Names:
    """Mutable counts of the sections that have each name."""

    def __init__(self) -> None:
        self._counts: dict[Name, int] = {}
        self.repeated: set[Name] = set()
        """Names of more than one section."""

    def __contains__(self, name: Name) -> bool:
        return name in self._counts

    def copied(self) -> "Names":
        """Return the same counts, which change by themselves."""
        copy = Names()
        copy._counts, copy.repeated = dict(self._counts), set(self.repeated)
        return copy

    def claim(self, names: Iterable[Name]) -> None:
        """Increment the counts of *names*."""
        counts = self._counts
        for name in names:
            count = counts[name] = counts.get(name, 0) + 1
            if count > 1:
                self.repeated.add(name)

    def release(self, names: Iterable[Name]) -> None:
        """Decrement the counts of *names*."""
        counts = self._counts
        for name in names:
            count = counts[name] - 1
            if count:
                counts[name] = count
                if count == 1:
                    self.repeated.discard(name)
            else:
                del counts[name]


def names_of(section: Section, rules: NameRules) -> tuple[Name, ...]:
    """Return the names of *section* that must be unique."""
    return () if section.kind in _MAY_REPEAT else _names_in_spaces(section, rules)


def _names_in_spaces(section: Section, rules: NameRules) -> tuple[Name, ...]:
    kind, name = section.key
    if not name or kind in UNNAMED_KINDS or 1 in section.header.raw:
        return ()
    spaces = rules.spaces.get(kind)
    return ((kind, name),) if spaces is None else tuple((space, name) for space in spaces)


def base_of(section: Section) -> str:
    """Return the name of the `defaults` section that *section* refers to; empty if there is none or it is unknown."""
    if section.kind not in PROXY_KINDS:
        return ""
    parts = read_header(section.header.words)
    return "" if parts.extra - 1 in section.header.raw else parts.base


def is_coherent(pages: Iterable[Claims], names: Names) -> bool:
    """Whether the sections of *pages* certainly have no problems among each other.

    False if only `check_coherence` can decide. *names* has the names of all
    pages.
    """
    if names.repeated:
        return False
    known: set[str] = set()
    for claims in pages:
        if claims.has_branches or not (claims.defaults or claims.bases <= known):
            return False
        for base, name in claims.defaults:
            if (base and base not in known) or name in known:
                return False
            if name:
                if ("proxy", name) in names:
                    return False
                known.add(name)
    return True


def is_balanced(macros: Iterable[Directive]) -> bool:
    """Whether each `.if` among *macros* is closed, and nothing else is."""
    return next(_check_nesting(macros), None) is None


def check_coherence(
    sections: Sequence[PlacedSection], macros: Iterable[Directive], rules: NameRules
) -> Iterator[Finding]:
    """Yield the problems that involve several sections; *macros* are all directives that begin with a dot."""
    yield from _check_names(sections, rules)
    yield from _check_bases(sections, rules)
    yield from _check_nesting(macros)


def _check_names(sections: Sequence[PlacedSection], rules: NameRules) -> Iterator[Finding]:
    seen: dict[Name, PlacedSection] = {}
    for placed in sections:
        names = () if placed.inside else _names_in_spaces(placed.section, rules)
        first = next((seen[name] for name in names if name in seen), None)
        kind, name = placed.section.key
        if first is not None and not (kind in _MAY_REPEAT and kind == first.section.kind):
            hint = f"rename one of them: the first is the {first.section.kind} at line {first.header.line}"
            yield Finding(placed.header, 1, f"{kind} '{name}' has the name of another section", hint)
        for claimed in names:
            seen.setdefault(claimed, placed)


def _check_bases(sections: Sequence[PlacedSection], rules: NameRules) -> Iterator[Finding]:
    lines: dict[str, list[int]] = {}
    users: dict[str, int] = {}
    uncertain: set[str] = set()
    for placed in sections:
        section, header = placed.section, placed.header
        base = base_of(section)
        if base and not placed.inside:
            # The base is the last meaningful word of the header.
            word = read_header(header.words).extra - 1
            if base not in lines:
                yield Finding(header, word, f"no defaults section '{base}' before this line", suggest(base, lines))
            elif len(lines[base]) > 1 and base not in uncertain and not rules.last_counts:
                where = " and ".join(map(str, lines[base]))
                yield Finding(header, word, f"several defaults sections are named '{base}'", f"at lines {where}")
            users.setdefault(base, header.line)
        if section.kind == "defaults" and section.name:
            if section.name in users and not placed.inside and not rules.may_replace:
                where = f"rename it: line {users[section.name]} refers to the section before it"
                yield Finding(header, 1, f"another defaults section is named '{section.name}' and in use", where)
            lines.setdefault(section.name, []).append(header.line)
            if placed.inside:
                uncertain.add(section.name)


def _check_nesting(macros: Iterable[Directive]) -> Iterator[Finding]:
    opened: list[tuple[Directive, bool]] = []
    for macro in macros:
        keyword = macro.keyword
        if keyword == ".if":
            opened.append((macro, False))
        elif keyword not in {".elif", ".else", ".endif"}:
            continue
        elif not opened:
            yield Finding(macro, 0, f"'{keyword}' without '.if'")
        elif keyword == ".endif":
            opened.pop()
        elif opened[-1][1]:
            yield Finding(macro, 0, f"'{keyword}' after '.else'")
        elif keyword == ".else":
            opened[-1] = (opened[-1][0], True)
    for macro, _ in opened:
        yield Finding(macro, 0, "'.if' without '.endif'", "add '.endif'")
