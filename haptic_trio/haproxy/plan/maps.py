"""Planner for changed entries of maps and ACL lists.

A few changed entries are sent one by one, many in one transaction. A
transaction is also used if keys are repeated, since the versions differ in
the removal of such a key, and if the order of keys matters. A map that routes
keeps removed entries in this transaction: another one removes them, after all
other maps have their new entries.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from haptic_trio.haproxy.config.maps import Entry, MapUse, diff_maps, file_entries, form_of
from haptic_trio.haproxy.plan.commands import Replacement
from haptic_trio.haproxy.plan.operations import (
    AddAclEntry,
    AddMapEntry,
    DeleteAclEntry,
    DeleteMapEntry,
    ReplaceAcl,
    ReplaceMap,
    SetMapEntry,
)
from haptic_trio.haproxy.plan.steps import Phase, Step
from haptic_trio.haproxy.text_lines import Lines

MAX_MAP_STEPS: Final = 100
"""With more changed entries than this, all entries are replaced in one transaction."""

MAX_ENTRY_BYTES: Final = 4096
"""Maximum size of key and value together; longer ones might not fit into one runtime command."""

_UNSENDABLE: Final = re.compile("[\0\r]")


def plan_entries(path: str, use: MapUse, before: Lines, after: Lines, *, is_guard: bool = False) -> list[Step] | str:
    """Return the steps from *before* to *after*, or the reason for a reload.

    All steps for a guard (`haptic_trio.haproxy.config.guards`) have one phase.
    """
    form = form_of(use)
    change = diff_maps(before, after, form)
    if change.same:
        return []
    if use is MapUse.OTHER:
        return f"it is used for {use.value}"
    old, new = change.before, change.after
    changed = {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)} if change.unique else set()
    if change.unique and use is not MapUse.ORDERED and not changed:
        return []
    one_by_one = change.unique and use is not MapUse.ORDERED and len(changed) <= MAX_MAP_STEPS
    if not one_by_one or any(key[:1] == "#" for key in changed):
        found = _replace(path, use, tuple(file_entries(before, form)), tuple(file_entries(after, form)))
    else:
        found = _change(path, use, old, new)
        # A deleted key is checked as well, without its value.
        values = ((key, "-" if use is MapUse.LIST else new.get(key, "-")) for key in changed)
        found = _find_unsendable(values) or found
    if is_guard and not isinstance(found, str):
        # Of a map, what it consists of in the end, at once.
        last = found[-1:] if isinstance(found[-1][1], ReplaceMap) else found
        return [(Phase.GUARD, operation) for _, operation in last]
    return found


def _replace(path: str, use: MapUse, old: tuple[Entry, ...], new: tuple[Entry, ...]) -> list[Step] | str:
    replacement = make_replacement(path, use, new)
    if isinstance(replacement, ReplaceAcl):
        return find_unsendable(replacement) or [(Phase.REROUTE, replacement)]
    known = {key for key, _ in new}
    gone = tuple([entry for entry in old if entry[0] not in known])
    kept = ReplaceMap(path, (*new, *gone))
    if problem := find_unsendable(kept):
        return problem
    if not gone:
        return [(Phase.ROUTE, replacement)]
    is_shorter = [entry for entry in old if entry[0] in known] == list(new)
    return [*([] if is_shorter else [(Phase.ROUTE, kept)]), (Phase.UNROUTE, replacement)]


def _change(path: str, use: MapUse, old: Mapping[str, str], new: Mapping[str, str]) -> list[Step]:
    gone = [key for key in old if key not in new]
    come = [key for key in new if key not in old]
    if use is MapUse.LIST:
        # Added first, so that a key that is only written differently is never missing.
        return [
            *((Phase.ROUTE, AddAclEntry(path, key)) for key in come),
            *((Phase.UNROUTE, DeleteAclEntry(path, key)) for key in gone),
        ]
    altered = [(key, value) for key, value in new.items() if old.get(key, value) != value]
    return [
        *((Phase.ROUTE, AddMapEntry(path, key, new[key])) for key in come),
        *((Phase.REROUTE, SetMapEntry(path, key, value)) for key, value in altered),
        *((Phase.UNROUTE, DeleteMapEntry(path, key)) for key in gone),
    ]


def make_replacement(path: str, use: MapUse, entries: Iterable[Entry]) -> Replacement:
    """Return the operation that replaces all entries of a file with this use by *entries*."""
    if use is MapUse.LIST:
        return ReplaceAcl(path, tuple([key for key, _ in entries]))
    return ReplaceMap(path, tuple(entries))


def find_unsendable(replacement: Replacement) -> str:
    """Return the reason why commands cannot carry *replacement*; empty if they can."""
    match replacement:
        case ReplaceMap(entries=entries):
            return _find_unsendable(entries)
        case ReplaceAcl(keys=keys):
            return _find_unsendable((key, "-") for key in keys)


def _find_unsendable(entries: Iterable[Entry]) -> str:
    for key, value in entries:
        if not key or not value:
            return "an entry has no value"
        # Escapes at most double the length.
        size = len(key.encode(errors="surrogateescape")) + len(value.encode(errors="surrogateescape"))
        if _UNSENDABLE.search(key) or _UNSENDABLE.search(value) or size > MAX_ENTRY_BYTES:
            return "an entry cannot be sent as a command"
    return ""
