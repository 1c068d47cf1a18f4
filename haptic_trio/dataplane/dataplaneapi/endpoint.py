"""Endpoint for an HAProxy behind its Data Plane API.

Interruptions: before the first change, the manifest in the API's storage
(`manifest`) marks the running generation as unknown, and only after the last
change it names the new one. The next deployment, possibly by another
controller, reads one or the other. A change that HAProxy or the API rejects
is undone at once, from what was read before it.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from math import inf
from ssl import SSLContext
from typing import Final

import httpx
import msgspec
import trio

from haptic_trio.dataplane.dataplaneapi.client import (
    ApiClient,
    ApiStatusError,
    Credentials,
    CredentialSource,
    open_api_client,
)
from haptic_trio.dataplane.dataplaneapi.config import RawConfig, ReloadMode
from haptic_trio.dataplane.dataplaneapi.drift import DriftRepair
from haptic_trio.dataplane.dataplaneapi.manifest import Manifest, begin, encode_manifest, finish, pack_text
from haptic_trio.dataplane.dataplaneapi.observe import read_certificates
from haptic_trio.dataplane.dataplaneapi.probe import probe_api
from haptic_trio.dataplane.dataplaneapi.rewrite import ApiConflictError, ReloadRequiredError, Rewrite
from haptic_trio.dataplane.dataplaneapi.runtime import RuntimeApi
from haptic_trio.dataplane.dataplaneapi.servers import OPTIONS
from haptic_trio.dataplane.dataplaneapi.snapshot import Snapshot, SnapshotReader
from haptic_trio.dataplane.dataplaneapi.storage import MANIFEST, Place, Storage, Store, StoredFile, place_files
from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    DriftReport,
    EndpointError,
    EndpointInfo,
    EndpointStorageError,
    ObservedState,
    PatchRejectedError,
)
from haptic_trio.errors import text_of
from haptic_trio.haproxy.config.maps import parse_map_file
from haptic_trio.haproxy.model import AuxFile, Generation, digest_of
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan, ReplaceMap, StoreCertificate
from haptic_trio.logs import get_logger

SNAPSHOT_AGE: Final = 10.0
"""Seconds after which a snapshot is read again before a deployment uses it."""
FRESH_AGE: Final = 1.0
"""Seconds in which the snapshot of a drift check is reused for the following comparison."""
REJECTIONS: Final = (DeploymentRejectedError, EndpointStorageError, ApiConflictError)
"""Errors after which the API still works, so that all writes can be undone."""


class DataplaneApiEndpoint:
    """The HAProxy beside *api*, whose client belongs to the caller; see `open_dataplaneapi_endpoint`.

    The caller serialises calls and limits their time; single requests have
    their own limits. With *schedules_reloads* a reload waits for the API's
    delay, together with those of other clients, instead of happening at once.
    """

    def __init__(self, api: ApiClient, *, schedules_reloads: bool = False) -> None:
        self._name = api.endpoint
        self._api = api
        self._config = RawConfig(api)
        self._storage = Storage(api)
        self._runtime = RuntimeApi(api)
        self._drift = DriftRepair(api, self._runtime)
        self._reader = SnapshotReader(self._config, self._storage)
        self._load_mode: ReloadMode = "schedule" if schedules_reloads else "force"
        self._capabilities: Capabilities | None = None
        self._snapshot: Snapshot | None = None
        self._snapshot_time = 0.0
        self._fresh_until = -inf
        self._adds_certificates = True
        """Whether the API may add new certificates to the process; False once it did not."""
        self._reloads = 0
        self._log = get_logger("dataplaneapi").bind(endpoint=self._name)

    @property
    def name(self) -> str:
        """Unique and stable."""
        return self._name

    async def describe(self) -> EndpointInfo:
        """Return the observed state.

        The API shows neither the master process nor its count of reloads: the
        pid is that of the worker, and the count has the reloads by this object.
        """
        probe = await probe_api(self._api)
        if self._capabilities is None:
            if probe.is_newer_than_known:
                self._log.warning("haproxy is newer than the newest supported version", version=probe.haproxy_version)
            # Every supported HAProxy adds and deletes servers; the API has no requests to add or delete backends.
            self._capabilities = Capabilities(
                servers=True, server_options=OPTIONS, certificates=await read_certificates(self._api) is not None
            )
        manifest = await self._reader.read_manifest()
        return EndpointInfo(
            name=self._name,
            version=probe.haproxy_version.partition("-")[0],
            generation=manifest.generation if manifest is not None and manifest.clear else "",
            reloads=self._reloads,
            pid=probe.pid,
            capabilities=self._capabilities,
        )

    async def fetch_running(self) -> Generation | None:
        """Return the generation that was deployed last, with files as they are now.

        None if haptic-trio did not deploy yet, if a deployment was
        interrupted, and if another client changed the configuration.
        Certificates always have a digest, but content only if this object
        deployed them.
        """
        if trio.current_time() > self._fresh_until:
            await self._refresh_snapshot(is_complete=False)
        self._fresh_until = -inf
        return self._snapshot.generation if self._snapshot is not None else None

    async def observe(self) -> ObservedState:
        """Return the running generation and the capabilities of the process."""
        running = await self.fetch_running()
        if running is None or self._capabilities is None:
            return ObservedState(running=None)
        return ObservedState(running=running, capabilities=self._capabilities)

    async def activate(self, generation: Generation) -> None:
        """Store the files that differ, push the configuration, and let HAProxy load it.

        After a rejection files and configuration are restored, and the
        process loads them again if it may have loaded any of the new ones.
        """
        placed = self._place(generation)
        # The process loads every file, so what others have changed must be found.
        seen = await self._take_snapshot(is_complete=True)
        rewrite = await self._begin(seen, placed)
        rejection: EndpointError
        try:
            certificates = await rewrite.write_files(_differing(seen, placed))
            stored = await rewrite.push(generation.text, mode=self._load_mode)
        except REJECTIONS as exc:
            rejection = exc
        else:
            self._reloads += 1
            await self._finish(seen, generation, placed, rewrite, stored, certificates)
            return
        await self._undo(rewrite, seen, rejection, reload=False)
        raise rejection

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the operations of *plan*, then store files and configuration of *generation*, without a reload.

        Raises PatchRejectedError, with the files unchanged, if an operation is
        rejected or the running generation is unknown.
        """
        placed = self._place(generation)
        seen = await self._take_snapshot(is_complete=False)
        if seen.generation is None:
            raise PatchRejectedError(
                self._name,
                "the running generation is unknown: a deployment was interrupted, or another client made one",
            )
        present = {
            one.map: parse_map_file(seen.generation.files[one.map].content)
            for one in plan.operations
            if isinstance(one, ReplaceMap) and one.map in seen.generation.files
        }
        new = {one.path for one in plan.operations if isinstance(one, StoreCertificate) and one.is_new}
        operations = [one for one in plan.operations if not (isinstance(one, StoreCertificate) and one.is_new)]
        if new and not self._adds_certificates:
            raise PatchRejectedError(self._name, "the API adds new certificates only by a reload")
        self._runtime.prepare(operations, generation, present=present, paths=seen.paths)
        rewrite = await self._begin(seen, placed)
        try:
            introduced = await rewrite.introduce({place: file for place, file in placed.items() if file.path in new})
        except ReloadRequiredError:
            self._adds_certificates = False
            raise
        # Files that the generation no longer has still have their paths in the process.
        paths = seen.paths.joined(rewrite.paths)
        await self._runtime.apply(operations, generation, present=present, paths=paths)
        rejection: EndpointError
        try:
            differing = {place: file for place, file in _differing(seen, placed).items() if place not in introduced}
            certificates = {**introduced, **await rewrite.write_files(differing)}
            stored = seen.raw
            if generation.text != seen.generation.text:
                stored = await rewrite.push(generation.text, mode="skip")
        except REJECTIONS as exc:
            rejection = exc
        else:
            await self._finish(seen, generation, placed, rewrite, stored, certificates)
            return
        await self._undo(rewrite, seen, rejection, reload=True)
        raise rejection

    async def repair(self) -> DriftReport:
        """Compare configuration, files and process with what was deployed last; see `Endpoint.repair`."""
        seen = await self._refresh_snapshot(is_complete=True)
        info = await self.describe()
        report = await self._drift.repair(seen, info.capabilities, worker=info.pid)
        # A repair does not write files or configuration, so the snapshot stays valid.
        self._fresh_until = trio.current_time() + FRESH_AGE
        return report

    async def _refresh_snapshot(self, *, is_complete: bool) -> Snapshot:
        self._snapshot = seen = await self._read_snapshot(is_complete=is_complete)
        self._snapshot_time = trio.current_time()
        return seen

    async def _read_snapshot(self, *, is_complete: bool) -> Snapshot:
        if self._capabilities is None:
            await self.describe()
        return await self._reader.read(is_complete=is_complete)

    async def _take_snapshot(self, *, is_complete: bool) -> Snapshot:
        # A snapshot is valid for one deployment, which changes what it describes.
        seen, self._snapshot = self._snapshot, None
        self._fresh_until = -inf
        is_recent = trio.current_time() - self._snapshot_time < SNAPSHOT_AGE
        if seen is not None and is_recent and (seen.is_complete or not is_complete):
            return seen
        return await self._read_snapshot(is_complete=is_complete)

    def _place(self, generation: Generation) -> dict[Place, AuxFile]:
        placed, problems = place_files(generation.files.values())
        if problems:
            raise DeploymentRejectedError(self._name, "; ".join(problems))
        return placed

    async def _begin(self, seen: Snapshot, placed: Mapping[Place, AuxFile]) -> Rewrite:
        await self._write_manifest(begin(seen.manifest, placed), exists=MANIFEST in seen.listing)
        return Rewrite(
            self._name, self._storage, self._config, placed, raw=seen.raw, listing=seen.listing, contents=seen.contents
        )

    async def _undo(self, rewrite: Rewrite, seen: Snapshot, rejection: EndpointError, *, reload: bool) -> None:
        """Restore the state of *seen* after *rejection*; raises EndpointError if that fails."""
        try:
            stored = await rewrite.undo(reload=reload)
        except EndpointError as exc:
            raise EndpointStorageError(
                self._name, f"{rejection}; restoring the previous state failed: {exc}"
            ) from rejection
        if stored is not None and seen.manifest.clear:
            await self._write_manifest(msgspec.structs.replace(seen.manifest, stored=digest_of(stored)))
        else:
            self._log.warning("files of a rejected deployment remain", error=text_of(rejection))

    async def _finish(
        self,
        seen: Snapshot,
        generation: Generation,
        placed: Mapping[Place, AuxFile],
        rewrite: Rewrite,
        stored: str,
        certificates: Mapping[Place, StoredFile],
    ) -> None:
        begun = begin(seen.manifest, placed)
        text = await trio.to_thread.run_sync(pack_text, generation.text)
        sealed = {**seen.certificates, **certificates}
        finished = finish(
            begun, generation, placed, text=text, stored=stored, known=rewrite.stored, certificates=sealed
        )
        await self._write_manifest(finished)
        self._reader.remember(generation)
        try:
            await self._remove_surplus(finished)
        except EndpointError as exc:
            # The deployment itself succeeded.
            self._log.warning("files not removed", error=text_of(exc))

    async def _remove_surplus(self, finished: Manifest) -> None:
        """Remove unused files, and their names from the manifest: another client may then use these names.

        Files that the API does not remove stay in the manifest; the next deployment retries.
        """
        remaining = []
        for place in sorted(finished.surplus, key=_removal_order):
            try:
                await self._storage.delete(place)
            except ApiStatusError as exc:
                self._log.warning("file not removed", file=str(place), error=text_of(exc))
                remaining.append(place)
        if removed := len(finished.surplus) - len(remaining):
            await self._write_manifest(msgspec.structs.replace(finished, surplus=tuple(sorted(remaining))))
            self._log.info("unused files removed", files=removed)

    async def _write_manifest(self, manifest: Manifest, *, exists: bool = True) -> None:
        try:
            created = await self._storage.write(MANIFEST, encode_manifest(manifest), exists=exists)
        except ApiStatusError as exc:
            raise EndpointStorageError(self._name, f"{MANIFEST}: {exc.reason}") from exc
        if created is not None and created.storage_name != MANIFEST.name:
            raise EndpointStorageError(self._name, f"{MANIFEST}: the API stored it as '{created.storage_name}'")


@asynccontextmanager
async def open_dataplaneapi_endpoint(
    name: str,
    url: str,
    credentials: Credentials | CredentialSource,
    *,
    verify: SSLContext | bool = True,
    schedules_reloads: bool = False,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[DataplaneApiEndpoint]:
    """Open the endpoint *name* at *url*; closed at the end of the block. See `open_api_client`."""
    async with open_api_client(name, url, credentials, verify=verify, transport=transport) as api:
        yield DataplaneApiEndpoint(api, schedules_reloads=schedules_reloads)


def _differing(seen: Snapshot, placed: Mapping[Place, AuxFile]) -> dict[Place, AuxFile]:
    """Return the files that the API does not have or that differ."""
    return {place: file for place, file in placed.items() if seen.digests.get(place) != file.digest}


def _removal_order(place: Place) -> int:
    # Files that refer to others are removed first.
    return -list(Store).index(place.store)
