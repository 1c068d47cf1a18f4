"""Transaction over a Data Plane API: files first, then the configuration; undone on failure."""

from collections.abc import Mapping

import msgspec

from haptic_trio.dataplane.dataplaneapi.client import ApiStatusError
from haptic_trio.dataplane.dataplaneapi.config import RawConfig, ReloadFailedError, ReloadMode
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.dataplaneapi.storage import Place, Storage, Store, StoredFile, check_place
from haptic_trio.dataplane.endpoint import (
    DeploymentRejectedError,
    EndpointError,
    EndpointStorageError,
    PatchRejectedError,
    PortsUnavailableError,
)
from haptic_trio.haproxy.model import AuxFile, FileKind


class ApiConflictError(EndpointError):
    """Another client keeps changing the configuration; a later retry may help."""


class ReloadRequiredError(PatchRejectedError):
    """The API cannot add a new certificate at runtime; the caller activates instead."""


class _Change(msgspec.Struct, frozen=True):
    """A written file and its previous content."""

    place: Place
    existed: bool
    former: bytes | None
    """None if the file did not exist or could not be read."""


class Rewrite:
    """Writes files and configuration, and can restore both.

    *placed* are all desired files. *raw* is the configuration that the API
    stored before, *contents* are known contents of files.
    """

    def __init__(
        self,
        endpoint: str,
        storage: Storage,
        config: RawConfig,
        placed: Mapping[Place, AuxFile],
        *,
        raw: str,
        listing: Mapping[Place, StoredFile],
        contents: Mapping[Place, bytes],
    ) -> None:
        self._endpoint = endpoint
        self._storage = storage
        self._config = config
        self._placed = placed
        self._raw = raw
        self._stored = dict(listing)
        self._contents = contents
        self._changes: list[_Change] = []

    async def write_files(self, files: Mapping[Place, AuxFile]) -> dict[Place, StoredFile]:
        """Create or replace *files*, in their order, and return the API's records of the certificates.

        Raises DeploymentRejectedError if the API rejects a content, or stores
        a file under another path than the configuration has, and
        EndpointStorageError if it cannot write.
        """
        certificates = {}
        paths = self.paths
        for place, file in files.items():
            stored = self._stored.get(place)
            former = await self._read_former(place) if stored is not None else None
            # Recorded before the request: if the answer is lost, the file may have been written.
            self._changes.append(_Change(place, stored is not None, former))
            try:
                if file.kind is FileKind.CRT_LIST:
                    # The files that it refers to are written by now.
                    paths = self.paths
                record = await self._storage.write(place, paths.send_file(file), exists=stored is not None)
                if place.store is Store.CERTIFICATES:
                    certificates[place] = await self._storage.inspect(place)
            except ApiStatusError as exc:
                raise self._rejection_of(place, exc) from exc
            known = record or stored
            if known is not None:
                self._stored[place] = known
                if problem := check_place(place, file.path, known):
                    raise DeploymentRejectedError(self._endpoint, problem)
        return certificates

    async def introduce(self, files: Mapping[Place, AuxFile]) -> dict[Place, StoredFile]:
        """Create certificates and add them to the process; return the API's records.

        Raises ReloadRequiredError if the API adds them only by a reload, and
        PatchRejectedError if it rejects one.
        """
        certificates = {}
        for place, file in files.items():
            if place in self._stored or place.store is not Store.CERTIFICATES:
                raise PatchRejectedError(self._endpoint, f"{place} is not a new certificate with a key")
            self._changes.append(_Change(place, False, None))
            try:
                self._stored[place], is_taken = await self._storage.introduce(place, file.content)
                certificates[place] = await self._storage.inspect(place)
            except ApiStatusError as exc:
                raise PatchRejectedError(self._endpoint, f"{place}: {exc.reason}") from exc
            if problem := check_place(place, file.path, self._stored[place]):
                raise PatchRejectedError(self._endpoint, problem)
            if not is_taken:
                raise ReloadRequiredError(self._endpoint, f"{place}: the API adds new certificates only by a reload")
        return certificates

    @property
    def stored(self) -> Mapping[Place, StoredFile]:
        """The API's records of existing and written files."""
        return self._stored

    @property
    def paths(self) -> Paths:
        """Paths of the desired files that the API has."""
        files = {file.path: self._stored.get(place) for place, file in self._placed.items()}
        return Paths({path: stored.file for path, stored in files.items() if stored is not None})

    async def push(self, text: str, *, mode: ReloadMode) -> str:
        """Store the configuration *text* of a generation and return it as rewritten by the API.

        Raises DeploymentRejectedError with HAProxy's errors, and ApiConflictError.
        """
        text = self.paths.send(text)
        try:
            return await self._config.push(text, mode=mode)
        except ReloadFailedError as exc:
            if exc.unbound:
                raise PortsUnavailableError(self._endpoint, exc.unbound) from exc
            raise DeploymentRejectedError(self._endpoint, str(exc)) from exc
        except ApiStatusError as exc:
            if exc.status == 409:
                raise ApiConflictError(self._endpoint, exc.reason) from exc
            raise DeploymentRejectedError(self._endpoint, await self._config.explain(text, exc)) from exc

    async def undo(self, *, reload: bool) -> str | None:
        """Restore files and configuration, and return the stored configuration.

        None if a file could not be restored. The process reloads with
        *reload*, or if the configuration had been replaced. Raises
        EndpointStorageError if that fails, and other EndpointErrors if the
        API does not answer.
        """
        complete = True
        for change in reversed(self._changes):
            complete &= await self._restore(change)
        stored = await self._config.fetch()
        if reload or stored != self._raw:
            try:
                stored = await self._config.push(self._raw, mode="force")
            except (ReloadFailedError, ApiStatusError) as exc:
                message = f"the previous configuration could not be restored: {exc}"
                raise EndpointStorageError(self._endpoint, message) from exc
        return stored if complete else None

    async def _restore(self, change: _Change) -> bool:
        try:
            if not change.existed:
                await self._storage.delete(change.place)
            elif change.former is not None:
                await self._storage.write(change.place, change.former, exists=True)
            else:
                return False
        except ApiStatusError:
            return False
        return True

    async def _read_former(self, place: Place) -> bytes | None:
        if place in self._contents:
            return self._contents[place]
        if place.store is Store.CERTIFICATES:
            return None
        try:
            return await self._storage.read(place)
        except ApiStatusError:
            return None

    def _rejection_of(self, place: Place, rejection: ApiStatusError) -> EndpointError:
        words = f"{place}: {rejection.reason}"
        # For an invalid certificate the API answers as for an internal error.
        if rejection.status < 500 or place.store is Store.CERTIFICATES:
            return DeploymentRejectedError(self._endpoint, words)
        return EndpointStorageError(self._endpoint, words)
