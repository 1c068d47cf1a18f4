"""Files in the storages of a Data Plane API: maps, certificates, crt-lists and general files.

A storage is flat: a file has a name, and the API decides on its directory.
What the configuration calls the same file is for `dataplaneapi_paths` to say.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec

from haptic_trio.dataplane.dataplaneapi.client import Answer, ApiClient, ApiStatusError, quote_name
from haptic_trio.haproxy.model import AuxFile, FileKind, digest_of


class Store(StrEnum):
    """The storages, by the API's names, in the order in which files are written: a crt-list names certificates."""

    CERTIFICATES = "ssl_certificates"
    GENERAL = "general"
    MAPS = "maps"
    CRT_LISTS = "ssl_crt_lists"


class Place(NamedTuple):
    """Where the API keeps a file."""

    store: Store
    name: str

    def __str__(self) -> str:
        return f"{self.store}/{self.name}"


class StoredFile(msgspec.Struct, frozen=True):
    """What the API says of a file; of a certificate more than where it is."""

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
        """Hash over what tells one certificate from another."""
        marks = (self.size, self.serial, self.subject, self.domains, self.not_before, self.not_after)
        return digest_of(repr((*marks, self.sha256_finger_print)))


_STORES: Final[Mapping[FileKind, Store]] = {
    FileKind.MAP: Store.MAPS,
    FileKind.CERT: Store.CERTIFICATES,
    FileKind.CRT_LIST: Store.CRT_LISTS,
    FileKind.FILE: Store.GENERAL,
}
MANIFEST: Final = Place(Store.GENERAL, "haptic-trio.json")
"""Where we keep our own notes; no generation may have a file there."""

# What the API may leave as it is, and what needs no quoting anywhere.
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")
# What every version leaves as it is: one dot, before an ending that the storage knows.
_STEM: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*")
_ENDING: Final = re.compile(r"\.[A-Za-z0-9]+")
_ENDINGS: Final = {Store.MAPS: ".map", Store.CERTIFICATES: ".pem", Store.CRT_LISTS: ".txt"}
# A parameter that a storage's method does not have is not sent.
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
    """The storages of one API; errors are those of `ApiClient`. Nothing here reloads HAProxy.

    With two exceptions, which are the API's: a new crt-list schedules a
    reload, and so does a certificate that is introduced and not taken. The
    next push of a configuration takes it over.
    """

    def __init__(self, api: ApiClient) -> None:
        self._api = api

    async def list_files(self) -> dict[Place, StoredFile]:
        """Return what is stored; of certificates only where they are."""
        found: dict[Place, StoredFile] = {}
        for store in Store:
            path = f"storage/{store}"
            try:
                files = await self._api.get_as(list[StoredFile] | None, path)  # type: ignore[arg-type]  # a union is no class
            except ApiStatusError as exc:
                if exc.status != 404:
                    raise
                files = None
            found.update({Place(store, file.storage_name): file for file in files or []})
        return found

    async def read(self, place: Place) -> bytes:
        """Return the content of a file; certificates are not given away."""
        return (await self._api.get(_path(place))).content

    async def inspect(self, place: Place) -> StoredFile:
        """Return what the API says of a certificate."""
        return await self._api.get_as(StoredFile, _path(place))

    async def write(self, place: Place, content: bytes, *, exists: bool) -> StoredFile | None:
        """Create or replace a file, whichever it takes; *exists* is the guess that is tried first.

        Returns what the API says of the file; of some that were replaced it says nothing.
        """
        try:
            return await (self._replace(place, content) if exists else self._create(place, content))
        except ApiStatusError as exc:
            if exc.status != (404 if exists else 409):
                raise
        return await (self._create(place, content) if exists else self._replace(place, content))

    async def introduce(self, place: Place, content: bytes) -> tuple[StoredFile, bool]:
        """Create a certificate and have the process know it; return what the API says of it, and whether it does.

        Where it does not, a reload is scheduled: so do versions that leave new certificates to that.
        """
        path = f"storage/{place.store}"
        answer = await self._api.send("POST", path, upload=(place.name, content))
        return self._api.decode(StoredFile, answer, path), not answer.reload_id

    async def delete(self, place: Place) -> None:
        """Remove a file; one that is gone already is none to remove."""
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
        return self._api.decode(StoredFile | None, answer, _path(place)) if answer.content else None  # type: ignore[arg-type]  # a union is no class

    async def _put(self, place: Place, *, text: bytes | None = None, upload: tuple[str, bytes] | None = None) -> Answer:
        return await self._api.send("PUT", _path(place), params=_params("PUT", place), text=text, upload=upload)


def place_files(files: Iterable[AuxFile]) -> tuple[dict[Place, AuxFile], list[str]]:
    """Return where each of *files* goes, in the order of writing, and why some cannot go anywhere."""
    placed: dict[Place, AuxFile] = {}
    problems = []
    order = list(Store)
    places = [(place_of(file), file) for file in files]
    for place, file in sorted(places, key=lambda one: (order.index(one[0].store), one[1].path)):
        if (reason := _refuse(place, placed)) is not None:
            problems.append(f"{file.path}: {reason}")
        else:
            placed[place] = file
    return placed, problems


def place_of(file: AuxFile) -> Place:
    """Return where the API is to keep *file*.

    Its name is that of the path, unless the API might change that. One whose
    path is absolute has to keep it.
    """
    store = _STORES[file.kind]
    if store is Store.CERTIFICATES and b"PRIVATE KEY-" not in file.content:
        # That storage takes certificates with their keys; authorities are none of those.
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
    """Return why the configuration would not find the file by *path*; empty when it does.

    A relative path is sent as the one that the API has (`dataplaneapi_paths`).
    """
    if stored.storage_name != place.name:
        return f"{path}: the API calls it '{stored.storage_name}'"
    if path.startswith("/") and stored.file and stored.file != path:
        return f"{path}: the API keeps it as {stored.file}"
    return ""


def _refuse(place: Place, placed: Mapping[Place, AuxFile]) -> str | None:
    if not _NAME.fullmatch(place.name):
        return "a name may have letters, digits, dots, hyphens and underscores, and begins with neither dot nor hyphen"
    if place.store is Store.MAPS and not place.name.endswith(".map"):
        return "the name of a map has to end with .map"
    if place == MANIFEST:
        return "this name is taken"
    if place in placed:
        return f"the API cannot tell it from {placed[place].path}"
    return None


def _path(place: Place) -> str:
    return f"storage/{place.store}/{quote_name(place.name)}"


def _params(method: str, place: Place) -> dict[str, str]:
    return _SKIP if (method, place.store) in _SKIPS else {}
