"""Snapshot of a Data Plane API: its files and configuration at one moment."""

from collections.abc import Mapping

import msgspec
import trio

from haptic_trio.dataplane.dataplaneapi.client import ApiStatusError
from haptic_trio.dataplane.dataplaneapi.config import RawConfig
from haptic_trio.dataplane.dataplaneapi.manifest import (
    NOTHING,
    FileRecord,
    Manifest,
    decode_manifest,
    unpack_text,
)
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.dataplaneapi.storage import MANIFEST, Place, Storage, Store, StoredFile
from haptic_trio.dataplane.endpoint import EndpointError
from haptic_trio.haproxy.config.parser import ConfigSyntaxError, SectionCache, parse_config
from haptic_trio.haproxy.model import AuxFile, Config, FileKind, Generation, digest_of, make_generation

PARALLEL_READS = 8
"""Files that are read concurrently."""


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """State of an API at one moment."""

    raw: str
    """The configuration as the API stores it."""
    listing: Mapping[Place, StoredFile]
    """All files, also those of other clients."""
    manifest: Manifest
    """The stored manifest; one that is not clear if there is none."""
    contents: Mapping[Place, bytes] = {}
    """Known contents of haptic-trio's files, in the form of the API."""
    digests: Mapping[Place, str] = {}
    """Present digest of each of haptic-trio's files, in the form of a generation."""
    certificates: Mapping[Place, StoredFile] = {}
    """The API's records of haptic-trio's certificates."""
    generation: Generation | None = None
    """None if the running generation is unknown."""
    edited: tuple[str, ...] = ()
    """Changes by other clients since the last deployment: the configuration, or paths of files."""
    paths: Paths = Paths({})
    """Paths of haptic-trio's files in the API."""
    is_complete: bool = True
    """Whether every certificate was inspected; else some are as they were in an earlier snapshot."""


class _Found(msgspec.Struct, frozen=True):
    file: AuxFile
    content: bytes | None
    """In the form of the API; None if unknown."""
    stored: StoredFile | None = None
    """For a certificate."""


class SnapshotReader:
    """Reads snapshots of one endpoint, one at a time."""

    def __init__(self, config: RawConfig, storage: Storage) -> None:
        self._config = config
        self._storage = storage
        self._sections = SectionCache()
        self._deployed: Generation | None = None
        self._inspected: dict[Place, StoredFile] = {}
        """Certificates as they were in the last snapshot."""

    def remember(self, generation: Generation) -> None:
        """Keep the deployed *generation*: the API does not return certificates, and the text is parsed already."""
        self._deployed = generation

    async def read_manifest(self) -> Manifest | None:
        """Return the stored manifest; None if there is none."""
        try:
            data = await self._storage.read(MANIFEST)
        except ApiStatusError as exc:
            if exc.status == 404:
                return None
            raise
        return await trio.to_thread.run_sync(decode_manifest, data)

    async def read(self, *, is_complete: bool = True) -> Snapshot:
        """Read configuration, manifest and files; raises EndpointError.

        Unless *is_complete*, a certificate that is listed, and whose record in
        the manifest is that of the last snapshot, is not inspected again: with
        one request each, certificates would cost more than all the rest.
        """
        raw = await self._config.fetch()
        listing = await self._storage.list_files()
        manifest = (await self.read_manifest() if MANIFEST in listing else None) or NOTHING
        # A file that was removed, but is still in the manifest, would belong to another client if it came back.
        manifest = msgspec.structs.replace(manifest, surplus=tuple(one for one in manifest.surplus if one in listing))
        bare = Snapshot(raw=raw, listing=listing, manifest=manifest)
        if not manifest.clear:
            return bare
        if await trio.to_thread.run_sync(digest_of, raw) != manifest.stored:
            unclear = msgspec.structs.replace(manifest, clear=False)
            return msgspec.structs.replace(bare, manifest=unclear, edited=("haproxy.cfg",))
        config = await trio.to_thread.run_sync(self._read_text, manifest.text)
        if config is None:
            return bare
        # A listing may omit files, whose paths are then those in the manifest.
        paths = Paths({path: _file(record, listing) for path, record in manifest.files.items()})
        known = {} if is_complete else {place: one for place, one in self._inspected.items() if place in listing}
        found = await self._read_files(manifest, paths, known)
        self._inspected = {place: one.stored for place, one in found.items() if one.stored is not None}
        now = {one.file.path: one.file.digest for one in found.values()}
        return msgspec.structs.replace(
            bare,
            contents={place: one.content for place, one in found.items() if one.content is not None},
            digests={place: one.file.digest for place, one in found.items()},
            certificates=self._inspected,
            generation=make_generation(config, [one.file for one in found.values()]),
            edited=tuple(sorted(path for path, record in manifest.files.items() if now.get(path) != record.digest)),
            paths=paths,
            is_complete=is_complete,
        )

    def _read_text(self, packed: str) -> Config | None:
        try:
            text = unpack_text(packed)
            if self._deployed is not None and self._deployed.text == text:
                return self._deployed.config
            return parse_config(text, cache=self._sections)
        except (ValueError, ConfigSyntaxError):
            return None

    async def _read_files(
        self, manifest: Manifest, paths: Paths, known: Mapping[Place, StoredFile]
    ) -> dict[Place, _Found]:
        found: dict[Place, _Found] = {}
        failures: list[EndpointError] = []
        limiter = trio.CapacityLimiter(PARALLEL_READS)

        async def read(place: Place, path: str, record: FileRecord) -> None:
            try:
                async with limiter:
                    file = await self._read_file(place, path, record, paths)
            except EndpointError as exc:
                # Only the first is raised, and not as an exception group.
                failures.append(exc)
                nursery.cancel_scope.cancel(reason="a file could not be read")
                return
            if file is not None:
                found[place] = file

        async with trio.open_nursery() as nursery:
            for path, record in manifest.files.items():
                stored = known.get(record.place)
                if stored is not None and stored.seal == record.seal:
                    found[record.place] = self._certificate(path, record, stored)
                else:
                    nursery.start_soon(read, record.place, path, record)
        if failures:
            raise failures[0]
        return found

    async def _read_file(self, place: Place, path: str, record: FileRecord, paths: Paths) -> _Found | None:
        try:
            if place.store is Store.CERTIFICATES:
                stored = await self._storage.inspect(place)
                return self._certificate(path, record, stored)
            content = await self._storage.read(place)
        except ApiStatusError as exc:
            if exc.status == 404:
                return None
            raise
        taken = paths.take_file(record.kind, content)
        return _Found(AuxFile(record.kind, path, taken, digest_of(taken), record.secret), content)

    def _certificate(self, path: str, record: FileRecord, stored: StoredFile) -> _Found:
        if stored.seal != record.seal:
            # Another client replaced the certificate; its content is unknown.
            return _Found(AuxFile(FileKind.CERT, path, b"", stored.seal, secret=True), None, stored)
        own = self._deployed.files.get(path) if self._deployed is not None else None
        content = own.content if own is not None and own.digest == record.digest else None
        file = AuxFile(FileKind.CERT, path, content or b"", record.digest, record.secret)
        return _Found(file, content, stored)


def _file(record: FileRecord, listing: Mapping[Place, StoredFile]) -> str:
    return listing[record.place].file if record.place in listing else record.at
