"""Planner for changed entries of maps and ACL lists.

A few changed entries are sent one by one, many in one transaction. A
transaction is also used if keys are repeated, since the versions differ in
the removal of such a key, and if the order of keys matters.
"""

import re
from collections.abc import Iterable
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


def plan_entries(path: str, use: MapUse, before: Lines, after: Lines) -> list[Step] | str:
    """Return the steps from *before* to *after*, or the reason for a reload."""
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
        replacement = make_replacement(path, use, file_entries(after, form))
        return find_unsendable(replacement) or [(Phase.REROUTE, replacement)]
    gone = [key for key in old if key not in new]
    come = [key for key in new if key not in old]
    steps: list[Step]
    if use is MapUse.LIST:
        # Added first, so that a key that is only written differently is never missing.
        steps = [(Phase.ROUTE, AddAclEntry(path, key)) for key in come]
        steps += [(Phase.UNROUTE, DeleteAclEntry(path, key)) for key in gone]
    else:
        altered = [(key, value) for key, value in new.items() if old.get(key, value) != value]
        steps = [(Phase.ROUTE, AddMapEntry(path, key, new[key])) for key in come]
        steps += [(Phase.REROUTE, SetMapEntry(path, key, value)) for key, value in altered]
        steps += [(Phase.UNROUTE, DeleteMapEntry(path, key)) for key in gone]
    # A deleted key is checked as well, without its value.
    return _find_unsendable((key, "-" if use is MapUse.LIST else new.get(key, "-")) for key in changed) or steps


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
