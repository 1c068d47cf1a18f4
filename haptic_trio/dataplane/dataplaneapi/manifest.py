"""Manifest that haptic-trio stores beside a configuration in a Data Plane API.

The API rewrites the configuration, does not return certificates, and has no
generations. So a deployment stores a manifest: the id of the generation, its
rendered text, the digest of the rewritten text, and the digest of each file.
The manifest is *clear* while process, configuration and files match it.
Before the first change it is written as not clear, so an interrupted
deployment leaves a manifest that marks the running generation as unknown.
"""

import base64
import zlib
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from haptic_trio.dataplane.dataplaneapi.storage import Place, StoredFile
from haptic_trio.errors import INVALID_JSON
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, digest_of

FORMAT: Final = 2
MAX_TEXT_BYTES: Final = 256 << 20
"""Limit of the unpacked configuration in bytes."""


class FileRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file as it was deployed."""

    kind: FileKind
    digest: str
    place: Place
    at: str = ""
    """Its path in the API and the process; empty if the API did not report it."""
    secret: bool = False
    seal: str = ""
    """For a certificate: `StoredFile.seal`."""


class Manifest(msgspec.Struct, frozen=True, omit_defaults=True):
    """The manifest; stored as JSON."""

    clear: bool
    generation: str = ""
    text: str = ""
    """The configuration as rendered: zlib, base64."""
    stored: str = ""
    """Digest of the configuration as the API stores it."""
    files: dict[str, FileRecord] = {}
    """By the path in the configuration."""
    surplus: tuple[Place, ...] = ()
    """Other files of haptic-trio, which the next deployment removes."""
    format: int = FORMAT


NOTHING: Final = Manifest(clear=False)


def encode_manifest(manifest: Manifest) -> bytes:
    """Return the stored form of *manifest*."""
    return msgspec.json.encode(manifest)


def decode_manifest(data: bytes) -> Manifest:
    """Read a manifest; a damaged one, or one of another format, is `NOTHING`."""
    try:
        manifest = msgspec.json.decode(data, type=Manifest)
    except INVALID_JSON:
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
        raise ValueError(f"the stored configuration is damaged: {exc}") from exc
    if not unpacker.eof:
        raise ValueError("the stored configuration is damaged or too large")
    return data.decode(errors="surrogateescape")


def begin(former: Manifest, written: Iterable[Place]) -> Manifest:
    """Return the manifest during a deployment that writes to *written*: not clear, with all its files."""
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
    """Return the manifest after a successful deployment of *generation* with its files *placed*.

    *text* is packed, *stored* is the configuration as stored by the API,
    *known* the API's records of files, and *certificates* its detailed
    records of certificates.
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
    """Return the places of the files of the manifest's generation."""
    return {record.place for record in manifest.files.values()}
