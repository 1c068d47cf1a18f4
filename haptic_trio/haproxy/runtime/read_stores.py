"""Read-back of maps, ACL lists, certificates and crt-lists."""

import hashlib
import re
import ssl
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple, TypeAlias

import msgspec

from haptic_trio.haproxy.config.certificates import PEM, CrtListEntry, crt_lists_of, names_are_files
from haptic_trio.haproxy.config.maps import Entry, MapUse, file_entries, find_map_use, form_of
from haptic_trio.haproxy.model import AuxFile, FileChange, FileKind, Generation, make_file
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.certificates import COMPANIONS, CertificatePlanner
from haptic_trio.haproxy.plan.commands import Replacement, UnsendableError, show_entries
from haptic_trio.haproxy.plan.maps import find_unsendable, make_replacement
from haptic_trio.haproxy.plan.operations import ReplaceAcl, StoreCertificate
from haptic_trio.haproxy.plan.steps import Phase
from haptic_trio.haproxy.plan.store_commands import file_word, is_sendable
from haptic_trio.haproxy.runtime.differences import Finding, Kind
from haptic_trio.haproxy.runtime.replies import UnreadableReplyError, parse_list, parse_map

_LISTED: Final = re.compile(r"(?P<certificate>\S+):\d+(?: \[(?P<options>.*?)\])?(?P<filters>(?: \S+)*) *")
_BATCH: Final = 50
"""Certificates to read with one command line."""


class StoreReader:
    """Compares the contents of files in the process with the files of *generation*."""

    def __init__(self, generation: Generation, capabilities: Capabilities) -> None:
        self._generation = generation
        files = (*_of_kind(generation, FileKind.MAP), *_of_kind(generation, FileKind.FILE))
        self._maps = [one for one in map(partial(_expect_entries, generation), files) if one]
        lists = crt_lists_of(generation)
        # Otherwise the process knows files by other names.
        usual = capabilities.certificates and lists is not None and names_are_files(generation)
        self._lists = {path: lists[path] for path in (lists or {}) if usual and lists and _is_addressable(path)}
        self._certificates = {
            file.path: file
            for file in _of_kind(generation, FileKind.CERT)
            if usual and _is_addressable(file.path) and _fingerprint(file.content)
        }
        self._planner = partial(CertificatePlanner, desired=generation, capabilities=capabilities)
        self.questions = (
            *(show_entries(one.whole) for one in self._maps),
            *(f"show ssl crt-list -n {file_word(path)}" for path in self._lists),
            *(";".join(f"show ssl cert {file_word(path)}" for path in batch) for batch in _batches(self._certificates)),
        )

    def compare(self, answers: Sequence[str]) -> Iterator[Finding]:
        """Yield the differences shown by *answers*, in the order of the questions; raises UnreadableReplyError."""
        lists = len(self._maps) + len(self._lists)
        for known, answer in zip(self._maps, answers, strict=False):
            yield from self._compare_map(known, answer)
        yield from self._compare_lists(answers[len(self._maps) : lists])
        yield from self._compare_certificates("\n".join(answers[lists:]))

    def _compare_map(self, known: "_Map", answer: str) -> Iterator[Finding]:
        is_list = isinstance(known.whole, ReplaceAcl)
        kind = Kind.ACL if is_list else Kind.MAP
        try:
            found = tuple([(key, "") for key in parse_list(answer)]) if is_list else parse_map(answer)
        except UnreadableReplyError:
            # If lines depend on `.if`, the process may not have loaded the file.
            if answer.startswith("Unknown ") and not self._generation.config.conditional:
                yield Finding(kind, f"{kind} {known.path} removed")
            return
        if found == known.entries or (known.sorted is not None and sorted(found) == known.sorted):
            return
        steps = None if find_unsendable(known.whole) else ((Phase.REROUTE, known.whole),)
        yield Finding(kind, f"{kind} {known.path} changed", steps)

    def _compare_lists(self, answers: Sequence[str]) -> Iterator[Finding]:
        observed: dict[str, AuxFile] = {}
        for (path, entries), answer in zip(self._lists.items(), answers, strict=True):
            found = _read_list(answer)
            if found is None or Counter(map(_key, entries)) == Counter(found):
                continue
            lines = {_key(entry): entry.line for entry in entries}
            text = "".join(f"{lines.get(key) or ' '.join((key[0], *key[1]))}\n" for key in found)
            observed[path] = make_file(FileKind.CRT_LIST, path, text)
        if not observed:
            return
        running = msgspec.structs.replace(self._generation, files=self._generation.files.changed(observed.values()))
        planner = self._planner(running)
        for path, file in observed.items():
            steps = planner.plan(FileChange(path, file, self._generation.files[path]))
            yield Finding(Kind.CRT_LIST, f"crt-list {path} changed", None if steps is None else tuple(steps))

    def _compare_certificates(self, answer: str) -> Iterator[Finding]:
        found = _read_fingerprints(answer)
        listed = {entry.certificate for entries in self._lists.values() for entry in entries}
        for path, file in self._certificates.items():
            if found.get(path) == _fingerprint(file.content) or (path not in found and path not in listed):
                continue
            operation = StoreCertificate(path, file.content, is_new=path not in found)
            whole = not any(f"{path}{end}" in self._generation.files for end in COMPANIONS)
            steps = ((Phase.STORE, operation),) if whole and is_sendable(operation) else None
            how = "changed" if path in found else "removed"
            yield Finding(Kind.CERTIFICATE, f"certificate {path} {how}", steps)


class _Map(NamedTuple):
    path: str
    whole: Replacement
    entries: tuple[Entry, ...]
    sorted: list[tuple[str, str]] | None
    """Sorted entries if their order is irrelevant; else None."""


def _expect_entries(generation: Generation, file: AuxFile) -> _Map | None:
    """Return the expected entries of a map or list.

    None if the process does not use it, changes it itself, or cannot show it.
    """
    use = find_map_use(generation, file.path)
    if use in {MapUse.NONE, MapUse.OTHER} or _is_written_to(generation, file.path):
        return None
    if file.kind is FileKind.FILE and use is not MapUse.LIST:
        return None
    entries = tuple(file_entries(file.lines, form_of(use)))
    whole = make_replacement(file.path, use, entries)
    try:
        show_entries(whole)
        # Content that is not text would come back garbled.
        file.content.decode()
    except (UnsendableError, UnicodeDecodeError):
        return None
    is_unique = len({key for key, _ in entries}) == len(entries)
    any_order = use is MapUse.LIST or (use is MapUse.UNORDERED and is_unique)
    return _Map(file.path, whole, entries, sorted(entries) if any_order else None)


def _is_written_to(generation: Generation, path: str) -> bool:
    """Whether a rule changes the map."""
    words = (word for line in generation.config.naming(path) for word in line.words)
    return any(word.startswith(("set-map(", "del-map(")) for word in words if path in word)


def _of_kind(generation: Generation, kind: FileKind) -> Iterator[AuxFile]:
    return (file for file in generation.files.values() if file.kind is kind)


def _is_addressable(path: str) -> bool:
    try:
        file_word(path)
    except UnsendableError:
        return False
    return True


def _batches(paths: Iterable[str]) -> Iterator[list[str]]:
    rest = list(paths)
    while rest:
        yield rest[:_BATCH]
        rest = rest[_BATCH:]


_ListKey: TypeAlias = tuple[str, tuple[str, ...]]


def _key(entry: CrtListEntry) -> _ListKey:
    # Options are ignored, since the process shows them in another form.
    return entry.certificate, tuple(sorted(name.lower() for name in entry.filters))


def _read_list(answer: str) -> list[_ListKey] | None:
    """Parse the reply to `show ssl crt-list`: entries in order; None for any other reply."""
    lines = [line for line in answer.split("\n") if line]
    if not lines or not lines[0].startswith("# "):
        return None
    found = [_LISTED.fullmatch(line) for line in lines[1:]]
    return [
        (match["certificate"], tuple(sorted(name.lower() for name in match["filters"].split())))
        for match in found
        if match is not None
    ]


def _read_fingerprints(answer: str) -> dict[str, str]:
    """Parse the replies to `show ssl cert`: fingerprint by file; empty for a file without a certificate."""
    found: dict[str, str] = {}
    path = ""
    for line in answer.split("\n"):
        name, _, value = line.partition(": ")
        if name == "Filename":
            path = value
            found[path] = ""
        elif name == "SHA1 FingerPrint" and path:
            found[path] = value.strip()
    return found


def _fingerprint(content: bytes) -> str:
    """Return the fingerprint of the first certificate of a file, as HAProxy shows it; empty if there is none."""
    match = PEM.search(content)
    if match is None:
        return ""
    try:
        certificate = ssl.PEM_cert_to_DER_cert(match[0].decode())
    except ValueError:
        return ""
    return hashlib.sha1(certificate, usedforsecurity=False).hexdigest().upper()
