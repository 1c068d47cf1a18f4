"""Conflicts: warnings about map entries and certificate names that another object already has. No I/O.

HAProxy uses the first of several map entries with the same key, and the first
of several certificates for a server name that the client supports. The
templates define the order of objects; the owner of a later object gets a
warning.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from haptic_trio.chunked import Page, Piece
from haptic_trio.haproxy.config.certificates import CrtListEntry, names_of, parse_crt_list
from haptic_trio.haproxy.config.maps import MapUse, form_of
from haptic_trio.haproxy.model import AuxFile, FileKind, Files
from haptic_trio.templating.values.subjects import ObjectWarning, Origin, RenderedText, Subject
from haptic_trio.templating.values.warning_list import WarningList

MAP_REASON: Final = "HostPathConflict"
CERTIFICATE_REASON: Final = "CertificateConflict"
MOST_WARNINGS: Final = 10
"""Maximum number of warnings about one object in one file."""
_LONGEST: Final = 200
_MAP: Final = form_of(MapUse.UNORDERED)

IsSecret: TypeAlias = Callable[[str, Origin | None], bool]
"""Whether the output of an origin in the file at a path may derive from a Secret."""


class _Claim(NamedTuple):
    """A line that claims a key."""

    key: str
    value: str
    origin: Origin | None

    @property
    def subject(self) -> Subject | None:
        """The object that made the line, without its version."""
        origin = self.origin
        return None if origin is None else msgspec.structs.replace(origin.subject, resource_version="")


class Conflicts:
    """Finds conflicts in generated files; reads only pages that changed since the last call."""

    def __init__(self, is_secret: IsSecret) -> None:
        self._is_secret = is_secret
        self._known: dict[str, _Keyed] = {}
        self._warnings = WarningList()
        self._files: Files | None = None
        self.pages_read = 0
        """Total number of pages read."""

    def take(self, files: Files, texts: Mapping[str, RenderedText]) -> tuple[ObjectWarning, ...]:
        """Return the warnings about *files*, whose contents are *texts*; the same tuple until it changes."""
        if files is self._files:
            return self._warnings.all()
        # The server names of a line of a crt-list are in the certificate.
        certificates = _differing_certificates(files, self._files) if self._files is not None else frozenset()
        self._files = files
        before, self._known = self._known, {}
        for file in chain.from_iterable(files.paged.summaries(_files_with_keys)):
            known = before.pop(file.path, None)
            if known is None or known.kind is not file.kind:
                self._forget(known)
                known = _Keyed(file.kind)
            self._known[file.path] = known
            self._take_file(known, file.path, texts[file.path], files, certificates)
        for known in before.values():
            self._forget(known)
        return self._warnings.all()

    def _take_file(
        self, known: "_Keyed", path: str, text: RenderedText, files: Files, certificates: frozenset[str]
    ) -> None:
        is_list = known.kind is FileKind.CRT_LIST
        if text is known.text and not (is_list and certificates):
            return
        self.pages_read += known.take(text, files, certificates)
        if is_list:
            found = _warnings(known.contested(), CERTIFICATE_REASON, _describe_certificate)
        else:
            found = _warnings(known.contested(), MAP_REASON, _map_describer(path, self._is_secret))
        self._warnings.change(known.warnings, found)
        known.warnings = found

    def _forget(self, known: "_Keyed | None") -> None:
        if known is not None:
            self._warnings.change(known.warnings, ())


class _Reading(NamedTuple):
    """Keys and claims of one page."""

    page: Page[Piece]
    keys: tuple[str, ...]
    certificates: frozenset[str]
    """Paths of the certificates that contain the keys."""
    claims: tuple[_Claim, ...] | None
    """None for a map, whose claims are read from the page when needed."""


class _Keyed:
    """Counts of the keys of one file, maintained page by page."""

    def __init__(self, kind: FileKind) -> None:
        self.kind = kind
        self.text: RenderedText | None = None
        self.warnings: tuple[ObjectWarning, ...] = ()
        self._readings: dict[int, _Reading] = {}
        """By identity of the page, in the order of the file."""
        self._counts: dict[str, int] = {}
        self._repeated: set[str] = set()
        """Keys that occur more than once."""

    def take(self, text: RenderedText, files: Files, certificates: frozenset[str]) -> int:
        """Set the content to *text*, given that *certificates* changed; return the number of pages read."""
        self.text = text
        before = self._readings
        self._readings = now = {}
        fresh = []
        for page in text.pieces.pages:
            known = before.get(id(page))
            if known is None or not certificates.isdisjoint(known.certificates):
                known = _read(self.kind, page, files)
                fresh.append(known)
            now[id(page)] = known
        for reading in fresh:
            self._count(reading, 1)
        for number, reading in before.items():
            if now.get(number) is not reading:
                self._count(reading, -1)
        return len(fresh)

    def _count(self, reading: _Reading, difference: int) -> None:
        counts = self._counts
        for key in reading.keys:
            count = counts.get(key, 0) + difference
            if count > 1:
                counts[key] = count
                self._repeated.add(key)
                continue
            self._repeated.discard(key)
            if count:
                counts[key] = count
            else:
                del counts[key]

    def contested(self) -> Iterator[_Claim]:
        """Yield the claims of keys that occur more than once, in the order of the file."""
        repeated = self._repeated
        for reading in self._readings.values() if repeated else ():
            if repeated.isdisjoint(reading.keys):
                continue
            claims = reading.claims if reading.claims is not None else reading.page.summary(_map_claims)
            yield from (claim for claim in claims if claim.key in repeated)


def _read(kind: FileKind, page: Page[Piece], files: Files) -> _Reading:
    if kind is FileKind.MAP:
        return _Reading(page, tuple([key for key, _ in page.summary(_MAP.read)]), frozenset(), None)
    entries = [
        (piece, entry)
        for piece in page.items
        for entry in parse_crt_list(piece.text.encode(errors="surrogatepass")) or ()
    ]
    claims = tuple(chain.from_iterable(_list_claims(piece, entry, files) for piece, entry in entries))
    certificates = frozenset(entry.certificate for _, entry in entries)
    return _Reading(page, tuple(claim.key for claim in claims), certificates, claims)


def _map_describer(path: str, is_secret: IsSecret) -> Callable[[_Claim, _Claim, str], str]:
    known: dict[int, bool] = {}

    def is_hidden_for(origin: Origin | None) -> bool:
        found = known.get(id(origin))
        if found is None:
            found = known[id(origin)] = is_secret(path, origin)
        return found

    def describe(claim: _Claim, holder: _Claim, by: str) -> str:
        # Both lines have the same key, so it is named only if neither line may derive from a Secret.
        is_hidden = is_hidden_for(claim.origin) or is_hidden_for(holder.origin)
        named = "an entry" if is_hidden else f"the entry {claim.key[:_LONGEST]}"
        return f"{named} of {path} has no effect, because the entry of {by} comes first"

    return describe


def _describe_certificate(claim: _Claim, _holder: _Claim, by: str) -> str:
    # An RSA certificate beside an EC certificate is a common setup; old clients get the RSA one.
    return f"the certificate for {claim.key[:_LONGEST]} serves only clients that do not support the certificate of {by}"


def _warnings(
    claims: Iterable[_Claim], reason: str, describe: Callable[[_Claim, _Claim, str], str]
) -> tuple[ObjectWarning, ...]:
    first: dict[str, _Claim] = {}
    found: dict[Subject, dict[ObjectWarning, None]] = {}
    for claim in claims:
        holder = first.setdefault(claim.key, claim)
        # Equal values are harmless: for example, a certificate that was copied into many namespaces.
        if holder.value == claim.value or claim.origin is None or claim.origin.is_closing:
            # The owner of a rejected object already gets an error.
            continue
        loser, winner = claim.subject, holder.subject
        assert loser is not None
        own = found.setdefault(loser, {})
        if winner != loser and len(own) < MOST_WARNINGS:
            by = str(winner) if winner is not None else "the templates themselves"
            own[ObjectWarning(loser, reason, describe(claim, holder, by))] = None
    return tuple(chain.from_iterable(found.values()))


def _map_claims(pieces: tuple[Piece, ...]) -> tuple[_Claim, ...]:
    return tuple(_Claim(key, value, piece.origin) for piece in pieces for key, value in _MAP.read((piece,)))


def _list_claims(piece: Piece, entry: CrtListEntry, files: Files) -> Iterator[_Claim]:
    certificate = files.get(entry.certificate)
    value = certificate.digest if certificate is not None else entry.certificate
    for name in sorted(names_of(entry, certificate) or ()):
        yield _Claim(name, value, piece.origin)


def _files_with_keys(files: tuple[AuxFile, ...]) -> tuple[AuxFile, ...]:
    return tuple(file for file in files if file.kind in (FileKind.MAP, FileKind.CRT_LIST) and not file.secret)


def _differing_certificates(files: Files, before: Files) -> frozenset[str]:
    one, other = before.differing(files)
    return frozenset(
        path
        for path, file in {**one, **other}.items()
        if file.kind is FileKind.CERT and one.get(path) is not other.get(path)
    )
