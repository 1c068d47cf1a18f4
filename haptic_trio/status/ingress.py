"""Status source for Ingresses: the addresses that serve them."""

import ipaddress
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.k8s.resource import Resource, ResourceRef
from haptic_trio.status.sources import Status

_CLASS_ANNOTATION: Final = "kubernetes.io/ingress.class"
_DEFAULT_ANNOTATION: Final = "ingressclass.kubernetes.io/is-default-class"


class IngressClaim(msgspec.Struct, frozen=True, kw_only=True):
    """Selects the Ingresses that haptic-trio serves; same rule as `handles` of the `ingress` library."""

    class_name: str
    controller: str
    without_class: bool

    def covers(self, ingress: Resource, classes: Iterable[Resource]) -> bool:
        """Whether haptic-trio serves *ingress*, given all IngressClasses."""
        annotations = _dig(ingress, "metadata", "annotations")
        name = _dig(ingress, "spec").get("ingressClassName") or annotations.get(_CLASS_ANNOTATION) or ""
        if name == self.class_name:
            return True
        if name:
            return any(_name(each) == name and self._is_managed(each) for each in classes)
        return self.without_class or any(
            _dig(each, "metadata", "annotations").get(_DEFAULT_ANNOTATION) == "true"
            and (_name(each) == self.class_name or self._is_managed(each))
            for each in classes
        )

    def _is_managed(self, ingress_class: Resource) -> bool:
        return _dig(ingress_class, "spec").get("controller") == self.controller


class Addresses(msgspec.Struct, frozen=True):
    """External addresses of HAProxy."""

    entries: tuple[str, ...]
    """IP addresses and host names, in order."""

    @property
    def status(self) -> list[dict[str, str]]:
        """Value of `status.loadBalancer.ingress`."""
        return [{"ip": entry} if is_ip(entry) else {"hostname": entry} for entry in self.entries]


def addresses_of(service: Resource | None) -> Addresses:
    """Return the load balancer addresses of *service*, else its external IPs."""
    if service is None:
        return Addresses(())
    given = _dig(service, "status", "loadBalancer").get("ingress") or ()
    found = [entry.get("ip") or entry.get("hostname") for entry in given]
    return Addresses(tuple(dict.fromkeys(filter(None, found or _dig(service, "spec").get("externalIPs") or ()))))


def is_ip(text: str) -> bool:
    """Whether *text* is an IPv4 or IPv6 address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


class IngressStatus:
    """A `StatusSource` for Ingresses."""

    name = "ingress"
    is_shared = False

    def __init__(
        self,
        claim: IngressClaim,
        *,
        store: str,
        class_store: str,
        classes: Callable[[], Iterable[Resource]],
        addresses: Callable[[], Addresses | None],
    ) -> None:
        """*addresses* returns the current addresses, None while they are unknown.

        The caller calls `StatusWriter.compare_again` when they change.
        """
        self.store = store
        self.inputs: Sequence[str] = (class_store,)
        self._claim = claim
        self._classes = classes
        self._addresses = addresses

    @property
    def is_ready(self) -> bool:
        """See `StatusSource.is_ready`."""
        return self._addresses() is not None

    def wanted(self, resource: Resource) -> Status | None:
        """See `StatusSource.wanted`."""
        if not self._claim.covers(resource, self._classes()):
            return None
        return {"loadBalancer": {"ingress": self._own_entries()}}

    def related(self) -> Collection[ResourceRef]:
        """See `StatusSource.related`."""
        return ()

    def is_left_over(self, resource: Resource) -> bool:
        """See `StatusSource.is_left_over`."""
        present = _dig(resource, "status", "loadBalancer").get("ingress") or ()
        own = self._own_entries()
        return any({"ip": entry["ip"]} in own for entry in present if entry.get("ip")) or any(
            {"hostname": entry["hostname"]} in own for entry in present if entry.get("hostname")
        )

    def _own_entries(self) -> list[dict[str, str]]:
        return (self._addresses() or Addresses(())).status


def _name(resource: Resource) -> str:
    return str(_dig(resource, "metadata").get("name") or "")


def _dig(value: Any, *fields: str) -> Mapping[str, Any]:
    for field in fields:
        value = value.get(field) if isinstance(value, Mapping) else None
    return value if isinstance(value, Mapping) else {}
