"""What stands in the output and yet has no effect: another object has its place. No I/O.

Of equal keys in a map the first entry counts, and of several certificates for
one server name the first that the client can use. Which object comes first is
up to the templates; the owner of what comes later should know.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Final, NamedTuple, TypeAlias

import msgspec

from haptic_trio.haproxy.certificates import names_of, parse_crt_list
from haptic_trio.haproxy.maps import MapUse, form_of
from haptic_trio.haproxy.model import AuxFile, FileKind, Files
from haptic_trio.pages import Piece
from haptic_trio.templating.subjects import Origin, Remark, RenderedText, Subject

REASON: Final = "Eclipsed"
MOST_REMARKS: Final = 10
"""About one object in one file."""
_LONGEST: Final = 200
_MAP: Final = form_of(MapUse.UNORDERED)

IsSecret: TypeAlias = Callable[[str, Origin | None], bool]
"""Whether what somebody has put into the file at a path may derive from a Secret."""


class _Claim(NamedTuple):
    """A line that wants a key for itself."""

    key: str
    value: str
    origin: Origin | None

    @property
    def subject(self) -> Subject | None:
        """The object that made it, whatever its version."""
        origin = self.origin
        return None if origin is None else msgspec.structs.replace(origin.subject, resource_version="")


class Eclipses:
    """Remembers what was found in each file, so that only what has changed is looked at."""

    def __init__(self, is_secret: IsSecret) -> None:
        self._is_secret = is_secret
        self._known: dict[str, tuple[RenderedText, tuple[Remark, ...]]] = {}
        self._remarks: tuple[Remark, ...] = ()
        self._files: Files | None = None

    def take(self, files: Files, texts: Mapping[str, RenderedText]) -> tuple[Remark, ...]:
        """Return who is to know what of *files*; the same tuple until it changes."""
        if files is self._files:
            return self._remarks
        # Whom a line of a crt-list is for stands in the certificate.
        certificates_changed = self._files is None or _differ_in_certificates(files, self._files)
        self._files = files
        before, self._known = self._known, {}
        for file in chain.from_iterable(files.paged.summaries(_files_with_keys)):
            text, known = texts[file.path], before.get(file.path)
            if known is not None and known[0] is text and (file.kind is FileKind.MAP or not certificates_changed):
                self._known[file.path] = known
            elif file.kind is FileKind.MAP:
                self._known[file.path] = text, find_in_map(file.path, text, self._is_secret)
            else:
                self._known[file.path] = text, find_in_list(text, files)
        remarks = tuple(sorted(set(chain.from_iterable(found for _, found in self._known.values()))))
        if remarks != self._remarks:
            self._remarks = remarks
        return self._remarks


def find_in_map(path: str, text: RenderedText, is_secret: IsSecret) -> tuple[Remark, ...]:
    """Return which objects have entries in the map *path* without effect."""
    count = sum(map(len, text.pieces.summaries(_MAP.read)))
    if len(frozenset().union(*text.pieces.summaries(_MAP.keys))) == count:
        return ()

    def describe(claim: _Claim, holder: _Claim, by: str) -> str:
        # The same key in both: so neither of the two may have it from a Secret.
        hides = is_secret(path, claim.origin) or is_secret(path, holder.origin)
        named = "an entry" if hides else f"the entry {claim.key[:_LONGEST]}"
        return f"{named} of {path} has no effect, since that of {by} goes first"

    return _remarks(_map_claims(text.pieces), describe)


def find_in_list(text: RenderedText, files: Files) -> tuple[Remark, ...]:
    """Return which objects have certificates in a crt-list that are not the first for a name."""

    def describe(claim: _Claim, _holder: _Claim, by: str) -> str:
        # One with an RSA key beside one with an EC key is wanted, and served to old clients.
        return f"the certificate for {claim.key[:_LONGEST]} is only for clients that cannot use that of {by}"

    return _remarks(_list_claims(text.pieces, files), describe)


def _remarks(claims: Iterable[_Claim], describe: Callable[[_Claim, _Claim, str], str]) -> tuple[Remark, ...]:
    first: dict[str, _Claim] = {}
    found: dict[Subject, dict[Remark, None]] = {}
    for claim in claims:
        holder = first.setdefault(claim.key, claim)
        # The same twice is no loss, as a certificate that was copied into many namespaces.
        if holder.value == claim.value or claim.origin is None:
            continue
        loser, winner = claim.subject, holder.subject
        assert loser is not None
        own = found.setdefault(loser, {})
        if winner != loser and len(own) < MOST_REMARKS:
            by = str(winner) if winner is not None else "the templates themselves"
            own[Remark(loser, REASON, describe(claim, holder, by))] = None
    return tuple(chain.from_iterable(found.values()))


def _map_claims(pieces: Iterable[Piece]) -> Iterator[_Claim]:
    for piece in pieces:
        for key, value in _MAP.read((piece,)):
            yield _Claim(key, value, piece.origin)


def _list_claims(pieces: Iterable[Piece], files: Files) -> Iterator[_Claim]:
    for piece in pieces:
        for entry in parse_crt_list(piece.text.encode(errors="surrogatepass")) or ():
            certificate = files.get(entry.certificate)
            value = certificate.digest if certificate is not None else entry.certificate
            for name in sorted(names_of(entry, certificate) or ()):
                yield _Claim(name, value, piece.origin)


def _files_with_keys(files: tuple[AuxFile, ...]) -> tuple[AuxFile, ...]:
    return tuple(file for file in files if file.kind in (FileKind.MAP, FileKind.CRT_LIST) and not file.secret)


def _differ_in_certificates(files: Files, before: Files) -> bool:
    one, other = before.differing(files)
    return any(
        file.kind is FileKind.CERT and one.get(path) is not other.get(path) for path, file in {**one, **other}.items()
    )
