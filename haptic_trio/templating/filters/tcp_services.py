"""Filter for the ConfigMap with TCP services: `PORT: namespace/service:port[:PROXY[:PROXY[:namespace/secret]]]`.

ingress-nginx and HAProxy Ingress share this notation. The fields are data:
emitters write them.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from haptic_trio.gateway.listeners.port_rules import port_range
from haptic_trio.templating.values.faults import TemplateFaultError

_PORT: Final = re.compile(r"[1-9][0-9]{0,4}").fullmatch
_LABEL: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
_SERVICE: Final = re.compile(rf"({_LABEL})/({_LABEL})").fullmatch
_TARGET: Final = re.compile(r"[1-9][0-9]{0,4}|[a-z0-9](?:[a-z0-9-]{0,13}[a-z0-9])?").fullmatch
_SECRET: Final = re.compile(rf"({_LABEL})/([a-z0-9](?:[a-z0-9.-]{{0,251}}[a-z0-9])?)").fullmatch
_SENT: Final = {"": "", "PROXY": "v1", "PROXY-V1": "v1", "PROXY-V2": "v2"}
_NOTATION: Final = "write namespace/service:port[:PROXY[:PROXY[:namespace/secret]]]"
_MOST_SHOWN: Final = 80


class TcpService(NamedTuple):
    """An entry of the ConfigMap; with a problem, only *key* and *problem* have a meaning."""

    key: str
    """As written, shortened."""
    port: int = 0
    """Port that HAProxy listens on."""
    namespace: str = ""
    service: str = ""
    target: str = ""
    """Name or number of the Service's port."""
    accepts_proxy: bool = False
    """Whether connections begin with the PROXY protocol."""
    sends_proxy: str = ""
    """Version of the PROXY protocol for the Service: `v1` or `v2`; empty: none."""
    secret: tuple[str, ...] = ()
    """Namespace and name of the TLS Secret; empty: connections are not terminated."""
    problem: str = ""
    """Why the entry is not served."""


def tcp_services(data: Any, allowed: Iterable[Any], reserved: Iterable[Any]) -> list[TcpService]:
    """Entries of a ConfigMap's *data*, in order of their ports; one that cannot be served has a `problem`.

    An entry may use the ports and ranges *allowed*, except *reserved*. Raises
    TemplateFaultError unless *data* is a mapping.
    """
    if not isinstance(data, Mapping):
        raise TemplateFaultError("tcp_services expects the data of a ConfigMap")
    ranges = [port_range(one) for one in allowed]
    taken = {int(port) for port in reserved if port}

    def read(key: str, value: Any) -> TcpService:
        shown = key[:_MOST_SHOWN]
        if not _PORT(key) or int(key) > 65_535:
            return TcpService(shown, problem="its key is not a port from 1 to 65535")
        port = int(key)
        if not any(first <= port <= last for first, last in ranges):
            return TcpService(shown, problem=f"the administrator does not allow port {port} (tcpServicePorts)")
        if port in taken:
            return TcpService(shown, problem=f"port {port} is reserved (gatewayReservedPorts), or of another frontend")
        return _read_value(shown, port, value if isinstance(value, str) else "")

    found = [read(str(key), value) for key, value in data.items()]
    return sorted(found, key=lambda entry: (entry.port, entry.key))


def _read_value(key: str, port: int, value: str) -> TcpService:
    fields = [field.strip() for field in value.split(":")]
    place, target, accepted, sent, secret, *others = [*fields, *[""] * (5 - len(fields))]
    service, tls = _SERVICE(place), _SECRET(secret)
    if service is None or not _TARGET(target):
        return TcpService(key, problem=f"{value[:_MOST_SHOWN]!r} does not name a Service and its port; {_NOTATION}")
    if accepted not in {"", "PROXY"}:
        return TcpService(key, problem=f"the field behind the port is {accepted[:_MOST_SHOWN]!r}, not PROXY or empty")
    if sent not in _SENT:
        return TcpService(
            key, problem=f"the fourth field is {sent[:_MOST_SHOWN]!r}, not PROXY, PROXY-V1, PROXY-V2 or empty"
        )
    if (secret and tls is None) or any(others):
        # A field that is ignored could be a check of client certificates.
        return TcpService(key, problem=f"it has a field that is not supported; {_NOTATION}")
    return TcpService(
        key,
        port,
        service[1],
        service[2],
        target,
        accepts_proxy=bool(accepted),
        sends_proxy=_SENT[sent],
        secret=(tls[1], tls[2]) if tls else (),
    )
