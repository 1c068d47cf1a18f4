"""Planner for changed certificates, crt-lists and certificate authorities.

After runtime changes, a process must serve the same certificates as a newly
started one. A change that would select another certificate for a name,
because of its place in the list, therefore needs a reload: a change of the
first entry, which is the default, and a change of the order of entries with
the same name.

A process must also not keep trusting removed authorities. TLS sessions of
clients outlive a change of the verification of client certificates, or of
whether they are required. With `Capabilities.distrust` they do not outlive a
change of the options of a crt-list entry, or of authorities. A server without
a certificate of its own never gets new authorities at runtime.
"""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from haptic_trio.haproxy.config.certificates import (
    PEM,
    CrtList,
    CrtListEntry,
    ListChange,
    crt_lists_of,
    find_file_uses,
    names_are_files,
    names_of,
)
from haptic_trio.haproxy.model import AuxFile, FileChange, FileKind, Generation
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import (
    AddCrtListEntry,
    DeleteCertificate,
    DeleteCrtListEntry,
    StoreCertificate,
    StoreTrust,
)
from haptic_trio.haproxy.plan.steps import Phase, Step
from haptic_trio.haproxy.plan.store_commands import is_sendable

COMPANIONS: Final = (".key", ".ocsp", ".issuer", ".sctl", ".dh")
"""Suffixes of files that HAProxy loads together with a certificate."""
_CA: Final = "ca-file"
_TRUST: Final = frozenset({_CA, "ca-verify-file", "crl-file", "verify"})
"""Options of a crt-list entry for client certificates."""


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
        self._distrusts = capabilities.distrust

    def plan(self, change: FileChange) -> list[Step] | None:
        """Return the steps for *change*, a change of a file that is not a map; None if a reload is needed."""
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
        """Whether the new content of a certificate may be used for a name of another certificate."""
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
        path, one, other = change.path, change.running, change.desired
        if one is None or other is None:
            return None
        uses = find_file_uses(self._running, path)
        listed = self._options_before(path)
        if uses.other or uses.servers or listed is None or uses.options | listed != {_CA}:
            return None
        if not (self._distrusts or _blocks_of(one) <= _blocks_of(other)):
            return None
        return _store(StoreTrust(_CA, path, other.content))

    def _options_before(self, path: str) -> frozenset[str] | None:
        """Return the options of crt-list entries that name *path*; None if it is part of a longer word."""
        found = set()
        for crt_list in self._before.values():
            for options in crt_list.options_with(path):
                words = ["", *options.split()]
                found |= {before for before, word in pairwise(words) if word == path}
                if any(path in word and word != path for word in words):
                    return None
        return frozenset(found)

    def _plan_list(self, path: str) -> list[Step] | None:
        before, after = self._before.get(path), self._after.get(path)
        uses = find_file_uses(self._running, path)
        if before is None or after is None or uses.other or uses.options != {"crt-list"}:
            return None
        first, new_first = next(iter(before), None), next(iter(after), None)
        if uses.leads and (first is None or new_first is None or first.line != new_first.line):
            return None
        change = after.compare(before)
        if not (before.is_unique and after.is_unique and self._keeps_order(after, change)) or _changes_updates(change):
            return None
        added = [AddCrtListEntry(path, entry.line) for entry in change.added]
        if any(entry.certificate not in self._desired.files for entry in change.added) or not all(
            map(is_sendable, added)
        ):
            return None
        # Clients may have sessions for names of new entries, too: another entry was used for these names before.
        if not self._distrusts and any(
            not _TRUST.isdisjoint(entry.options.split()) for entry in (*change.removed, *change.added)
        ):
            return None
        return [
            *((Phase.LIST, operation) for operation in added),
            *((Phase.UNLIST, DeleteCrtListEntry(path, entry.certificate)) for entry in change.removed),
        ]

    def _keeps_order(self, after: CrtList, change: ListChange) -> bool:
        """Whether entries with a common name have the order of a newly started process."""
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


def _changes_updates(change: ListChange) -> bool:
    """Whether HAProxy begins or ceases to fetch OCSP responses for a certificate that stays loaded, with its mode."""
    before, after = _updated(change.removed), _updated(change.added)
    return before & _certificates(change.added) != after & _certificates(change.removed)


def _certificates(entries: Iterable[CrtListEntry]) -> frozenset[str]:
    return frozenset(entry.certificate for entry in entries)


def _updated(entries: Iterable[CrtListEntry]) -> frozenset[str]:
    """Return the certificates whose OCSP responses HAProxy fetches."""
    return _certificates(entry for entry in entries if "ocsp-update on" in entry.options)


def _blocks_of(file: AuxFile) -> frozenset[bytes]:
    return frozenset(b"".join(block.split()) for block in PEM.findall(file.content))


def _lists(lists: dict[str, CrtList], path: str) -> bool:
    """Whether one of *lists* contains the certificate *path*."""
    return any(next(one.find(path), None) is not None for one in lists.values())
