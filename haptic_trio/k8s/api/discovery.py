"""Discovery of the kinds that an API server serves, cached for each group version."""

from difflib import get_close_matches
from typing import Final

import msgspec
import trio

from haptic_trio.errors import INVALID_JSON
from haptic_trio.k8s.api.connection import Connection
from haptic_trio.k8s.errors import AbsentKindError, MissingError, ServerFailedError
from haptic_trio.k8s.resource import ResourceType


class ServedKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind as the API server serves it."""

    type: ResourceType
    kind: str
    """Such as `Ingress`."""
    is_namespaced: bool

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the URL path of the kind, of its objects in *namespace*, or of one object."""
        api_version = self.type.api_version
        parts = [f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"]
        if self.is_namespaced and namespace:
            parts.append(f"namespaces/{namespace}")
        parts.append(self.type.plural)
        parts += [part for part in (name, subresource) if part]
        return "/".join(parts)


class _ApiResource(msgspec.Struct):
    name: str
    kind: str = ""
    namespaced: bool = False


class _ApiResources(msgspec.Struct):
    resources: list[_ApiResource] = []


_CORE: Final = "v1"
"""The API version that every server has."""
_RESOURCES = msgspec.json.Decoder(_ApiResources)


class Discovery:
    """Finds kinds by plural or by kind."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._known: dict[str, dict[str, ServedKind]] = {}
        self._asking = trio.Lock()

    async def find(self, resource_type: ResourceType) -> ServedKind:
        """Return what is served under *resource_type*.

        Raises `AbsentKindError` if it is not there now, and `ApiError` if
        the server cannot be asked.
        """
        served = self._known.get(resource_type.api_version, {})
        if resource_type.plural not in served:
            served = await self._ask(resource_type.api_version)
        if resource_type.plural not in served:
            raise AbsentKindError(resource_type, _similar(resource_type.plural, served))
        return served[resource_type.plural]

    async def find_kind(self, api_version: str, kind: str) -> ServedKind:
        """Return what is served as *kind*; raises like `find`."""
        found = _of_kind(self._known.get(api_version, {}), kind) or _of_kind(await self._ask(api_version), kind)
        if found is None:
            raise AbsentKindError(ResourceType(api_version, kind))
        return found

    def forget(self, api_version: str) -> None:
        """Ask again before the next answer about *api_version*: it was not as it should be."""
        self._known.pop(api_version, None)

    async def _ask(self, api_version: str) -> dict[str, ServedKind]:
        before = self._known.get(api_version)
        async with self._asking:
            if self._known.get(api_version) is not before:
                # Another task has asked while this one waited.
                return self._known.get(api_version, {})
            base = "apis" if "/" in api_version else "api"
            try:
                body = await self._connection.request(
                    "GET", f"/{base}/{api_version}", what=f"list the kinds of {api_version}"
                )
            except MissingError as error:
                self._known.pop(api_version, None)
                if api_version == _CORE:
                    raise self._failure(api_version, f"the answer is {error.status}") from error
                return {}
            try:
                resources = _RESOURCES.decode(body).resources
            except INVALID_JSON as error:
                raise self._failure(api_version, f"the answer is not a list of resources: {error}") from error
            served = self._known[api_version] = {
                each.name: ServedKind(
                    type=ResourceType(api_version, each.name), kind=each.kind, is_namespaced=each.namespaced
                )
                for each in resources
                if "/" not in each.name
            }
            return served

    def _failure(self, api_version: str, message: str) -> ServerFailedError:
        """Return the error for an answer that no Kubernetes API server gives."""
        failed = ServerFailedError(
            f"list the kinds of {api_version}", f"{message}. Is this the address of a Kubernetes API server?"
        )
        failed.where = self._connection.where
        return failed


def _of_kind(served: dict[str, ServedKind], kind: str) -> ServedKind | None:
    return next((each for each in served.values() if each.kind == kind), None)


def _similar(plural: str, served: dict[str, ServedKind]) -> tuple[str, ...]:
    by_kind = [each.type.plural for each in served.values() if each.kind.lower() == plural.lower()]
    return tuple(by_kind or get_close_matches(plural, served, n=3))
