"""Files in the storages of a Data Plane API: maps, certificates, crt-lists and general files.

A storage is flat: a file has a name, and the API chooses its directory.
`paths` maps the paths in the configuration to those in the API.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from haptic_trio.dataplane.dataplaneapi.client import Answer, ApiClient, ApiStatusError, quote_name
from haptic_trio.haproxy.model import AuxFile, FileKind, digest_of


class Store(StrEnum):
    """The storages by the API's names, in the order of writing: a crt-list refers to certificates."""

    CERTIFICATES = "ssl_certificates"
    GENERAL = "general"
    MAPS = "maps"
    CRT_LISTS = "ssl_crt_lists"


class Place(NamedTuple):
    """Storage and name of a file."""

    store: Store
    name: str

    def __str__(self) -> str:
        return f"{self.store}/{self.name}"


class StoredFile(msgspec.Struct, frozen=True):
    """The API's record of a file; for a certificate with its properties."""

    storage_name: str = ""
    file: str = ""
    size: int | None = None
    serial: str = ""
    subject: str = ""
    domains: str = ""
    not_before: str | None = ""
    not_after: str | None = ""
    sha256_finger_print: str = ""

    @property
    def seal(self) -> str:
        """Digest of the properties that identify a certificate."""
        marks = (self.size, self.serial, self.subject, self.domains, self.not_before, self.not_after)
        return digest_of(repr((*marks, self.sha256_finger_print)))


_STORES: Final[Mapping[FileKind, Store]] = {
    FileKind.MAP: Store.MAPS,
    FileKind.CERT: Store.CERTIFICATES,
    FileKind.CRT_LIST: Store.CRT_LISTS,
    FileKind.FILE: Store.GENERAL,
}
MANIFEST: Final = Place(Store.GENERAL, "haptic-trio.json")
"""Place of the manifest; reserved, so no file of a generation may have this name."""

# Names that the API accepts and that need no quoting.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# Names that no version of the API changes: one dot, before an ending that the storage accepts.
_STEM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_ENDING: Final = re.compile(r"\.[A-Za-z0-9]+")
_ENDINGS: Final = {Store.MAPS: ".map", Store.CERTIFICATES: ".pem", Store.CRT_LISTS: ".txt"}
# Sent only with the methods that have this parameter.
_SKIP: Final = {"skip_reload": "true"}
_SKIPS: Final = frozenset(
    {
        *((method, Store.CERTIFICATES) for method in ("POST", "PUT", "DELETE")),
        *((method, Store.CRT_LISTS) for method in ("PUT", "DELETE")),
        ("PUT", Store.MAPS),
        ("PUT", Store.GENERAL),
    }
)


class Storage:
    """The storages of one API; raises the errors of `ApiClient`. Does not reload HAProxy.

    With two exceptions in the API: a new crt-list schedules a reload, and so
    does a certificate that it cannot add at runtime. The next push of a
    configuration replaces that reload.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def list_files(self) -> dict[Place, StoredFile]:
        """Return all stored files; certificates without their properties."""
        found: dict[Place, StoredFile] = {}
        for store in Store:
            path = f"storage/{store}"
            try:
                files = await self._api.get_as(list[StoredFile] | None, path)  # type: ignore[arg-type]  # a union is not a class
            except ApiStatusError as exc:
                if exc.status != 404:
                    raise
                files = None
            found.update({Place(store, file.storage_name): file for file in files or []})
        return found

    async def read(self, place: Place) -> bytes:
        """Return the content of a file; the API does not return certificates."""
        return (await self._api.get(_path(place))).content

    async def inspect(self, place: Place) -> StoredFile:
        """Return the API's record of a certificate."""
        return await self._api.get_as(StoredFile, _path(place))

    async def write(self, place: Place, content: bytes, *, exists: bool) -> StoredFile | None:
        """Create or replace a file; *exists* decides which request is tried first.

        Returns the API's record of the file; None for some replaced files.
        """
        try:
            return await (self._replace(place, content) if exists else self._create(place, content))
        except ApiStatusError as exc:
            if exc.status != (404 if exists else 409):
                raise
        return await (self._create(place, content) if exists else self._replace(place, content))

    async def introduce(self, place: Place, content: bytes) -> tuple[StoredFile, bool]:
        """Create a certificate and add it to the process; return its record, and whether it was added.

        If it was not added, the API has scheduled a reload.
        """
        path = f"storage/{place.store}"
        answer = await self._api.send("POST", path, upload=(place.name, content))
        return self._api.decode(StoredFile, answer, path), not answer.reload_id

    async def delete(self, place: Place) -> None:
        """Remove a file; a file that does not exist is ignored."""
        try:
            await self._api.send("DELETE", _path(place), params=_params("DELETE", place))
        except ApiStatusError as exc:
            if exc.status != 404:
                raise

    async def _create(self, place: Place, content: bytes) -> StoredFile:
        path = f"storage/{place.store}"
        upload = (place.name, content)
        answer = await self._api.send("POST", path, params=_params("POST", place), upload=upload)
        return self._api.decode(StoredFile, answer, path)

    async def _replace(self, place: Place, content: bytes) -> StoredFile | None:
        if place.store is Store.GENERAL:
            answer = await self._put(place, upload=(place.name, content))
        else:
            answer = await self._put(place, text=content)
        return self._api.decode(StoredFile | None, answer, _path(place)) if answer.content else None  # type: ignore[arg-type]  # a union is not a class

    async def _put(self, place: Place, *, text: bytes | None = None, upload: tuple[str, bytes] | None = None) -> Answer:
        return await self._api.send("PUT", _path(place), params=_params("PUT", place), text=text, upload=upload)


def place_files(files: Iterable[AuxFile]) -> tuple[dict[Place, AuxFile], list[str]]:
    """Return the places of *files*, in the order of writing, and problems of files without a place."""
    placed: dict[Place, AuxFile] = {}
    problems = []
    order = list(Store)
    places = [(place_of(file), file) for file in files]
    for place, file in sorted(places, key=lambda one: (order.index(one[0].store), one[1].path)):
        if (reason := _problem_of(place, placed)) is not None:
            problems.append(f"{file.path}: {reason}")
        else:
            placed[place] = file
    return placed, problems


def place_of(file: AuxFile) -> Place:
    """Return the place of *file*.

    The name is the last part of the path, unless the API might change it. A
    file with an absolute path keeps its name.
    """
    store = _STORES[file.kind]
    if store is Store.CERTIFICATES and b"PRIVATE KEY-" not in file.content:
        # This storage requires a key beside each certificate; CA certificates have none.
        store = Store.GENERAL
    name = file.path.rpartition("/")[2]
    if file.path.startswith("/"):
        return Place(store, name)
    stem, dot, last = name.rpartition(".")
    ending = _ENDINGS.get(store, f"{dot}{last}" if _ENDING.fullmatch(f"{dot}{last}") else "")
    if _STEM.fullmatch(name.removesuffix(ending)) and name.endswith(ending):
        return Place(store, name)
    plain = re.sub(r"[^A-Za-z0-9_-]+", "_", stem or last).strip("-")[:100] or "file"
    return Place(store, f"{plain}-{digest_of(name)[:8]}{ending}")


def check_place(place: Place, path: str, stored: StoredFile) -> str:
    """Return why the configuration would not find the file by *path*; empty if it does.

    Relative paths are replaced by those of the API (`paths`).
    """
    if stored.storage_name != place.name:
        return f"{path}: the API stored it as '{stored.storage_name}'"
    if path.startswith("/") and stored.file and stored.file != path:
        return f"{path}: the API stored it at {stored.file}"
    return ""


def _problem_of(place: Place, placed: Mapping[Place, AuxFile]) -> str | None:
    if not _NAME.fullmatch(place.name):
        return "a name may have letters, digits, dots, hyphens and underscores, and must not begin with a dot or hyphen"
    if place.store is Store.MAPS and not place.name.endswith(".map"):
        return "the name of a map must end with .map"
    if place == MANIFEST:
        return "this name is reserved"
    if place in placed:
        return f"the API cannot distinguish it from {placed[place].path}"
    return None


def _path(place: Place) -> str:
    return f"storage/{place.store}/{quote_name(place.name)}"


def _params(method: str, place: Place) -> dict[str, str]:
    return _SKIP if (method, place.store) in _SKIPS else {}
