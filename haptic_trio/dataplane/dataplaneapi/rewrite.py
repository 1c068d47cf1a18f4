"""Transaction over a Data Plane API: files first, then the configuration; undone on failure."""

from collections.abc import Mapping

import msgspec

from haptic_trio.dataplane.dataplaneapi.client import ApiStatusError
from haptic_trio.dataplane.dataplaneapi.config import RawConfig, ReloadFailedError, ReloadMode
from haptic_trio.dataplane.dataplaneapi.paths import Paths
from haptic_trio.dataplane.dataplaneapi.storage import Place, Storage, Store, StoredFile, check_place
from haptic_trio.dataplane.endpoint import (
    DeploymentRefusedError,
    EndpointError,
    EndpointStorageError,
    PatchRefusedError,
    PortsUnavailableError,
)
from haptic_trio.haproxy.model import AuxFile, FileKind


class ApiConflictError(EndpointError):
    """Somebody else keeps changing the configuration; trying again later is fine."""


class NotTakenError(PatchRefusedError):
    """The API has no way to give the process a new certificate; what needs one is to be activated."""


class _Change(msgspec.Struct, frozen=True):
    """A file that was written, and what was there before."""

    place: Place
    existed: bool
    former: bytes | None
    """None for a file that did not exist, and for one that could not be read."""


class Rewrite:
    """Writes files and configuration, and remembers how both were.

    *placed* are all files that shall be there. *raw* is the configuration as
    the API stored it before, *contents* what is known of the files.
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
        """Create or replace *files*, in their order, and return what the API says of the certificates.

        Raises DeploymentRefusedError for content that the API refuses, or a
        file that would lie elsewhere than the configuration says, and
        EndpointStorageError when it cannot write.
        """
        certificates = {}
        paths = self.paths
        for place, file in files.items():
            stored = self._stored.get(place)
            former = await self._read_former(place) if stored is not None else None
            # Noted before it is done: when the answer is lost nobody knows whether it was.
            self._changes.append(_Change(place, stored is not None, former))
            try:
                if file.kind is FileKind.CRT_LIST:
                    # By now those that it names are written.
                    paths = self.paths
                told = await self._storage.write(place, paths.send_file(file), exists=stored is not None)
                if place.store is Store.CERTIFICATES:
                    certificates[place] = await self._storage.inspect(place)
            except ApiStatusError as exc:
                raise self._refusal_of(place, exc) from exc
            known = told or stored
            if known is not None:
                self._stored[place] = known
                if problem := check_place(place, file.path, known):
                    raise DeploymentRefusedError(self._endpoint, problem)
        return certificates

    async def introduce(self, files: Mapping[Place, AuxFile]) -> dict[Place, StoredFile]:
        """Create certificates that the process is to know at once, and return what the API says of them.

        Raises NotTakenError when the API leaves that to a reload, and
        PatchRefusedError when it refuses one.
        """
        certificates = {}
        for place, file in files.items():
            if place in self._stored or place.store is not Store.CERTIFICATES:
                raise PatchRefusedError(self._endpoint, f"{place} is not new, or has no key")
            self._changes.append(_Change(place, False, None))
            try:
                self._stored[place], is_taken = await self._storage.introduce(place, file.content)
                certificates[place] = await self._storage.inspect(place)
            except ApiStatusError as exc:
                raise PatchRefusedError(self._endpoint, f"{place}: {exc.words or exc.status}") from exc
            if problem := check_place(place, file.path, self._stored[place]):
                raise PatchRefusedError(self._endpoint, problem)
            if not is_taken:
                raise NotTakenError(self._endpoint, f"{place}: the API leaves new certificates to a reload")
        return certificates

    @property
    def stored(self) -> Mapping[Place, StoredFile]:
        """What the API says of files, as far as they were there or have been written."""
        return self._stored

    @property
    def paths(self) -> Paths:
        """Where the API keeps the files that shall be there, as far as they are."""
        files = {file.path: self._stored.get(place) for place, file in self._placed.items()}
        return Paths({path: stored.file for path, stored in files.items() if stored is not None})

    async def push(self, text: str, *, mode: ReloadMode) -> str:
        """Make *text*, of a generation, the configuration and return what the API stores.

        Raises DeploymentRefusedError with HAProxy's words, ApiConflictError.
        """
        text = self.paths.send(text)
        try:
            return await self._config.push(text, mode=mode)
        except ReloadFailedError as exc:
            if exc.unbound:
                raise PortsUnavailableError(self._endpoint, exc.unbound) from exc
            raise DeploymentRefusedError(self._endpoint, str(exc)) from exc
        except ApiStatusError as exc:
            if exc.status == 409:
                raise ApiConflictError(self._endpoint, exc.words) from exc
            raise DeploymentRefusedError(self._endpoint, await self._config.explain(text, exc)) from exc

    async def undo(self, *, reload: bool) -> str | None:
        """Put back files and configuration, and return what the API stores then.

        None when a file could not be put back. With *reload* the process is
        made to load all that, which it is anyway if the configuration was
        replaced. Raises EndpointStorageError when it does not, and other
        EndpointErrors when the API does not answer.
        """
        complete = True
        for change in reversed(self._changes):
            complete &= await self._restore(change)
        stored = await self._config.fetch()
        if reload or stored != self._raw:
            try:
                stored = await self._config.push(self._raw, mode="force")
            except (ReloadFailedError, ApiStatusError) as exc:
                message = f"the former configuration could not be put back: {exc}"
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

    def _refusal_of(self, place: Place, refusal: ApiStatusError) -> EndpointError:
        words = f"{place}: {refusal.words or refusal.status}"
        # What is no certificate is answered as if the API had failed.
        if refusal.status < 500 or place.store is Store.CERTIFICATES:
            return DeploymentRefusedError(self._endpoint, words)
        return EndpointStorageError(self._endpoint, words)
