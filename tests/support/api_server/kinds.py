"""The kinds that the in-process API server serves, and its discovery documents."""

from collections.abc import Iterable
from typing import Any

import msgspec

from haptic_trio.k8s.kinds import CLUSTER_SCOPED, plural_of
from haptic_trio.k8s.resource import Resource, ResourceType


class KindInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A kind that is served."""

    type: ResourceType
    kind: str
    is_namespaced: bool = True
    has_status: bool = False
    """Status is written through its own subresource only."""
    is_custom: bool = False

    @property
    def group(self) -> str:
        """Return the API group; empty for the core."""
        return self.type.api_version.rpartition("/")[0]

    @property
    def qualified(self) -> str:
        """Return plural and group, as messages name a kind."""
        return f"{self.type.plural}.{self.group}" if self.group else self.type.plural


_GATEWAY = "gateway.networking.k8s.io"
_WITH_STATUS = {
    "Ingress",
    "Service",
    "Pod",
    "Node",
    "Namespace",
    "CustomResourceDefinition",
    "GatewayClass",
    "Gateway",
    "HTTPRoute",
    "GRPCRoute",
    "TLSRoute",
    "TCPRoute",
    "BackendTLSPolicy",
    "ListenerSet",
}
_BUILT_IN = {
    "v1": ("ConfigMap", "Secret", "Service", "Pod", "Namespace", "Node", "Event", "ServiceAccount", "Endpoints"),
    "networking.k8s.io/v1": ("Ingress", "IngressClass", "NetworkPolicy"),
    "discovery.k8s.io/v1": ("EndpointSlice",),
    "coordination.k8s.io/v1": ("Lease",),
    "events.k8s.io/v1": ("Event",),
    "apps/v1": ("Deployment",),
    "apiextensions.k8s.io/v1": ("CustomResourceDefinition",),
}
_CUSTOM = {
    f"{_GATEWAY}/v1": ("GatewayClass", "Gateway", "HTTPRoute", "GRPCRoute", "BackendTLSPolicy", "TLSRoute"),
    f"{_GATEWAY}/v1beta1": ("ReferenceGrant",),
    f"{_GATEWAY}/v1alpha2": ("TCPRoute",),
}


def make_kind(api_version: str, kind: str, *, is_custom: bool = True, is_namespaced: bool | None = None) -> KindInfo:
    """Return the kind with its usual plural and scope."""
    return KindInfo(
        type=ResourceType(api_version, plural_of(kind)),
        kind=kind,
        is_namespaced=kind not in CLUSTER_SCOPED if is_namespaced is None else is_namespaced,
        has_status=kind in _WITH_STATUS,
        is_custom=is_custom,
    )


def default_kinds() -> list[KindInfo]:
    """Return what a cluster with the Gateway API serves."""
    kinds = [make_kind(version, kind, is_custom=False) for version, names in _BUILT_IN.items() for kind in names]
    return kinds + [make_kind(version, kind) for version, names in _CUSTOM.items() for kind in names]


def kinds_of_definition(definition: Resource) -> list[KindInfo]:
    """Return what a CustomResourceDefinition defines."""
    spec = definition["spec"]
    names = spec["names"]
    return [
        KindInfo(
            type=ResourceType(f"{spec['group']}/{version['name']}", names["plural"]),
            kind=names["kind"],
            is_namespaced=spec.get("scope", "Namespaced") == "Namespaced",
            has_status="status" in (version.get("subresources") or {}),
            is_custom=True,
        )
        for version in spec["versions"]
        if version.get("served", True)
    ]


def describe_core() -> dict[str, Any]:
    """Return the answer to `/api`."""
    return {"kind": "APIVersions", "versions": ["v1"]}


def describe_groups(kinds: Iterable[KindInfo]) -> dict[str, Any]:
    """Return the answer to `/apis`."""
    groups: dict[str, dict[str, None]] = {}
    for info in kinds:
        if info.group:
            groups.setdefault(info.group, {})[info.type.api_version] = None
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, list(versions)) for name, versions in groups.items()],
    }


def describe_group(kinds: Iterable[KindInfo], group: str) -> dict[str, Any] | None:
    """Return the answer to `/apis/<group>`; None if there is no such group."""
    versions = dict.fromkeys(info.type.api_version for info in kinds if info.group == group)
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, list(versions))} if versions else None


def describe_resources(kinds: Iterable[KindInfo], api_version: str) -> dict[str, Any] | None:
    """Return the answer to `/api/v1` or `/apis/<group>/<version>`; None if nothing is served there."""
    found = [info for info in kinds if info.type.api_version == api_version]
    if not found:
        return None
    resources = []
    for info in found:
        verbs = ["create", "delete", "get", "list", "patch", "update", "watch"]
        entry = {"name": info.type.plural, "singularName": info.kind.lower(), "namespaced": info.is_namespaced}
        resources.append({**entry, "kind": info.kind, "verbs": verbs})
        if info.has_status:
            resources.append({**entry, "name": f"{info.type.plural}/status", "kind": info.kind, "verbs": verbs[3:6]})
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": api_version, "resources": resources}


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    listed = [{"groupVersion": version, "version": version.rpartition("/")[2]} for version in versions]
    return {"name": name, "versions": listed, "preferredVersion": listed[0]}
