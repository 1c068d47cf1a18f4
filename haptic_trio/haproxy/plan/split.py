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
- servers of the largest backends, if more than `MAX_CHANGED_SERVERS` change;
- removed backends, since rules may refer to them until the reload.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from haptic_trio.chunked import Paged, Splice, differences, spliced
from haptic_trio.haproxy.config.parser import read_section
from haptic_trio.haproxy.config.servers import ServerLine, ServerSettings, read_server
from haptic_trio.haproxy.config.writer import write_directive
from haptic_trio.haproxy.model import (
    BY_LINE,
    AuxFile,
    Config,
    Directive,
    Files,
    Generation,
    Section,
    make_generation,
)
from haptic_trio.haproxy.plan.backends import add_backend
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.diff import ConfigDiff, SectionChange, diff_configs
from haptic_trio.haproxy.plan.operations import AddServer, Operation
from haptic_trio.haproxy.plan.plan import MAX_CHANGED_SERVERS, OLDEST, TOO_MANY, count_servers, make_plan
from haptic_trio.haproxy.plan.servers import plan_servers
from haptic_trio.haproxy.plan.split_files import SERVING_KINDS, choose_files
from haptic_trio.haproxy.plan.steps import Step
from haptic_trio.haproxy.sections import index_names, place_in

_Key: TypeAlias = tuple[str, str]
T = TypeVar("T")

_FEW_PAGES: Final = 8
_FEW_BYTES: Final = 64 << 10

# Lines that apply to all servers of a section.
_SHARED: Final = frozenset({"default-server", "mode"})
# Options of a server whose argument is a file.
_FILE_OPTIONS: Final = frozenset({"ca-file", "crl-file", "crt"})


class SplitPlan(NamedTuple):
    """The two parts of a change."""

    effective: Generation | None
    """Generation of the process after the operations; None if no change can be applied before the reload."""
    operations: tuple[Operation, ...]
    """Operations from the running generation to the effective one."""
    reasons: tuple[str, ...]
    """Why the rest, from the effective to the desired generation, needs a reload; empty if there is no rest."""


def split_plan(running: Generation | None, desired: Generation, capabilities: Capabilities = OLDEST) -> SplitPlan:
    """Split the change from *running* to *desired*; never raises.

    If no part needs a reload, the effective generation is the desired one. A
    second split, from the effective to the desired generation, gives no
    operations.
    """
    diff = diff_configs(running.config, desired.config) if running is not None else None
    whole = make_plan(running, desired, capabilities=capabilities, diff=diff)
    if running is None or diff is None:
        return SplitPlan(None, (), whole.reasons)
    if not whole.reasons:
        return SplitPlan(desired, whole.operations, ())
    effective = _make_effective(running, desired, capabilities, diff)
    ahead = make_plan(running, effective, capabilities=capabilities) if effective is not None else None
    if effective is None or ahead is None or ahead.reasons or not ahead.operations:
        return SplitPlan(None, (), whole.reasons)
    rest = make_plan(effective, desired, capabilities=capabilities)
    if rest.reasons or TOO_MANY in whole.reasons:
        return SplitPlan(effective, ahead.operations, rest.reasons or (TOO_MANY,))
    return SplitPlan(desired, (*ahead.operations, *rest.operations), ())


def is_near(running: Generation, desired: Generation) -> bool:
    """Whether the two share almost all of their text, so that the split takes a few milliseconds."""
    sections = running.config.sections, desired.config.sections
    files = running.files.paged, desired.files.paged
    return (
        _share_pages(*sections)
        and _share_pages(*files)
        and sum(len(section.text) for section in _changed(*sections))
        + sum(_changed_bytes(file, running.files, desired.files) for file in _changed(*files))
        <= _FEW_BYTES
    )


def _share_pages(one: Paged[Any], other: Paged[Any]) -> bool:
    return len({id(page) for page in one.pages} ^ {id(page) for page in other.pages}) <= _FEW_PAGES


def _changed(one: Paged[T], other: Paged[T]) -> list[T]:
    """Return the items that only one of them has, by identity."""
    old, new = differences(one, other)
    shared = {id(item) for item in old} & {id(item) for item in new}
    return [item for item in (*old, *new) if id(item) not in shared]


def _changed_bytes(file: AuxFile, running: Files, desired: Files) -> int:
    """Return the size of what is in *file*, of one of the two, and not in the file of that path of the other."""
    others = [one for files in (running, desired) if (one := files.get(file.path)) is not None and one is not file]
    if file.kind not in BY_LINE or not others:
        return file.size
    pieces, _ = differences(file.lines.pages, others[0].lines.pages)
    return sum(len(piece.text) for piece in pieces)


def _make_effective(
    running: Generation, desired: Generation, capabilities: Capabilities, diff: ConfigDiff
) -> Generation | None:
    # If sections depend on `.if`, the text does not determine the sections of the process.
    if running.config.branched or desired.config.branched:
        return None
    chooser = _SectionChooser(running, desired, capabilities)
    # The smallest first: a backend with very many changes keeps no other one waiting.
    changes = sorted(diff.changed, key=count_servers)
    replaced = {change.running.key: new for change in changes if (new := chooser.replace(change)) is not None}
    found = {section.key for section in sorted(diff.added, key=count_servers) if chooser.can_add(section)}
    added = [section for section in diff.added if section.key in found]
    config = put_together(running.config, replaced, added)
    missing = {section.name for section in diff.added if section.kind in SERVING_KINDS}
    missing -= {section.name for section in added}
    files = choose_files(running, desired, config, missing=missing, capabilities=capabilities)
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

    def __init__(self, running: Generation, desired: Generation, capabilities: Capabilities) -> None:
        self._running = running
        self._desired = desired
        self._capabilities = capabilities
        self._before = running.config.bases
        self._after = desired.config.bases
        self._room = MAX_CHANGED_SERVERS

    def can_add(self, section: Section) -> bool:
        # Checked first: before HAProxy 3.4 no backend can be added.
        if not self._capabilities.backends or section.kind != "backend" or not self._inherits_same(section, section):
            return False
        count = count_servers(section)
        return count <= self._room and self._take(
            add_backend(self._before, self._after, section, self._capabilities), count
        )

    def replace(self, change: SectionChange) -> Section | None:
        """Return the section that can replace the running one without a reload; None if it stays unchanged."""
        before, after = change.running, change.desired
        count = count_servers(change)
        if before.kind not in SERVING_KINDS or count > self._room or not self._inherits_same(before, after):
            return None
        if self._can_become(before, after, count):
            return after
        mixed = with_servers_of(before, after)
        return mixed if mixed is not None and self._can_become(before, mixed, count) else None

    def _can_become(self, before: Section, after: Section, count: int) -> bool:
        return self._take(plan_servers(self._before, before, after, self._capabilities), count)

    def _inherits_same(self, before: Section, after: Section) -> bool:
        """Whether servers inherit the same settings from the bases of *before* and *after*."""
        one, other = ServerSettings(self._before, before).bases, ServerSettings(self._after, after).bases
        return _shared(one) == _shared(other)

    def _take(self, steps: Sequence[Step] | None, count: int) -> bool:
        """Whether *steps* exist and can be applied; *count* servers take their room from then on."""
        if steps is None or not self._has_files(steps):
            return False
        self._room -= count
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


def _shared(sections: Iterable[Section]) -> list[tuple[object, ...]]:
    """Return the lines of *sections* that apply to all servers."""
    return [(line.words, line.raw) for one in sections for line in one.directives if line.keyword in _SHARED]


class Parts(NamedTuple):
    """Parts of a section whose servers all inherit the same settings."""

    frame: tuple[Directive, ...]
    lines: tuple[Directive, ...]
    """The servers."""
    servers: dict[str, ServerLine]


def take_apart(section: Section) -> Parts | None:
    """Return the parts of *section*; None if its servers do not all inherit the same settings."""
    if section.conditional:
        return None
    order = [line.keyword for line in section.directives if line.keyword in {"server", "default-server"}]
    lines = tuple(section.all("server"))
    found = [server for line in lines if (server := read_server(line)) is not None]
    # Sorted: no `default-server` follows a server.
    if len(found) != len(lines) or order != sorted(order):
        return None
    frame = tuple(line for line in section.directives if line.keyword != "server")
    return Parts(frame, lines, {server.name: server for server in found})


def with_servers_of(before: Section, after: Section) -> Section | None:
    """Return *before* with the servers of *after*; None if their lines may have another meaning there."""
    one, other = take_apart(before), take_apart(after)
    if one is None or other is None or _shared([before]) != _shared([after]):
        return None
    options = {server.rest for server in one.servers.values()}
    if any(server.rest not in options for server in other.servers.values()):
        return None
    gone = one.servers.keys() - other.servers.keys()
    # Rules may name servers.
    if any(name in word for line in one.frame for word in line.words for name in gone):
        return None
    lines = "".join(f"  {write_directive(line)}\n" for line in (*one.frame, *other.lines))
    return read_section(f"{write_directive(before.header)}\n{lines}")
