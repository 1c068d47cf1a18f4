"""How a running HAProxy gets from some certificates, crt-lists and authorities to others.

What a process has taken in at runtime must serve what a process that is
started anew would serve. So a change that would have another certificate
answer for a name, because it stands elsewhere in the list, is left to a
reload: one of the first entry, which is the default, and one where several
entries have the name and their order would differ.
"""

from typing import Final

from haptic_trio.haproxy.capabilities import Capabilities
from haptic_trio.haproxy.certificates import (
    CrtList,
    CrtListEntry,
    ListChange,
    crt_lists_of,
    find_file_uses,
    names_are_files,
    names_of,
)
from haptic_trio.haproxy.diff import FileChange
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation
from haptic_trio.haproxy.operations import (
    AddCrtListEntry,
    DeleteCertificate,
    DeleteCrtListEntry,
    StoreCertificate,
    StoreTrust,
)
from haptic_trio.haproxy.steps import Phase, Step
from haptic_trio.haproxy.store_commands import is_sendable

COMPANIONS: Final = (".key", ".ocsp", ".issuer", ".sctl", ".dh")
"""HAProxy loads files of these names along with a certificate."""
_TRUST: Final = frozenset({"ca-file", "crl-file"})


class CertificatePlanner:
    """Plans changes of files between two generations."""

    def __init__(self, running: Generation, desired: Generation, capabilities: Capabilities) -> None:
        self._running = running
        self._desired = desired
        before, after = crt_lists_of(running), crt_lists_of(desired)
        self._usual = (
            capabilities.certificates and before is not None and after is not None and names_are_files(running)
        )
        self._before, self._after = before or {}, after or {}

    def plan(self, change: FileChange) -> list[Step] | None:
        """Return the steps for *change*, of a file that is no map; None if a reload is needed."""
        if not self._usual or any(f"{change.path}{end}" in self._desired.files for end in COMPANIONS):
            return None
        kinds = {file.kind for file in (change.running, change.desired) if file is not None}
        if kinds == {FileKind.CRT_LIST}:
            return self._plan_list(change.path)
        if kinds == {FileKind.CERT} and (steps := self._plan_certificate(change)) is not None:
            return steps
        return self._plan_trust(change)

    def _plan_certificate(self, change: FileChange) -> list[Step] | None:
        path, one, other = change.path, change.running, change.desired
        uses = find_file_uses(self._running, path)
        if uses.other or not uses.options <= {"crt"}:
            return None
        if one is not None and other is not None:
            if not (uses.options or _lists(self._before, path)) or self._changes_owner(path, one, other):
                return None
            return _store(StoreCertificate(path, other.content))
        if uses.options:
            return None
        if other is not None:
            known = _lists(self._after, path) and not _lists(self._before, path)
            return _store(StoreCertificate(path, other.content, is_new=True)) if known else None
        gone = _lists(self._before, path) and not _lists(self._after, path)
        return [(Phase.FORGET, DeleteCertificate(path))] if gone else None

    def _changes_owner(self, path: str, one: AuxFile, other: AuxFile) -> bool:
        """Whether the new content of a certificate might answer for the name of another one."""
        for crt_list in self._after.values():
            for entry in crt_list.find(path):
                if names_of(entry, one) != names_of(entry, other):
                    names = names_of(entry, other)
                    others = list(crt_list)
                    others.remove(entry)
                    if names is None or any((known := self._names(one)) is None or known & names for one in others):
                        return True
        return False

    def _names(self, entry: CrtListEntry) -> frozenset[str] | None:
        return names_of(entry, self._desired.files.get(entry.certificate))

    def _plan_trust(self, change: FileChange) -> list[Step] | None:
        if change.running is None or change.desired is None:
            return None
        uses = find_file_uses(self._running, change.path)
        if uses.other or len(uses.options) != 1 or not uses.options <= _TRUST or self._is_optioned(change.path):
            return None
        [kind] = uses.options
        return _store(StoreTrust(kind, change.path, change.desired.content))

    def _is_optioned(self, path: str) -> bool:
        return any(path in entry.options for crt_list in self._before.values() for entry in crt_list)

    def _plan_list(self, path: str) -> list[Step] | None:
        before, after = self._before.get(path), self._after.get(path)
        uses = find_file_uses(self._running, path)
        if before is None or after is None or uses.other or uses.options != {"crt-list"}:
            return None
        first, new_first = next(iter(before), None), next(iter(after), None)
        if first is None or new_first is None or (not uses.strict and first.line != new_first.line):
            return None
        change = after.compare(before)
        if not (before.is_unique and after.is_unique and self._keeps_order(after, change)):
            return None
        if any(entry.certificate not in self._desired.files for entry in change.added):
            return None
        return [
            *((Phase.LIST, AddCrtListEntry(path, entry.line)) for entry in change.added),
            *((Phase.UNLIST, DeleteCrtListEntry(path, entry.certificate)) for entry in change.removed),
        ]

    def _keeps_order(self, after: CrtList, change: ListChange) -> bool:
        """Whether names that several entries have find them in the order of a process that is started anew."""
        if change.appends:
            return True
        place = {line: number for number, line in enumerate(change.in_process())}
        last: dict[str, int] = {}
        for entry in after:
            names = self._names(entry)
            if names is None:
                return False
            for name in names:
                if last.get(name, -1) > place[entry.line]:
                    return False
                last[name] = place[entry.line]
        return True


def _store(operation: StoreCertificate | StoreTrust) -> list[Step] | None:
    return [(Phase.STORE, operation)] if is_sendable(operation) else None


def _lists(lists: dict[str, CrtList], path: str) -> bool:
    """Whether one of *lists* has the certificate *path*."""
    return any(next(one.find(path), None) is not None for one in lists.values())
