"""How a running HAProxy gets from some certificates, crt-lists and authorities to others.

What a process has taken in at runtime must serve what a process that is
started anew would serve. So a change that would have another certificate
answer for a name, because it stands elsewhere in the list, is left to a
reload: one of the first entry, which is the default, and one where several
entries have the name and their order would differ.
"""

from collections.abc import Sequence
from typing import Final

from haptic_trio.haproxy.capabilities import Capabilities
from haptic_trio.haproxy.certificates import (
    CrtListEntry,
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

# HAProxy loads files of these names along with a certificate.
_COMPANIONS: Final = (".key", ".ocsp", ".issuer", ".sctl", ".dh")
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
        self._listed_before = _certificates_in(self._before)
        self._listed_after = _certificates_in(self._after)

    def plan(self, change: FileChange) -> list[Step] | None:
        """Return the steps for *change*, of a file that is no map; None if a reload is needed."""
        if not self._usual or any(f"{change.path}{end}" in self._desired.files for end in _COMPANIONS):
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
            if not (uses.options or path in self._listed_before) or self._changes_owner(path, one, other):
                return None
            return _store(StoreCertificate(path, other.content))
        if uses.options:
            return None
        if other is not None:
            known = path in self._listed_after and path not in self._listed_before
            return _store(StoreCertificate(path, other.content, is_new=True)) if known else None
        gone = path in self._listed_before and path not in self._listed_after
        return [(Phase.FORGET, DeleteCertificate(path))] if gone else None

    def _changes_owner(self, path: str, one: AuxFile, other: AuxFile) -> bool:
        """Whether the new content of a certificate might answer for the name of another one."""
        for entries in self._after.values():
            for entry in entries:
                if entry.certificate == path and names_of(entry, one) != names_of(entry, other):
                    names = names_of(entry, other)
                    others = [self._names(one) for one in entries if one is not entry]
                    if names is None or any(known is None or known & names for known in others):
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
        return any(path in entry.options for entries in self._before.values() for entry in entries)

    def _plan_list(self, path: str) -> list[Step] | None:
        before, after = self._before.get(path), self._after.get(path)
        uses = find_file_uses(self._running, path)
        if not before or not after or uses.other or uses.options != {"crt-list"}:
            return None
        if not uses.strict and before[0].line != after[0].line:
            return None
        kept, lines = {entry.line for entry in after}, {entry.line for entry in before}
        removed = [entry for entry in before if entry.line not in kept]
        added = [entry for entry in after if entry.line not in lines]
        if not (_is_unique(before) and _is_unique(after) and self._keeps_order(before, after, added)):
            return None
        if any(entry.certificate not in self._desired.files for entry in added):
            return None
        return [
            *((Phase.LIST, AddCrtListEntry(path, entry.line)) for entry in added),
            *((Phase.UNLIST, DeleteCrtListEntry(path, entry.certificate)) for entry in removed),
        ]

    def _keeps_order(
        self, before: Sequence[CrtListEntry], after: Sequence[CrtListEntry], added: Sequence[CrtListEntry]
    ) -> bool:
        """Whether names that several entries have find them in the order of a process that is started anew."""
        kept = {entry.line for entry in after}
        result = [entry.line for entry in (*(one for one in before if one.line in kept), *added)]
        if result == [entry.line for entry in after]:
            return True
        place = {line: number for number, line in enumerate(result)}
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


def _certificates_in(lists: dict[str, tuple[CrtListEntry, ...]]) -> set[str]:
    return {entry.certificate for entries in lists.values() for entry in entries}


def _is_unique(entries: Sequence[CrtListEntry]) -> bool:
    return len({entry.certificate for entry in entries}) == len(entries)
