"""Manifest that haptic-trio stores beside a configuration in a Data Plane API.

The API rewrites the configuration, does not give certificates away, and
knows nothing of generations. So the deployment leaves a note: which
generation this is, its text as rendered, what the API made of that text, and
the digest of each file. The note is *clear* while process, configuration,
and files are what it says. Before the first of them changes it is written
as not clear; whatever interrupts the deployment then leaves one that says
that nobody knows.
"""

import base64
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from haptic_trio.dataplane.dataplaneapi.storage import Place, StoredFile
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, digest_of

FORMAT: Final = 2
MAX_TEXT_BYTES: Final = 256 << 20
"""Bytes of configuration that a note may unpack to."""


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file as it was deployed."""

    kind: FileKind
    digest: str
    place: Place
    at: str = ""
    """The path that the API and the process know it by, as far as it was told."""
    secret: bool = False
    seal: str = ""
    """Of a certificate: what the API said of it, see `StoredFile.seal`."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The note; JSON on the other side."""

    clear: bool
    generation: str = ""
    text: str = ""
    """The configuration as rendered: zlib, base64."""
    stored: str = ""
    """Digest of the configuration as the API stores it."""
    files: dict[str, FileRecord] = {}
    """By the path in the configuration."""
    surplus: tuple[Place, ...] = ()
    """Further files that we have put there, for the next deployment to remove."""
    format: int = FORMAT


NOTHING: Final = Manifest(clear=False)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return *manifest* as it is stored."""
    return msgspec.json.encode(manifest)


def decode_manifest(data: bytes) -> Manifest:
    """Read a note; one that is damaged, or from a later version, says that nobody knows."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except msgspec.DecodeError:
        return NOTHING
    return manifest if manifest.format == FORMAT else NOTHING


def pack_text(text: str) -> str:
    """Return *text* for `Manifest.text`; takes about 10 ms per megabyte."""
    return base64.b64encode(zlib.compress(text.encode(errors="surrogateescape"), 1)).decode()


def unpack_text(packed: str) -> str:
    """Return what `pack_text` packed; raises ValueError for anything else."""
    try:
        unpacker = zlib.decompressobj()
        data = unpacker.decompress(base64.b64decode(packed, validate=True), MAX_TEXT_BYTES)
    except zlib.error as exc:
        raise ValueError(f"the noted configuration is damaged: {exc}") from exc
    if not unpacker.eof:
        raise ValueError("the noted configuration is damaged or too large")
    return data.decode(errors="surrogateescape")


def begin(former: Manifest, written: Iterable[Place]) -> Manifest:
    """Return the note for the time of a deployment that writes to *written*: nobody knows, but all of it is ours."""
    known = places_of(former)
    places = {*former.surplus, *(place for place in written if place not in known)}
    return msgspec.structs.replace(former, clear=False, surplus=tuple(sorted(places)))


def finish(
    begun: Manifest,
    generation: Generation,
    placed: Mapping[Place, AuxFile],
    *,
    text: str,
    stored: str,
    known: Mapping[Place, StoredFile],
    certificates: Mapping[Place, StoredFile],
) -> Manifest:
    """Return the note for a deployment of *generation*, with its files *placed*, that has succeeded.

    *text* is packed, *stored* is the configuration as the API has it now,
    *known* what it says of files, and *certificates* what more it says of
    those.
    """
    files = {
        file.path: FileRecord(
            file.kind,
            file.digest,
            place,
            at=known[place].file if place in known else "",
            secret=file.secret,
            seal=certificates[place].seal if place in certificates else "",
        )
        for place, file in placed.items()
    }
    finished = Manifest(True, generation.id, text, digest_of(stored), files)
    surplus = (places_of(begun) | {*begun.surplus}) - places_of(finished)
    return msgspec.structs.replace(finished, surplus=tuple(sorted(surplus)))


def places_of(manifest: Manifest) -> set[Place]:
    """Return where the files of the noted generation are."""
    return {record.place for record in manifest.files.values()}
