"""What references to ports of Services mean, whatever else is said in the Service."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from haptic_trio.templating.emit import TemplateFaultError
from haptic_trio.templating.selection import dig
from haptic_trio.templating.views import ResourceView


class ServicePort(msgspec.Struct, frozen=True):
    """What a Service has for a reference to one of its ports."""

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
        for port in dig(found[0], "spec.ports", ()):
            if port.get("name") == self.name if self.name else port.get("port") == self.number:
                return ServicePort(is_there=True, is_external=is_external, number=port.get("port"))
        return ServicePort(is_there=True, is_external=is_external)


def service_port(services: Any, namespace: Any, name: Any, port: Any) -> ServicePort:
    """What a Service has for *port*, a name or number: `is_there`, `is_external`, `number` (none without that port).

    Who asks is rendered again when one of these changes; other changes of the
    Service cost nothing.
    """
    if not isinstance(services, ResourceView) or not isinstance(port, str | int):
        raise TemplateFaultError("service_port wants look-ups of Services, and the name or number of a port")
    asked = _PortNamed(str(port), 0) if isinstance(port, str) else _PortNamed("", port)
    return services.derive(asked, namespace, name)
