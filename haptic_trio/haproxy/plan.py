"""From one generation to another: runtime operations if the process can take the change, else why it must reload.

A pure function. What needs no reload: the address, port, weight, and
`disabled` of servers that both generations have, and the entries of maps.
When anything else differs the reload takes in everything, and there are no
operations.
"""

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final

from haptic_trio.haproxy.diff import (
    ConfigDiff,
    FileChange,
    SectionChange,
    diff_configs,
    diff_files,
    same_words,
)
from haptic_trio.haproxy.maps import MapUse, find_map_use, parse_map_file
from haptic_trio.haproxy.model import FileKind, Generation, Section
from haptic_trio.haproxy.operations import AddMapEntry, DeleteMapEntry, Operation, Plan, ReplaceMap, SetMapEntry
from haptic_trio.haproxy.servers import ServerPlanner, pair_servers

MAX_MAP_STEPS: Final = 100
"""More changed entries than this replace the whole map in one transaction."""

MAX_ENTRY_BYTES: Final = 4096
"""A longer key and value together might not fit into one runtime command."""

FIRST_GENERATION: Final = "first generation"

_UNSENDABLE: Final = re.compile("[\0\r]")

_FILE_NAMES: Final = {
    FileKind.MAP: "map",
    FileKind.CERT: "certificate",
    FileKind.CRT_LIST: "crt-list",
    FileKind.FILE: "file",
}


class _ReloadNeeded(Exception):  # noqa: N818  a signal within this module, never seen outside
    """A change that no runtime operation can express."""


def make_plan(running: Generation | None, desired: Generation) -> Plan:
    """Return how to get from *running*, what the process has now, to *desired*; never raises."""
    if running is None:
        return Plan(reasons=(FIRST_GENERATION,))
    if running.id == desired.id:
        return Plan()
    operations: list[Operation] = []
    reasons: list[str] = []
    _plan_config(running, diff_configs(running.config, desired.config), operations, reasons)
    for change in diff_files(running.files, desired.files):
        _plan_file(running, change, operations, reasons)
    return Plan(reasons=tuple(reasons)) if reasons else Plan(operations=tuple(operations))


def name_section(section: Section) -> str:
    """Return how people call a section, such as `backend web`."""
    return f"{section.kind} {section.name}".strip()


def _plan_config(running: Generation, diff: ConfigDiff, operations: list[Operation], reasons: list[str]) -> None:
    reasons += [f"{name_section(section)} removed" for section in diff.removed]
    reasons += [f"{name_section(section)} added" for section in diff.added]
    if diff.reordered:
        reasons.append("order of sections changed")
    if not diff.changed:
        return
    # Where `.if` decides what HAProxy reads, a line in the text says little about the process.
    planner = None if running.config.conditional else ServerPlanner(running.config)
    for change in diff.changed:
        pairs = pair_servers(change.running, change.desired) if change.running.kind in {"backend", "listen"} else None
        steps = planner.plan(change.running, pairs) if planner is not None and pairs else None
        if steps is None:
            reasons += _reasons_for(change)
        else:
            operations += steps


def _reasons_for(change: SectionChange) -> list[str]:
    name = name_section(change.desired)
    reasons = [f"{name}: header changed"] if change.header_changed else []
    removed = Counter(_subject(one.words) for one in change.removed)
    added = Counter(_subject(one.words) for one in change.added)
    for subject in dict.fromkeys([*removed, *added]):
        if subject not in added:
            what = "removed"
        elif subject not in removed:
            what = "added"
        elif _is_same_set(change, subject):
            what = "moved"
        else:
            what = "changed"
        reasons.append(f"{name}: {subject} {what}")
    return reasons or [f"{name}: order of lines changed"]


def _subject(words: tuple[str, ...]) -> str:
    if words[0] in {"server", "acl"} and len(words) > 1:
        return f"{words[0]} '{words[1]}'"
    return f"directive '{words[0]}'"


def _is_same_set(change: SectionChange, subject: str) -> bool:
    before = [one for one in change.removed if _subject(one.words) == subject]
    after = [one for one in change.added if _subject(one.words) == subject]
    return len(before) == len(after) and all(any(same_words(one, other) for other in after) for one in before)


def _plan_file(running: Generation, change: FileChange, operations: list[Operation], reasons: list[str]) -> None:
    one, other = change.running, change.desired
    what = "added" if one is None else "removed" if other is None else "changed"
    if (one is None or one.kind is FileKind.MAP) and (other is None or other.kind is FileKind.MAP):
        use = find_map_use(running, change.path)
        if use is MapUse.NONE:
            return
        if one is not None and other is not None:
            try:
                operations += _plan_map(change.path, use, parse_map_file(one.content), parse_map_file(other.content))
            except _ReloadNeeded as needed:
                reasons.append(f"map {change.path} changed: {needed}")
            return
    known = other or one
    reasons.append(f"{_FILE_NAMES[known.kind] if known is not None else 'file'} {change.path} {what}")


def _plan_map(
    path: str, use: MapUse, before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...]
) -> list[Operation]:
    if before == after:
        return []
    if use is MapUse.OTHER:
        raise _ReloadNeeded(f"it is used for {use.value}")
    old, new = dict(before), dict(after)
    unique = len(old) == len(before) and len(new) == len(after)
    if unique and use is MapUse.UNORDERED and old == new:
        return []
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
    if not unique or use is MapUse.ORDERED or len(changed) > MAX_MAP_STEPS or any(key[:1] == "#" for key in changed):
        _check_sendable(after)
        return [ReplaceMap(path, after)]
    # A key to be deleted is sent too.
    _check_sendable((key, new.get(key, "-")) for key in changed)
    operations: list[Operation] = [DeleteMapEntry(path, key) for key in old if key not in new]
    operations += [SetMapEntry(path, key, value) for key, value in new.items() if key in old and old[key] != value]
    operations += [AddMapEntry(path, key, value) for key, value in new.items() if key not in old]
    return operations


def _check_sendable(entries: Iterable[tuple[str, str]]) -> None:
    for key, value in entries:
        if not key or not value:
            raise _ReloadNeeded("an entry has no value")
        # Escapes at most double the length.
        size = len(key.encode(errors="surrogateescape")) + len(value.encode(errors="surrogateescape"))
        if _UNSENDABLE.search(key) or _UNSENDABLE.search(value) or size > MAX_ENTRY_BYTES:
            raise _ReloadNeeded("an entry cannot be sent as a command")
