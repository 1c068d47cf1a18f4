"""Endpoint for an HAProxy behind its Data Plane API.

How an interruption is survived: before anything changes, the note in the
API's storage (`dataplaneapi_manifest`) says that nobody knows what runs, and
only after everything has changed it says what does. Whoever deploys next, be
it another controller, meets one or the other. What HAProxy or the API
refuses is undone at once, with what was read beforehand.
"""

from collections.abc import AsyncIterator, Iterable, Mapping
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
from haptic_trio.dataplane.dataplaneapi.rewrite import ApiConflictError, NotTakenError, Rewrite
from haptic_trio.dataplane.dataplaneapi.runtime import RuntimeApi
from haptic_trio.dataplane.dataplaneapi.servers import OPTIONS
from haptic_trio.dataplane.dataplaneapi.snapshot import Snapshot, SnapshotReader
from haptic_trio.dataplane.dataplaneapi.storage import MANIFEST, Place, Storage, Store, StoredFile, place_files
from haptic_trio.dataplane.endpoint import (
    DeploymentRefusedError,
    DriftReport,
    EndpointError,
    EndpointInfo,
    EndpointStorageError,
    PatchRefusedError,
    Survey,
)
from haptic_trio.haproxy.config.maps import parse_map_file
from haptic_trio.haproxy.model import AuxFile, Generation, digest_of
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.operations import Plan, ReplaceMap, StoreCertificate
from haptic_trio.logs import get_logger

SNAPSHOT_AGE: Final = 10.0
"""Seconds after which what was read is read again before it is acted on."""
FRESH_AGE: Final = 1.0
"""Seconds in which what a look for drift has read need not be read again for the comparison that follows it."""
REFUSALS: Final = (DeploymentRefusedError, EndpointStorageError, ApiConflictError)
"""What leaves the API at work: whatever was written so far can be undone."""


class DataplaneApiEndpoint:
    """The HAProxy beside *api*; its client belongs to the caller, see `open_dataplaneapi_endpoint`.

    Calls are serialised by the caller, and the time that one takes is
    limited by the caller too; single requests have limits of their own.
    With *schedules_reloads* a reload waits for the API's own delay, together
    with those of other clients, instead of happening at once.
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
        self._seen: Snapshot | None = None
        self._seen_at = 0.0
        self._fresh_until = -inf
        self._takes_certificates = True
        """Whether the API may give the process certificates that are new to it; False once it has not."""
        self._reloads = 0
        self._log = get_logger("dataplaneapi").bind(endpoint=self._name)

    @property
    def name(self) -> str:
        """Unique and stable."""
        return self._name

    async def describe(self) -> EndpointInfo:
        """Return what runs.

        The API knows neither the master process nor its count of reloads:
        the pid is that of the worker, and the reloads are those that this
        object has brought about.
        """
        probe = await probe_api(self._api)
        if self._capabilities is None:
            if probe.is_newer_than_known:
                self._log.warning("haproxy is later than what is known", version=probe.haproxy_version)
            # Every HAProxy that passes the probe adds and deletes servers; the API does not do that with backends.
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

        None when nothing was deployed by us, when a deployment was
        interrupted, and when somebody else has changed the configuration.
        The content of certificates is only there if this object has deployed
        them; their digests always are.
        """
        if trio.current_time() > self._fresh_until:
            await self._see()
        self._fresh_until = -inf
        return self._seen.generation if self._seen is not None else None

    async def survey(self) -> Survey:
        """Return what `fetch_running` does, and what the process can be told."""
        running = await self.fetch_running()
        if running is None or self._capabilities is None:
            return Survey(running=None)
        return Survey(running=running, capabilities=self._capabilities)

    async def activate(self, generation: Generation) -> None:
        """Store the files that differ, push the configuration, and have HAProxy load it.

        On refusal files and configuration are put back; the process has
        loaded them anew if it may have seen any of the others.
        """
        placed = self._place(generation)
        seen = await self._take_seen()
        rewrite = await self._begin(seen, placed)
        refusal: EndpointError
        try:
            certificates = await rewrite.write_files(_differing(seen, placed))
            stored = await rewrite.push(generation.text, mode=self._load_mode)
        except REFUSALS as exc:
            refusal = exc
        else:
            self._reloads += 1
            await self._finish(seen, generation, placed, rewrite, stored, certificates)
            return
        await self._undo(rewrite, seen, refusal, reload=False)
        raise refusal

    async def patch(self, generation: Generation, plan: Plan) -> None:
        """Apply the operations of *plan*, then make files and configuration those of *generation*, without a reload.

        Raises PatchRefusedError, with the former files in place, when an
        operation is refused, and when nobody knows what runs.
        """
        placed = self._place(generation)
        seen = await self._take_seen()
        if seen.generation is None:
            raise PatchRefusedError(self._name, "it is not known what runs: a deployment was interrupted, or by others")
        present = {
            one.map: parse_map_file(seen.generation.files[one.map].content)
            for one in plan.operations
            if isinstance(one, ReplaceMap) and one.map in seen.generation.files
        }
        news = {one.path for one in plan.operations if isinstance(one, StoreCertificate) and one.is_new}
        operations = [one for one in plan.operations if not (isinstance(one, StoreCertificate) and one.is_new)]
        if news and not self._takes_certificates:
            raise PatchRefusedError(self._name, "the API leaves new certificates to a reload")
        self._runtime.prepare(operations, generation, present=present, paths=seen.paths)
        rewrite = await self._begin(seen, placed)
        try:
            introduced = await rewrite.introduce({place: file for place, file in placed.items() if file.path in news})
        except NotTakenError:
            self._takes_certificates = False
            raise
        await self._runtime.apply(operations, generation, present=present, paths=rewrite.paths)
        refusal: EndpointError
        try:
            differing = {place: file for place, file in _differing(seen, placed).items() if place not in introduced}
            certificates = {**introduced, **await rewrite.write_files(differing)}
            stored = seen.raw
            if generation.text != seen.generation.text:
                stored = await rewrite.push(generation.text, mode="skip")
        except REFUSALS as exc:
            refusal = exc
        else:
            await self._finish(seen, generation, placed, rewrite, stored, certificates)
            return
        await self._undo(rewrite, seen, refusal, reload=True)
        raise refusal

    async def repair(self) -> DriftReport:
        """Compare configuration, files and process with what was deployed last; see `Endpoint.repair`."""
        seen = await self._see()
        info = await self.describe()
        report = await self._drift.repair(seen, info.capabilities, worker=info.pid)
        # What was read of files and configuration is still so: a repair writes to neither.
        self._fresh_until = trio.current_time() + FRESH_AGE
        return report

    async def _see(self) -> Snapshot:
        self._seen = seen = await self._look()
        self._seen_at = trio.current_time()
        return seen

    async def _look(self) -> Snapshot:
        if self._capabilities is None:
            await self.describe()
        return await self._reader.read()

    async def _take_seen(self) -> Snapshot:
        # What fetch_running has read is good for one deployment: thereafter it is not what is there.
        seen, self._seen = self._seen, None
        self._fresh_until = -inf
        if seen is not None and trio.current_time() - self._seen_at < SNAPSHOT_AGE:
            return seen
        return await self._look()

    def _place(self, generation: Generation) -> dict[Place, AuxFile]:
        placed, problems = place_files(generation.files.values())
        if problems:
            raise DeploymentRefusedError(self._name, "; ".join(problems))
        return placed

    async def _begin(self, seen: Snapshot, placed: Mapping[Place, AuxFile]) -> Rewrite:
        await self._note(begin(seen.manifest, placed), exists=MANIFEST in seen.listing)
        return Rewrite(
            self._name, self._storage, self._config, placed, raw=seen.raw, listing=seen.listing, contents=seen.contents
        )

    async def _undo(self, rewrite: Rewrite, seen: Snapshot, refusal: EndpointError, *, reload: bool) -> None:
        """Put back what *seen* was; raises EndpointError, because of *refusal*, when that cannot be done."""
        try:
            stored = await rewrite.undo(reload=reload)
        except EndpointError as exc:
            raise EndpointStorageError(self._name, f"{refusal}; then {exc}") from refusal
        if stored is not None and seen.manifest.clear:
            await self._note(msgspec.structs.replace(seen.manifest, stored=digest_of(stored)))
        else:
            self._log.warning("files of a refused deployment remain", error=str(refusal))

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
        await self._note(finished)
        self._reader.remember(generation)
        await self._remove(finished.surplus)

    async def _remove(self, surplus: Iterable[Place]) -> None:
        """Remove files that nothing names any more. What remains stays noted: the next deployment tries again."""
        for place in sorted(surplus, key=_removal_order):
            try:
                await self._storage.delete(place)
            except ApiStatusError as exc:
                self._log.warning("file not removed", file=str(place), error=str(exc))
            except EndpointError as exc:
                # The deployment itself has succeeded.
                self._log.warning("files not removed", error=str(exc))
                return

    async def _note(self, manifest: Manifest, *, exists: bool = True) -> None:
        try:
            created = await self._storage.write(MANIFEST, encode_manifest(manifest), exists=exists)
        except ApiStatusError as exc:
            raise EndpointStorageError(self._name, f"{MANIFEST}: {exc.words or exc.status}") from exc
        if created is not None and created.storage_name != MANIFEST.name:
            raise EndpointStorageError(self._name, f"{MANIFEST}: the API calls it '{created.storage_name}'")


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
    """The endpoint *name* at *url*, whose connections are open while the block runs; see `open_api_client`."""
    async with open_api_client(name, url, credentials, verify=verify, transport=transport) as api:
        yield DataplaneApiEndpoint(api, schedules_reloads=schedules_reloads)


def _differing(seen: Snapshot, placed: Mapping[Place, AuxFile]) -> dict[Place, AuxFile]:
    """Return the files that the API does not have as they shall be."""
    return {place: file for place, file in placed.items() if seen.digests.get(place) != file.digest}


def _removal_order(place: Place) -> int:
    # What names others goes before them.
    return -list(Store).index(place.store)
