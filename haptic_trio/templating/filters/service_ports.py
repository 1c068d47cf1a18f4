"""Resolution of references to Service ports; an invalid reference raises `TemplateFaultError`."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.templating.filters.selection import dig
from haptic_trio.templating.values.faults import TemplateFaultError
from haptic_trio.templating.views import ResourceView


class ServicePort(msgspec.Struct, frozen=True):
    """A port of a Service, as found by a reference to it."""

    is_there: bool
    """Whether there is such a Service."""
    is_external: bool = False
    """Whether it is of the type ExternalName."""
    number: int | None = None
    """None without such a port."""


class _PortNamed(msgspec.Struct, frozen=True):
    """Asks for a port by its name or, if that is empty, by its number."""

    name: str
    number: int

    def __call__(self, found: Sequence[Mapping[str, Any]]) -> ServicePort:
        if not found:
            return ServicePort(is_there=False)
        is_external = dig(found[0], "spec.type", "") == "ExternalName"
        port = _ports_of(found[0]).get(self.name or self.number)
        return ServicePort(is_there=True, is_external=is_external, number=port)


_MOST_INDEXED: Final = 64
_indexed: Final[dict[int, tuple[Mapping[str, Any], dict[Any, Any]]]] = {}
"""Ports of the Services that were asked for last, by the identity of the Service."""


def _ports_of(service: Mapping[str, Any]) -> dict[Any, Any]:
    """Return the port numbers of *service* by name and by number: it may have as many as an Ingress has paths."""
    known = _indexed.get(id(service))
    if known is not None and known[0] is service:
        return known[1]
    numbers: dict[Any, Any] = {}
    for port in dig(service, "spec.ports", ()):
        number, name = port.get("port"), port.get("name")
        numbers.setdefault(number, number)
        if name:
            numbers.setdefault(name, number)
    if len(_indexed) >= _MOST_INDEXED:
        _indexed.clear()
    _indexed[id(service)] = service, numbers
    return numbers


def service_port(services: Any, namespace: Any, name: Any, port: Any) -> ServicePort:
    """Port of a Service by *port*, a name or number: `is_there`, `is_external`, `number` (none without that port).

    Who asks is rendered again when one of these changes; other changes of the
    Service cost nothing.
    """
    if not isinstance(services, ResourceView) or not isinstance(port, str | int):
        raise TemplateFaultError("service_port expects lookups of Services, and the name or number of a port")
    asked = _PortNamed(str(port), 0) if isinstance(port, str) else _PortNamed("", port)
    return services.derive(asked, namespace, name)


def by_port(slices: Iterable[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """EndpointSlices by name of a port (empty for an unnamed one), each with this port alone."""
    found: dict[str, list[dict[str, Any]]] = {}
    for one in slices:
        for port in dig(one, "ports", ()):
            found.setdefault(dig(port, "name", ""), []).append({**one, "ports": [port]})
    return found
