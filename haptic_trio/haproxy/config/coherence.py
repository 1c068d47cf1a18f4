"""Checks between sections: unique names, `from` references, matching `.if` and `.endif`.

`check_coherence` finds all that is wrong by looking at every section. That
nothing is wrong, `is_coherent` says by looking at what each page of sections
has for the others: it errs, if at all, by asking for the other one.

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
# HAProxy only warns of a repeated userlist and skips it, and goes on with a `crt-store` where it stands again.
_MAY_REPEAT: Final = frozenset({"defaults", "userlist", "crt-store"})

Name = tuple[str, str]
"""Where a name counts, and the name."""


class NameRules(NamedTuple):
    """Which names may be repeated."""

    spaces: Mapping[str, tuple[str, ...]]
    """Where the name of a proxy counts, by its kind."""
    last_counts: bool
    """Of several `defaults` sections of one name the last one counts, instead of none."""
    may_replace: bool
    """A `defaults` section may have the name of one that others refer to."""


@cache
def rules_of(version: tuple[int, ...]) -> NameRules:
    """Return the rules of an HAProxy of *version*, such as `(3, 2)`; without one those of the oldest.

    Versions between those that were tried are taken for the more tolerant one.
    """
    return NameRules(
        spaces=_ONE_SPACE if version >= (3, 3) else _TWO_SPACES,
        last_counts=version >= (3, 3),
        may_replace=version < (3, 2),
    )


class PlacedSection(msgspec.Struct, frozen=True):
    """A section, and where in the configuration it stands."""

    section: Section
    header: Directive
    """With the line that it has in the configuration."""
    inside: bool
    """It begins inside an `.if`: such a section may exist in several branches."""


class Claims(msgspec.Struct, frozen=True):
    """What a page of sections has to do with others."""

    names: tuple[Name, ...]
    """Names that only one section may have, also such as stand there twice."""
    bases: frozenset[str]
    """Names of `defaults` sections that others refer to."""
    defaults: tuple[tuple[str, str], ...] = ()
    """In order, if there are any: what each section refers to, and the name of the `defaults` section that it is."""
    has_macros: bool = False


class Names:
    """How often each name is claimed; mutable."""

    def __init__(self) -> None:
        self._counts: dict[Name, int] = {}
        self.repeated: set[Name] = set()
        """Names that are claimed more than once."""

    def __contains__(self, name: Name) -> bool:
        return name in self._counts

    def claim(self, names: Iterable[Name]) -> None:
        """Count *names* once more."""
        counts = self._counts
        for name in names:
            count = counts[name] = counts.get(name, 0) + 1
            if count > 1:
                self.repeated.add(name)

    def release(self, names: Iterable[Name]) -> None:
        """Count *names* once less."""
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
    """Return the names that only *section* may have."""
    return () if section.kind in _MAY_REPEAT else _names_in_spaces(section, rules)


def _names_in_spaces(section: Section, rules: NameRules) -> tuple[Name, ...]:
    kind, name = section.key
    if not name or kind in UNNAMED_KINDS or 1 in section.header.raw:
        return ()
    spaces = rules.spaces.get(kind)
    return ((kind, name),) if spaces is None else tuple((space, name) for space in spaces)


def base_of(section: Section) -> str:
    """Return the name of the `defaults` section that *section* refers to; empty if none, or one that is unknown."""
    if section.kind not in PROXY_KINDS:
        return ""
    parts = read_header(section.header.words)
    return "" if parts.extra - 1 in section.header.raw else parts.base


def is_coherent(pages: Iterable[Claims], names: Names) -> bool:
    """Whether nothing is wrong between the sections of *pages*; False if it takes a closer look to tell.

    *names* are those of all pages.
    """
    if names.repeated:
        return False
    known: set[str] = set()
    for claims in pages:
        if claims.has_macros or not (claims.defaults or claims.bases <= known):
            return False
        for base, name in claims.defaults:
            if (base and base not in known) or name in known:
                return False
            if name:
                if ("proxy", name) in names:
                    return False
                known.add(name)
    return True


def check_coherence(
    sections: Sequence[PlacedSection], macros: Iterable[Directive], rules: NameRules
) -> Iterator[Finding]:
    """Check what no section can know alone; *macros* are all directives that begin with a dot."""
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
            hint = f"the first is the {first.section.kind} at line {first.header.line}"
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
            # The base is the last word that counts.
            word = read_header(header.words).extra - 1
            if base not in lines:
                yield Finding(header, word, f"no defaults section '{base}' before this line", suggest(base, lines))
            elif len(lines[base]) > 1 and base not in uncertain and not rules.last_counts:
                where = " and ".join(map(str, lines[base]))
                yield Finding(header, word, f"several defaults sections are named '{base}'", f"at lines {where}")
            users.setdefault(base, header.line)
        if section.kind == "defaults" and section.name:
            if section.name in users and not placed.inside and not rules.may_replace:
                where = f"line {users[section.name]} refers to the one before"
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
        yield Finding(macro, 0, "'.if' without '.endif'", "it ends with '.endif'")
