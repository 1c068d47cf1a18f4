"""Versions of the Gateway API's definitions in the cluster, and whether they are the supported one."""

import re
from collections.abc import Mapping
from typing import Any, Final, NoReturn, Protocol

import trio

from haptic_trio.channels import Latest
from haptic_trio.gateway.conditions import condition
from haptic_trio.gateway.objects import text_of
from haptic_trio.k8s.client import NotFoundError
from haptic_trio.k8s.errors import AbsentKindError, ApiError
from haptic_trio.k8s.resource import Resource, ResourceType

DEFINITIONS: Final = ResourceType("apiextensions.k8s.io/v1", "customresourcedefinitions")
KINDS: Final = (
    *("gatewayclasses", "gateways", "listenersets", "httproutes", "grpcroutes", "tlsroutes", "tcproutes"),
    *("backendtlspolicies", "referencegrants"),
)
"""Plurals of the kinds that the library `gateway` reads."""
NAMES: Final = tuple(f"{kind}.gateway.networking.k8s.io" for kind in KINDS)
"""Names of their definitions."""
SUPPORTED: Final = "v1.6"
"""The supported version, without the number of its patch."""
INTERVAL: Final = 300.0
"""Seconds between two checks of the definitions: they change when the cluster's administrator installs others."""
_ANNOTATION: Final = "gateway.networking.k8s.io/bundle-version"
_VERSION: Final = re.compile(rf"{re.escape(SUPPORTED)}\.[0-9]+(?:-[0-9A-Za-z.-]+)?")
_UNKNOWN: Final = "without a version"
_LONGEST: Final = 64


class DefinitionServer(Protocol):
    """The part of `ApiCluster` that the check uses."""

    async def get(self, resource_type: ResourceType, namespace: str, name: str) -> Resource:
        """Return an object, or raise `NotFoundError`."""
        ...


def version_condition(versions: Mapping[str, str], generation: int) -> dict[str, Any]:
    """Return the condition `SupportedVersion` for *versions* of definitions by name, which are not empty."""
    others = {name: version for name, version in versions.items() if not _VERSION.fullmatch(version)}
    if not others:
        return condition("SupportedVersion", True, "SupportedVersion", generation=generation)
    found = ", ".join(sorted({version[:_LONGEST] or _UNKNOWN for version in others.values()})[:5])
    message = (
        f"{len(others)} of {len(versions)} definitions: {found}; {SUPPORTED} is supported, others as far as possible"
    )
    return condition("SupportedVersion", False, "UnsupportedVersion", message, generation=generation)


async def follow_versions(server: DefinitionServer, versions: Latest[Mapping[str, str]]) -> NoReturn:
    """Keep the versions of the installed definitions by name in *versions* until cancelled.

    No value is put while a definition cannot be read, such as without the right to do so.
    """
    while True:
        try:
            found = await _read_versions(server)
        except (ApiError, AbsentKindError):
            found = {}
        if found and found != versions.value:
            versions.put(found)
        await trio.sleep(INTERVAL)


async def _read_versions(server: DefinitionServer) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in NAMES:
        try:
            definition = await server.get(DEFINITIONS, "", name)
        except NotFoundError:
            continue
        found[name] = text_of(definition, "metadata", "annotations", _ANNOTATION)
    return found
