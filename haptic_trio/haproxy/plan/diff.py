"""Comparison of two configurations section by section, and of two sets of files.

Hashes are compared first, so equal parts cost almost nothing.
"""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec

from haptic_trio.chunked import Page, Stretch, stretches
from haptic_trio.haproxy.grammar.keyword_families import PROXY_KINDS
from haptic_trio.haproxy.grammar.placement import read_header
from haptic_trio.haproxy.model import AuxFile, Config, Directive, FileChange, Files, Section
from haptic_trio.haproxy.sections import index_names

# With more differing lines than this, the shortest edit is not worth its quadratic cost.
_EXACT_LIMIT: Final = 2000
_ORDERED: Final = frozenset({"global", "defaults"})
# Kinds in which a valid configuration has one section for each name, unless it depends on `.if`.
_UNIQUE: Final = frozenset({"frontend", "backend", "listen", "peers", "resolvers", "cache", "ring"})
_MAX_REPEATED: Final = 20

SectionId: TypeAlias = tuple[str, str, int]
"""Kind, name, and number of earlier sections with the same kind and name."""


class SectionChange(msgspec.Struct, frozen=True):
    """A section with different content in both configurations."""

    running: Section
    desired: Section
    removed: tuple[Directive, ...]
    """Lines of the running section that the desired one lacks or has in another place; the order matters."""
    added: tuple[Directive, ...]

    @property
    def header_changed(self) -> bool:
        """Whether the words after kind and name differ."""
        return not same_words(self.running.header, self.desired.header)


class ConfigDiff(msgspec.Struct, frozen=True):
    """Differences of two configurations, by section."""

    added: tuple[Section, ...] = ()
    removed: tuple[Section, ...] = ()
    changed: tuple[SectionChange, ...] = ()
    reordered: bool = False
    """Whether sections have moved in a way that changes their meaning."""

    @property
    def is_empty(self) -> bool:
        """Whether both have the same meaning for HAProxy."""
        return not (self.added or self.removed or self.changed or self.reordered)


def diff_configs(running: Config, desired: Config) -> ConfigDiff:
    """Compare two configurations; comments, blank lines, and quoting do not count.

    The cost depends on the pages that differ, unless these contain sections
    that affect others, or sections that are identified by their order.
    """
    if running is desired or running.seal == desired.seal:
        return ConfigDiff()
    found = _diff_pages(running, desired)
    return found if found is not None else diff_whole(running, desired)


def diff_whole(running: Config, desired: Config) -> ConfigDiff:
    """Compare two configurations as `diff_configs` does, section by section."""
    if (changed := _diff_in_place(running, desired)) is not None:
        return ConfigDiff(changed=tuple(changed))
    before, after = _identify(running.sections), _identify(desired.sections)
    return _compare(before, after, reordered=_reordered(running, desired, before, after))


def diff_files(running: Files, desired: Files) -> tuple[FileChange, ...]:
    """Return the files that differ, by path."""
    before, after = running.differing(desired)
    return tuple(
        FileChange(path, before.get(path), after.get(path))
        for path in sorted(before.keys() | after.keys())
        if not _same_file(before.get(path), after.get(path))
    )


def same_words(one: Directive, other: Directive) -> bool:
    """Whether two lines have the same words, independent of their position."""
    return one.words == other.words and one.raw == other.raw


def _same_file(one: AuxFile | None, other: AuxFile | None) -> bool:
    return one is other or (one is not None and other is not None and one.seal == other.seal)


def _compare(before: Mapping[SectionId, Section], after: Mapping[SectionId, Section], *, reordered: bool) -> ConfigDiff:
    return ConfigDiff(
        tuple(section for name, section in after.items() if name not in before),
        tuple(section for name, section in before.items() if name not in after),
        tuple(
            _diff_sections(section, other)
            for name, section in before.items()
            if (other := after.get(name)) is not None and section is not other and not section.same_as(other)
        ),
        reordered,
    )


def _diff_pages(running: Config, desired: Config) -> ConfigDiff | None:
    """Compare only the pages that differ; None if the other pages are needed as well."""
    if not _same_lines(running.preamble, desired.preamble):
        return None
    places = stretches(running.sections, desired.sections)
    if places is None:
        return None
    before: dict[SectionId, Section] = {}
    after: dict[SectionId, Section] = {}
    for place in places:
        known, names = _identify_pages(place.before), _identify_pages(place.after)
        # Sections whose order matters, or that inherit by position, must not have moved; neither between places.
        if not (_in_order(known, names, running, desired) and known.keys().isdisjoint(after)):
            return None
        if not (before.keys().isdisjoint(known) and before.keys().isdisjoint(names) and after.keys().isdisjoint(names)):
            return None
        before |= known
        after |= names
    branched = running.branched or desired.branched
    repeatable = {one.key for one in (*before.values(), *after.values()) if branched or _may_repeat(one)}
    if repeatable and not _are_only_in(running, places, repeatable):
        return None
    return _compare(before, after, reordered=False)


def _in_order(
    before: Mapping[SectionId, Section], after: Mapping[SectionId, Section], running: Config, desired: Config
) -> bool:
    """Whether the sections of one place are in an order with the same meaning before and after."""
    if running.branched or desired.branched:
        return [name for name in before if name in after] == [name for name in after if name in before]
    if [name for name in before if name[0] in _ORDERED] != [name for name in after if name[0] in _ORDERED]:
        return False
    if all(name[0] not in _ORDERED for name in before):
        return True
    inherited, inherits = _inherited(before), _inherited(after)
    return all(inherited[name] == inherits[name] for name in inherited.keys() & inherits.keys())


def _may_repeat(section: Section) -> bool:
    """Whether another section may have the same kind and name."""
    return not section.name or section.kind not in _UNIQUE or 1 in section.header.raw


def _are_only_in(running: Config, places: Sequence[Stretch[Section]], keys: set[tuple[str, str]]) -> bool:
    """Whether all sections with one of *keys* are in *places*; also False if there are too many keys to check."""
    if len(keys) > _MAX_REPEATED:
        return False
    differing = {id(page) for place in places for page in place.before}
    shared = [page.summary(index_names) for page in running.sections.pages if id(page) not in differing]
    return not any(key in names for names in shared for key in keys)


def _diff_in_place(running: Config, desired: Config) -> list[SectionChange] | None:
    """Return the changed sections if both have the same sections in the same order, the usual case; else None."""
    if len(running.sections) != len(desired.sections) or not _same_lines(running.preamble, desired.preamble):
        return None
    changed = []
    for one, other in zip(running.sections, desired.sections, strict=True):
        if one is other:
            continue
        if one.kind != other.kind or one.name != other.name:
            return None
        if not one.same_as(other):
            changed.append((one, other))
    return [_diff_sections(*pair) for pair in changed]


def _same_lines(one: Sequence[Directive], other: Sequence[Directive]) -> bool:
    return len(one) == len(other) and all(map(same_words, one, other))


def _identify_pages(pages: Sequence[Page[Section]]) -> dict[SectionId, Section]:
    if len(pages) == 1:
        return pages[0].summary(_identify)
    return _identify(section for page in pages for section in page.items)


def _identify(sections: Iterable[Section]) -> dict[SectionId, Section]:
    counts: dict[tuple[str, str], int] = {}
    found: dict[SectionId, Section] = {}
    for section in sections:
        key = section.key
        number = counts[key] = counts.get(key, -1) + 1
        found[(*key, number)] = section
    return found


def _diff_sections(running: Section, desired: Section) -> SectionChange:
    before, after = running.directives, desired.directives
    start, end = _common_ends(before, after)
    before, after = before[start : len(before) - end], after[start : len(after) - end]
    if len(before) + len(after) > _EXACT_LIMIT:
        return SectionChange(running, desired, before, after)
    one, other = ([(line.words, line.raw) for line in lines] for lines in (before, after))
    # The usual case, and much faster: all servers have other addresses.
    if set(one).isdisjoint(other):
        return SectionChange(running, desired, before, after)
    matcher = difflib.SequenceMatcher(None, one, other, autojunk=False)
    removed: list[Directive] = []
    added: list[Directive] = []
    for tag, low, high, new_low, new_high in matcher.get_opcodes():
        if tag != "equal":
            removed += before[low:high]
            added += after[new_low:new_high]
    return SectionChange(running, desired, tuple(removed), tuple(added))


def _common_ends(before: Sequence[Directive], after: Sequence[Directive]) -> tuple[int, int]:
    shortest = min(len(before), len(after))
    start = 0
    while start < shortest and same_words(before[start], after[start]):
        start += 1
    end = 0
    while end < shortest - start and same_words(before[-1 - end], after[-1 - end]):
        end += 1
    return start, end


def _reordered(
    running: Config, desired: Config, before: Mapping[SectionId, Section], after: Mapping[SectionId, Section]
) -> bool:
    """Whether the lines before all sections, or the meaning of the order of common sections, has changed.

    The order of frontends, backends, and most others is irrelevant. Relevant
    are the order of `global` and `defaults` sections, and the `defaults`
    section that a proxy without `from` inherits from.
    """
    if not _same_lines(running.preamble, desired.preamble):
        return True
    if running.branched or desired.branched:
        return [name for name in before if name in after] != [name for name in after if name in before]
    fixed = [
        [name for name in one if name in other and name[0] in _ORDERED]
        for one, other in ((before, after), (after, before))
    ]
    if fixed[0] != fixed[1]:
        return True
    inherited, inherits = _inherited(before), _inherited(after)
    return any(inherited[name] != inherits[name] for name in inherited.keys() & inherits.keys())


def _inherited(sections: Mapping[SectionId, Section]) -> dict[SectionId, SectionId | None]:
    """Return the defaults section of each proxy without `from`: the last one before it."""
    last: SectionId | None = None
    found: dict[SectionId, SectionId | None] = {}
    for name, section in sections.items():
        if section.kind == "defaults":
            last = name
        elif section.kind in PROXY_KINDS and not read_header(section.header.words).base:
            found[name] = last
    return found
