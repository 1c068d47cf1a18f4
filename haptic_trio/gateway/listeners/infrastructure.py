"""Service of a Gateway in the cluster, built from its addresses and `spec.infrastructure`.

The Service has no cluster address of its own and selects no Pods: its name
stands for the addresses in the Gateway's status. It goes when the Gateway goes.
"""

import ipaddress
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from haptic_trio.gateway.listeners.listeners import all_listeners
from haptic_trio.gateway.objects import GROUP, Lookups, Resource, dig, hash_of, items_of, name_of, namespace_of, text_of

GATEWAY_LABEL: Final = f"{GROUP}/gateway-name"
_CLASS_LABEL: Final = f"{GROUP}/gateway-class-name"
_MANAGER: Final = "haptic-trio"
_SERVICE_NAME: Final = re.compile(r"[a-z]([a-z0-9-]{0,61}[a-z0-9])?").fullmatch
_LABEL_VALUE: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?").fullmatch


def service_name(gateway: Resource) -> str:
    """Return the name of the Service of *gateway*: its own and that of its class, if that can be one."""
    name = f"{name_of(gateway)}-{text_of(gateway, 'spec', 'gatewayClassName')}"
    return name if _SERVICE_NAME(name) else f"gateway-{hash_of(name, 16)}"


def is_of(found: Any, gateway: Resource) -> bool:
    """Whether the object *found* was created for *gateway*."""
    uid = text_of(gateway, "metadata", "uid")
    return any(
        text_of(owner, "kind") == "Gateway" and text_of(owner, "uid") == uid
        for owner in items_of(found, "metadata", "ownerReferences")
    )


def objects_of(gateway: Resource, lookups: Lookups) -> tuple[dict[str, Any], ...]:
    """Return the Service of *gateway*, and an EndpointSlice for each family of addresses, the first one first."""
    name = service_name(gateway)
    numbers = sorted({listener.port for listener in all_listeners(gateway, lookups) if listener.is_accepted})
    ports = [{"name": f"port-{number}", "port": number, "protocol": "TCP"} for number in numbers]
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": _metadata(gateway, name),
        "spec": {"clusterIP": "None", "type": "ClusterIP", "ports": ports},
    }
    known = [text_of(entry, "value") for entry in items_of(gateway, "status", "addresses")]
    slices = (
        {
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": _metadata(gateway, f"{name}-{family.lower()}", **{
                "kubernetes.io/service-name": name,
                "endpointslice.kubernetes.io/managed-by": _MANAGER,
            }),
            "addressType": family,
            "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
            "ports": ports,
        }
        for family, addresses in (("IPv4", _addresses(known, 4)), ("IPv6", _addresses(known, 6)))
    )  # fmt: skip
    # A Service without ports may be none.
    return (service, *slices) if ports else ()


def _metadata(gateway: Resource, name: str, **labels: str) -> dict[str, Any]:
    infrastructure = dig(gateway, "spec", "infrastructure")
    own = {GATEWAY_LABEL: name_of(gateway), _CLASS_LABEL: text_of(gateway, "spec", "gatewayClassName")}
    owner = {
        "apiVersion": text_of(gateway, "apiVersion"),
        "kind": "Gateway",
        "name": name_of(gateway),
        "uid": text_of(gateway, "metadata", "uid"),
        "controller": True,
    }
    metadata: dict[str, Any] = {
        "name": name,
        "namespace": namespace_of(gateway),
        "labels": {
            **_texts(infrastructure, "labels"),
            **{label: value for label, value in own.items() if _LABEL_VALUE(value)},
            **labels,
        },
        "ownerReferences": [owner],
    }
    annotations = _texts(infrastructure, "annotations")
    return {**metadata, "annotations": annotations} if annotations else metadata


def _texts(value: Any, field: str) -> dict[str, str]:
    found = dig(value, field)
    return {str(key): str(text) for key, text in found.items()} if isinstance(found, Mapping) else {}


def _addresses(known: Iterable[str], version: int) -> list[str]:
    """Return the addresses that an EndpointSlice may have."""
    found = []
    for text in known:
        try:
            address = ipaddress.ip_address(text)
        except ValueError:
            continue
        is_unusable = address.is_loopback or address.is_link_local or address.is_multicast or address.is_unspecified
        if address.version == version and not is_unusable:
            found.append(str(address))
    return found
