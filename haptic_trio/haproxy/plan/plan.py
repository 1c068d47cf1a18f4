"""Plan from one generation to another: runtime operations, or the reasons for a reload.

A pure function. These changes need no reload: added, removed and changed
servers, entries of maps and ACL lists, certificates with their crt-list
entries, certificate authorities, and, if the process supports it, whole
backends. Any other difference needs a reload, which includes all changes, so
the plan then has no operations. `haptic_trio.haproxy.plan.split` decides
which changes are applied before a reload.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from haptic_trio.haproxy.causes import UNATTRIBUTED, namespace_of_change
from haptic_trio.haproxy.config.guards import ChangedGuards
from haptic_trio.haproxy.config.maps import MapUse, find_map_use, has_entries
from haptic_trio.haproxy.model import Directive, FileChange, FileKind, Generation, Section
from haptic_trio.haproxy.plan.backends import add_backend, delete_backend
from haptic_trio.haproxy.plan.capabilities import Capabilities, capabilities_of
from haptic_trio.haproxy.plan.certificates import CertificatePlanner
from haptic_trio.haproxy.plan.diff import (
    ConfigDiff,
    SectionChange,
    diff_configs,
    diff_files,
)
from haptic_trio.haproxy.plan.maps import plan_entries
from haptic_trio.haproxy.plan.operations import Plan
from haptic_trio.haproxy.plan.servers import plan_servers
from haptic_trio.haproxy.plan.steps import Step, order_steps

UNKNOWN_GENERATION: Final = "unknown generation"
"""Reason for a reload: HAProxy runs no generation yet, or one that is not known, so nothing can be compared."""

MAX_CHANGED_SERVERS: Final = 10_000
"""A change of more servers than this needs a reload, which takes less time than the commands."""
TOO_MANY: Final = f"servers: more than {MAX_CHANGED_SERVERS:,} changed"
MAX_REASONS: Final = 20

OLDEST: Final = capabilities_of((2, 8))
"""Capabilities of the oldest supported HAProxy."""

_SERVING: Final = frozenset({"backend", "listen"})
_SERVER_LINES: Final = frozenset({"default-server", "server", "server-template"})
_FILE_NAMES: Final = {
    FileKind.MAP: "map",
    FileKind.CERT: "certificate",
    FileKind.CRT_LIST: "crt-list",
    FileKind.FILE: "file",
}


def make_plan(
    running: Generation | None,
    desired: Generation,
    *,
    capabilities: Capabilities = OLDEST,
    diff: ConfigDiff | None = None,
) -> Plan:
    """Return the plan from *running*, the generation in the process (None: unknown, or none), to *desired*.

    *diff* is the difference of the two configurations, if it is known. Never raises.
    """
    if running is None:
        return Plan(reasons=(UNKNOWN_GENERATION,), causes=UNATTRIBUTED, affected=UNATTRIBUTED)
    if running.id == desired.id:
        return Plan()
    draft = _Draft()
    diff = diff if diff is not None else diff_configs(running.config, desired.config)
    _plan_config(running, desired, diff, capabilities, draft)
    _plan_files(running, desired, diff_files(running.files, desired.files), capabilities, draft)
    reasons = draft.reasons
    if len(reasons) > MAX_REASONS:
        # Reasons are shown and logged: one object may have thousands.
        reasons[MAX_REASONS:] = [f"{len(reasons) - MAX_REASONS:,} more"]
    if not reasons:
        return Plan(operations=order_steps(draft.steps))
    causes = draft.unknown.union(map(namespace_of_change, draft.causes))
    return Plan(reasons=tuple(reasons), causes=causes, affected=causes.union(map(namespace_of_change, draft.others)))


class _Draft:
    """Steps and reasons for a reload that were found so far."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self.reasons: list[str] = []
        self.causes: list[Section | FileChange] = []
        """The changes that need a reload."""
        self.others: list[Section | FileChange] = []
        """The other changes."""
        self.unknown: frozenset[str] = frozenset()

    def take(self, change: Section | FileChange, found: Sequence[Step] | None, why: Iterable[str]) -> None:
        """Add the steps *found* for *change*; or, if it has none, the reasons *why* it needs a reload."""
        if found is None:
            self.reasons += why
            self.causes.append(change)
        elif found:
            self.steps += found
            self.others.append(change)

    def add_reason(self, reason: str) -> None:
        """Add a reason that stands for more than one change."""
        self.reasons.append(reason)
        self.unknown = UNATTRIBUTED


def count_servers(change: SectionChange | Section) -> int:
    """Return how many servers *change* alters or adds at most, in a section that may have servers."""
    if isinstance(change, SectionChange):
        return max(map(_count_server_lines, (change.removed, change.added))) if change.desired.kind in _SERVING else 0
    return len(change.directives) if change.kind in _SERVING else 0


def alters_no_server(change: SectionChange) -> bool:
    """Whether *change* is one of a backend without a change of its servers, which always needs a reload."""
    return change.desired.kind in _SERVING and not count_servers(change)


def alters_rules(change: SectionChange) -> bool:
    """Whether *change* is one of more than servers: requests may meet other rules before it than after it."""
    if change.desired.kind not in _SERVING:
        return True
    return change.header_changed or any(line.keyword not in _SERVER_LINES for line in (*change.removed, *change.added))


def _count_server_lines(lines: Iterable[Directive]) -> int:
    return sum(line.keyword in _SERVER_LINES for line in lines)


def count_changed_servers(diff: ConfigDiff, capabilities: Capabilities) -> int:
    """Return how many servers commands would change or add at most."""
    added = diff.added if capabilities.backends else ()
    return sum(map(count_servers, diff.changed)) + sum(map(count_servers, added))


def name_section(section: Section) -> str:
    """Return kind and name of a section, such as `backend web`."""
    return f"{section.kind} {section.name}".strip()


def _plan_config(
    running: Generation, desired: Generation, diff: ConfigDiff, capabilities: Capabilities, draft: _Draft
) -> None:
    # If sections depend on `.if`, the text does not determine the sections of the process.
    plain = not (running.config.branched or desired.config.branched)
    before, after = running.config.bases, desired.config.bases
    if count_changed_servers(diff, capabilities) > MAX_CHANGED_SERVERS:
        draft.add_reason(TOO_MANY)
        plain = False
    for section in diff.removed:
        found = delete_backend(before, section, capabilities) if plain else None
        draft.take(section, found, [f"{name_section(section)} removed"])
    for section in diff.added:
        found = add_backend(before, after, section, capabilities) if plain else None
        draft.take(section, found, [f"{name_section(section)} added"])
    if diff.reordered:
        draft.add_reason("order of sections changed")
    for change in diff.changed:
        has_servers = plain and change.running.kind in _SERVING
        found = plan_servers(before, change.running, change.desired, capabilities) if has_servers else None
        draft.take(change.desired, found, _reasons_for(change) if found is None else [])


def _reasons_for(change: SectionChange) -> list[str]:
    name = name_section(change.desired)
    reasons = [f"{name}: header changed"] if change.header_changed else []
    removed, added = _by_subject(change.removed), _by_subject(change.added)
    for subject in dict.fromkeys([*removed, *added]):
        if subject not in added:
            what = "removed"
        elif subject not in removed:
            what = "added"
        elif _is_same_set(removed[subject], added[subject]):
            what = "moved"
        else:
            what = "changed"
        reasons.append(f"{name}: {subject} {what}")
    return reasons or [f"{name}: order of lines changed"]


def _by_subject(lines: Iterable[Directive]) -> dict[str, list[Directive]]:
    found: dict[str, list[Directive]] = {}
    for line in lines:
        found.setdefault(_subject(line.words), []).append(line)
    return found


def _subject(words: tuple[str, ...]) -> str:
    if words[0] in {"server", "acl"} and len(words) > 1:
        return f"{words[0]} '{words[1]}'"
    return f"directive '{words[0]}'"


def _is_same_set(before: Sequence[Directive], after: Sequence[Directive]) -> bool:
    words = {(line.words, line.raw) for line in after}
    return len(before) == len(after) and all((line.words, line.raw) in words for line in before)


def _plan_files(
    running: Generation,
    desired: Generation,
    changes: Sequence[FileChange],
    capabilities: Capabilities,
    draft: _Draft,
) -> None:
    planner: CertificatePlanner | None = None
    guards = ChangedGuards(running, changes)
    for change in changes:
        if change.path in guards and change.desired is not None:
            reason = guards.conflicts.get(change.desired.namespace)
            if reason is not None:
                draft.take(change, None, [reason])
                continue
        if has_entries(running, change):
            _plan_entries(running, change, draft, is_guard=change.path in guards)
            continue
        planner = planner or CertificatePlanner(running, desired, capabilities)
        draft.take(change, planner.plan(change), [f"{_name_file(change)} {_describe(change)}"])


def _name_file(change: FileChange) -> str:
    known = change.desired or change.running
    return f"{_FILE_NAMES[known.kind] if known is not None else 'file'} {change.path}"


def _describe(change: FileChange) -> str:
    return "added" if change.running is None else "removed" if change.desired is None else "changed"


def _plan_entries(running: Generation, change: FileChange, draft: _Draft, *, is_guard: bool) -> None:
    use = find_map_use(running, change.path)
    if use is MapUse.NONE:
        return
    if change.running is None or change.desired is None:
        draft.take(change, None, [f"{_name_file(change)} {_describe(change)}"])
        return
    found = plan_entries(change.path, use, change.running.lines, change.desired.lines, is_guard=is_guard)
    if isinstance(found, str):
        draft.take(change, None, [f"{_name_file(change)} changed: {found}"])
    else:
        draft.take(change, found, [])
