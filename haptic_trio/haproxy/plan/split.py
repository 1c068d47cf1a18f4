"""Split of a change into the part that can be applied at runtime and the part that needs a reload.

The result is a generation of its own, the *effective* generation: the
running structure with the servers, entries, certificates and backends that
can be applied at runtime. It is valid by itself and can be written to disk,
so a process that dies before the reload restarts with the applied changes.

These changes wait for the reload:

- servers of a backend whose other lines change as well, if they have options
  that none of its servers had, or if their inherited settings change;
- servers that name a file which the process does not have in its new version;
- maps, lists and other files selected by `split_files`;
- removed backends, since rules may refer to them until the reload.

If more servers change than there is room for, the split is *partial*: each
namespace gets a share of the room (`haptic_trio.haproxy.plan.shares`), and
the next split, from the effective generation, continues.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import msgspec

from haptic_trio.chunked import Paged, Splice, changed_items, differences, spliced
from haptic_trio.haproxy.causes import UNATTRIBUTED, namespace_of_change
from haptic_trio.haproxy.config.servers import ServerSettings
from haptic_trio.haproxy.model import (
    BY_LINE,
    AuxFile,
    Config,
    Files,
    Generation,
    Section,
    make_generation,
)
from haptic_trio.haproxy.plan.backends import add_backend
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.diff import ConfigDiff, SectionChange, diff_configs
from haptic_trio.haproxy.plan.operations import AddServer, Operation, Plan
from haptic_trio.haproxy.plan.plan import (
    MAX_CHANGED_SERVERS,
    MAX_REASONS,
    OLDEST,
    TOO_MANY,
    alters_no_server,
    count_changed_servers,
    count_servers,
    make_plan,
)
from haptic_trio.haproxy.plan.section_parts import shared_lines, with_servers_of, with_some_servers_of
from haptic_trio.haproxy.plan.servers import plan_servers
from haptic_trio.haproxy.plan.shares import Shares, owner_of
from haptic_trio.haproxy.plan.split_files import SERVING_KINDS, Waiting, choose_files
from haptic_trio.haproxy.plan.steps import Step
from haptic_trio.haproxy.sections import index_names, place_in

_Key: TypeAlias = tuple[str, str]
T = TypeVar("T")
ChangeT = TypeVar("ChangeT", bound=SectionChange | Section)

MAX_UNDIVIDED: Final = 1_000
"""A backend with more changed servers than this, and more than there is room for, waits for a reload if its servers
cannot be changed one after the other."""

_FEW_PAGES: Final = 8
_FEW_BYTES: Final = 64 << 10

# Options of a server whose argument is a file.
_FILE_OPTIONS: Final = frozenset({"ca-file", "crl-file", "crt"})


class SplitPlan(NamedTuple):
    """The two parts of a change."""

    effective: Generation | None
    """Generation of the process after the operations; None if no change can be applied before the reload."""
    operations: tuple[Operation, ...]
    """Operations from the running generation to the effective one."""
    reasons: tuple[str, ...]
    """Why the rest, from the effective to the desired generation, needs a reload; empty if there is no such rest."""
    is_partial: bool = False
    """Whether changes of servers that may need no reload are left for the next split, for lack of room."""
    causes: frozenset[str] = frozenset()
    """Namespaces of the changes that need a reload; see `haptic_trio.haproxy.causes`."""
    affected: frozenset[str] = frozenset()
    """Namespaces of all changes that wait for the reload."""


def split_plan(
    running: Generation | None,
    desired: Generation,
    capabilities: Capabilities = OLDEST,
    room: int = MAX_CHANGED_SERVERS,
    withheld: frozenset[str] = frozenset(),
) -> SplitPlan:
    """Split the change from *running* to *desired*; never raises.

    Servers and backends of the namespaces *withheld* wait for the reload; the
    reasons do not mention them.

    If more than *room* servers change, namespaces with few changes come first,
    and the split is partial. Unless a section has more changes and cannot be
    divided, no more servers change.

    If no part needs a reload, and the split is not partial, the effective
    generation is the desired one. Repeated splits, each from the effective
    generation of the last one, reach a split that is not partial; the one
    after that gives no operations.
    """
    diff = diff_configs(running.config, desired.config) if running is not None else None
    if running is None or diff is None:
        return _undivided(make_plan(running, desired), desired)
    changed = count_changed_servers(diff, capabilities)
    if not withheld and changed <= room and not any(map(alters_no_server, diff.changed)):
        whole = make_plan(running, desired, capabilities=capabilities, diff=diff)
        if not whole.reasons:
            return SplitPlan(desired, whole.operations, ())
    chooser = _SectionChooser(running, desired, capabilities, diff, room, withheld)
    effective = _make_effective(running, desired, capabilities, diff, chooser)
    ahead = _plan_ranked(running, effective, capabilities, chooser) if effective is not None else None
    if effective is None or ahead is None or ahead.reasons or not ahead.operations:
        # In the effective generation, what waits for a change of a namespace counts for this namespace.
        is_same = (
            effective is not None and effective.config is running.config and ahead is not None and not ahead.reasons
        )
        before = effective if is_same and effective is not None else running
        whole = make_plan(before, desired, capabilities=capabilities, diff=diff)
        return _undivided(whole, None if withheld else desired)
    rest = make_plan(effective, desired, capabilities=capabilities, diff=chooser.without_untried(effective))
    if rest.reasons or changed > MAX_CHANGED_SERVERS or chooser.is_partial or withheld:
        if not rest.reasons and changed > MAX_CHANGED_SERVERS:
            return SplitPlan(effective, ahead.operations, (TOO_MANY,), chooser.is_partial, UNATTRIBUTED, UNATTRIBUTED)
        return SplitPlan(effective, ahead.operations, rest.reasons, chooser.is_partial, rest.causes, rest.affected)
    return SplitPlan(desired, (*ahead.operations, *rest.operations), ())


def _undivided(whole: Plan, desired: Generation | None) -> SplitPlan:
    if whole.reasons or desired is None:
        return SplitPlan(None, (), whole.reasons, False, whole.causes, whole.affected)
    return SplitPlan(desired, whole.operations, ())


def _plan_ranked(
    running: Generation, effective: Generation, capabilities: Capabilities, chooser: "_SectionChooser"
) -> Plan:
    """Return the plan from *running* to *effective*, with the operations of small namespaces first in each phase."""
    diff = diff_configs(running.config, effective.config)
    ranked = msgspec.structs.replace(diff, changed=chooser.ranked(diff.changed), added=chooser.ranked(diff.added))
    return make_plan(running, effective, capabilities=capabilities, diff=ranked)


def is_near(running: Generation, desired: Generation) -> bool:
    """Whether the two share almost all of their text, so that the split takes a few milliseconds."""
    sections = running.config.sections, desired.config.sections
    files = running.files.paged, desired.files.paged
    return (
        _share_pages(*sections)
        and _share_pages(*files)
        and sum(len(section.text) for section in _changed(*sections))
        + sum(_changed_bytes(path, running.files, desired.files) for path in {file.path for file in _changed(*files)})
        <= _FEW_BYTES
    )


def _share_pages(one: Paged[Any], other: Paged[Any]) -> bool:
    return len({id(page) for page in one.pages} ^ {id(page) for page in other.pages}) <= _FEW_PAGES


def _changed(one: Paged[T], other: Paged[T]) -> list[T]:
    """Return the items that only one of them has, by identity."""
    old, new = changed_items(*differences(one, other))
    return [*old, *new]


def _changed_bytes(path: str, running: Files, desired: Files) -> int:
    """Return the size of what only one of the two has in the file *path*."""
    before, after = running.get(path), desired.get(path)
    if before is None or after is None or before.kind not in BY_LINE:
        return sum(file.size for file in (before, after) if file is not None)
    return sum(len(piece.text) for piece in _changed(before.lines.pages, after.lines.pages))


def _make_effective(
    running: Generation, desired: Generation, capabilities: Capabilities, diff: ConfigDiff, chooser: "_SectionChooser"
) -> Generation | None:
    # If sections depend on `.if`, the text does not determine the sections of the process.
    if running.config.branched or desired.config.branched:
        return None
    replaced: dict[_Key, Section] = {}
    found: dict[_Key, Section] = {}
    changes: list[SectionChange | Section] = [*diff.changed, *diff.added]
    for change in chooser.ranked(changes):
        if isinstance(change, SectionChange):
            if (section := chooser.replace(change)) is not None:
                replaced[change.running.key] = section
        elif (section := chooser.add(change)) is not None:
            found[change.key] = section
    added = [found[section.key] for section in diff.added if section.key in found]
    config = put_together(running.config, replaced, added)
    waiting = Waiting(desired.config, diff, added)
    files = choose_files(running, desired, config, waiting=waiting, capabilities=capabilities)
    return make_generation(config, files)


def put_together(config: Config, replaced: Mapping[_Key, Section], added: Sequence[Section]) -> Config:
    """Return *config* with the sections *replaced* in their places, and the sections *added* at the end."""
    if not (replaced or added):
        return config
    splices: list[Splice[Section]] = []
    count = 0
    for page in config.sections.pages:
        names = page.summary(index_names)
        found = sorted((place_in(page.items, names[key][0]), one) for key, one in replaced.items() if key in names)
        splices += [Splice(count + place, 1, (section,)) for place, section in found]
        count += len(page.items)
    if added:
        splices.append(Splice(count, 0, tuple(added)))
    return Config(spliced(config.sections, splices), config.preamble, config.head)


class _SectionChooser:
    """Selects the sections of *desired* that a process with *running* can apply without a reload, wholly or partly."""

    def __init__(
        self,
        running: Generation,
        desired: Generation,
        capabilities: Capabilities,
        diff: ConfigDiff,
        room: int,
        withheld: frozenset[str],
    ) -> None:
        self._withheld = withheld
        self._running = running
        self._desired = desired
        self._capabilities = capabilities
        self._before = running.config.bases
        self._after = desired.config.bases
        changes: list[SectionChange | Section] = [*diff.changed]
        changes += diff.added if capabilities.backends else ()
        wanted = [(owner_of(_section_of(change)), count_servers(change)) for change in changes]
        # The seed differs for each generation: a section that changes all the time does not keep others waiting.
        self._shares = Shares(wanted, room, desired.id)
        self._untried: set[_Key] = set()
        self._structural = 0
        self.is_partial = False
        """Whether changes of servers were left out for lack of room."""

    def ranked(self, changes: Iterable[ChangeT]) -> tuple[ChangeT, ...]:
        """Return *changes*, which are sections or changes of them, those of the smallest namespaces first."""
        return tuple(sorted(changes, key=lambda change: self._shares.rank(_section_of(change))))

    def without_untried(self, effective: Generation) -> ConfigDiff:
        """Return the changes from *effective* to *desired* without those that were not tried, or cut, for lack of room.

        Whether these need a reload is found when they are tried. To plan them
        in each split would take more time than the rest of it.
        """
        diff = diff_configs(effective.config, self._desired.config)
        return msgspec.structs.replace(
            diff,
            changed=tuple(one for one in diff.changed if one.desired.key not in self._untried),
            added=tuple(one for one in diff.added if one.key not in self._untried),
        )

    def add(self, section: Section) -> Section | None:
        """Return the section that can be added without a reload; None if none can."""
        # Checked first: before HAProxy 3.4 no backend can be added.
        if not self._capabilities.backends or section.kind != "backend" or not self._inherits_same(section, section):
            return None
        return self._take_some(None, section, count_servers(section), self._add_steps, lambda: (section,))

    def replace(self, change: SectionChange) -> Section | None:
        """Return the section that can replace the running one without a reload; None if it stays unchanged."""
        before, after = change.running, change.desired
        if alters_no_server(change):
            # Thousands of backends may have a new line each; the servers of others do not wait for plans of these.
            if self._structural >= MAX_REASONS:
                self._untried.add(after.key)
            self._structural += 1
            return None
        if before.kind not in SERVING_KINDS or not self._inherits_same(before, after):
            return None

        def versions() -> Iterator[Section]:
            yield after
            if (mixed := with_servers_of(before, after)) is not None:
                yield mixed

        return self._take_some(before, after, count_servers(change), partial(self._replace_steps, before), versions)

    def _take_some(
        self,
        before: Section | None,
        after: Section,
        count: int,
        plan: Callable[[Section], Sequence[Step] | None],
        versions: Callable[[], Iterable[Section]],
    ) -> Section | None:
        """Return the first of *versions* that has room and that *plan* can reach, or a part of it.

        *count* is the number of changed servers.
        """
        if self._withheld and namespace_of_change(after) in self._withheld:
            return None
        left = self._shares.left(after)
        if count <= left:
            return next((one for one in versions() if self._take(after, plan(one), count)), None)
        self.is_partial = True
        if not left:
            self._untried.add(after.key)
            return None
        for one in versions():
            some = with_some_servers_of(before, one, left, self._shares.order_of(after.name))
            if some is not None and self._take(after, plan(some), left):
                if one is after:
                    self._untried.add(after.key)
                return some
        # What cannot be divided is taken alone.
        if count <= MAX_UNDIVIDED and self._shares.is_untouched(after):
            return next((one for one in versions() if self._take(after, plan(one), count)), None)
        return None

    def _add_steps(self, section: Section) -> list[Step] | None:
        return add_backend(self._before, self._after, section, self._capabilities)

    def _replace_steps(self, before: Section, after: Section) -> list[Step] | None:
        return plan_servers(self._before, before, after, self._capabilities)

    def _inherits_same(self, before: Section, after: Section) -> bool:
        """Whether servers inherit the same settings from the bases of *before* and *after*."""
        one, other = ServerSettings(self._before, before).bases, ServerSettings(self._after, after).bases
        return shared_lines(one) == shared_lines(other)

    def _take(self, section: Section, steps: Sequence[Step] | None, count: int) -> bool:
        """Whether *steps* exist and can be applied; *count* servers of *section* take their room from then on."""
        if steps is None or not self._has_files(steps):
            return False
        self._shares.take(section, count)
        return True

    def _has_files(self, steps: Sequence[Step]) -> bool:
        """Whether the process has the files named by the servers that *steps* add."""
        return all(
            _is_same(self._running.files.get(word), self._desired.files.get(word))
            for _, operation in steps
            if isinstance(operation, AddServer)
            for option, word in pairwise(operation.options)
            if option in _FILE_OPTIONS
        )


def _is_same(one: AuxFile | None, other: AuxFile | None) -> bool:
    return one is other or (one is not None and other is not None and one.seal == other.seal)


def _section_of(change: SectionChange | Section) -> Section:
    return change.desired if isinstance(change, SectionChange) else change
