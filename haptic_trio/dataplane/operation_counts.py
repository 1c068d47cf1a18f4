"""Number of runtime operations of each kind, in the words of operators."""

from collections.abc import Iterable
from typing import Final

from haptic_trio.haproxy.plan import operations as o

_KINDS: Final[dict[type[o.Operation], str]] = {
    o.SetServerAddress: "server changed",
    o.SetServerWeight: "server changed",
    o.SetServerState: "server changed",
    o.AddServer: "server added",
    o.DeleteServer: "server removed",
    o.AddBackend: "backend added",
    o.DeleteBackend: "backend removed",
    o.StoreCertificate: "certificate stored",
    o.DeleteCertificate: "certificate removed",
    o.StoreTrust: "CA file stored",
    o.AddCrtListEntry: "crt-list entry added",
    o.DeleteCrtListEntry: "crt-list entry removed",
    o.AddMapEntry: "map entry added",
    o.SetMapEntry: "map entry changed",
    o.DeleteMapEntry: "map entry removed",
    o.ReplaceMap: "map replaced",
    o.AddAclEntry: "ACL entry added",
    o.DeleteAclEntry: "ACL entry removed",
    o.ReplaceAcl: "ACL replaced",
}
"""Operations that only accompany another one, such as `EnableChecks`, are absent."""


def count_operations(operations: Iterable[o.Operation]) -> dict[str, int]:
    """Return the number of *operations* by kind, such as `{"server added": 2}`; a server counts once per kind."""
    found: dict[str, int] = {}
    servers: set[tuple[str, str, str]] = set()
    for operation in operations:
        kind = _KINDS.get(type(operation))
        if kind is None:
            continue
        match operation:
            case (
                o.SetServerAddress(backend, server)
                | o.SetServerWeight(backend, server)
                | o.SetServerState(backend, server)
            ):
                # An address and a weight of one server are one change for those who read it.
                if (kind, backend, server) in servers:
                    continue
                servers.add((kind, backend, server))
        found[kind] = found.get(kind, 0) + 1
    return found
