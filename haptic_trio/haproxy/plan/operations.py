"""Runtime operations as data: changes that HAProxy applies without a reload."""

from typing import TypeAlias

import msgspec


class SetServerAddress(msgspec.Struct, frozen=True, tag=True):
    """Change the address of a server."""

    backend: str
    server: str
    address: str
    port: int


class SetServerWeight(msgspec.Struct, frozen=True, tag=True):
    """Change a server's weight, 0 to 256."""

    backend: str
    server: str
    weight: int


class SetServerState(msgspec.Struct, frozen=True, tag=True):
    """Put a server into `ready`, `drain` or `maint`."""

    backend: str
    server: str
    state: str


class AddMapEntry(msgspec.Struct, frozen=True, tag=True):
    """Add a key to a map."""

    map: str
    key: str
    value: str


class SetMapEntry(msgspec.Struct, frozen=True, tag=True):
    """Change the value of a key in a map."""

    map: str
    key: str
    value: str


class DeleteMapEntry(msgspec.Struct, frozen=True, tag=True):
    """Remove a key from a map."""

    map: str
    key: str


class ReplaceMap(msgspec.Struct, frozen=True, tag=True):
    """Replace all entries of a map in one atomic, versioned transaction."""

    map: str
    entries: tuple[tuple[str, str], ...]


class AddAclEntry(msgspec.Struct, frozen=True, tag=True):
    """Add a key to the list of an ACL."""

    acl: str
    """The file of the list."""
    key: str


class DeleteAclEntry(msgspec.Struct, frozen=True, tag=True):
    """Remove a key from the list of an ACL; of a repeated key, HAProxy versions remove one or both."""

    acl: str
    key: str


class ReplaceAcl(msgspec.Struct, frozen=True, tag=True):
    """Replace all keys in the list of an ACL in one atomic, versioned transaction."""

    acl: str
    keys: tuple[str, ...]


class AddServer(msgspec.Struct, frozen=True, tag=True):
    """Add a server, which stays in maintenance until it is made ready."""

    backend: str
    server: str
    address: str
    """As in a configuration, such as `[::1]:80`."""
    options: tuple[str, ...] = ()
    """Words of a `server` line after the address; `default-server` does not apply."""


class EnableChecks(msgspec.Struct, frozen=True, tag=True):
    """Start the checks of an added server."""

    backend: str
    server: str
    agent: bool = False
    """Start the agent check instead of the health check."""


class DeleteServer(msgspec.Struct, frozen=True, tag=True):
    """Put a server into maintenance, and delete it once it is no longer in use."""

    backend: str
    server: str


class AddBackend(msgspec.Struct, frozen=True, tag=True):
    """Add a backend with all settings of a named defaults section; without servers, and unpublished."""

    backend: str
    defaults: str
    mode: str


class PublishBackend(msgspec.Struct, frozen=True, tag=True):
    """Let rules choose an added backend."""

    backend: str


class UnpublishBackend(msgspec.Struct, frozen=True, tag=True):
    """Keep rules from choosing a backend."""

    backend: str


class DeleteBackend(msgspec.Struct, frozen=True, tag=True):
    """Delete an unpublished backend without servers, once it is no longer in use."""

    backend: str


class StoreCertificate(msgspec.Struct, frozen=True, tag=True):
    """Store the content of a certificate file in the process."""

    path: str
    content: bytes
    is_new: bool = False
    """Whether the process does not know the file yet."""

    def __repr__(self) -> str:
        # The content holds a private key.
        return f"StoreCertificate({self.path!r}, {len(self.content)} bytes, is_new={self.is_new})"


class DeleteCertificate(msgspec.Struct, frozen=True, tag=True):
    """Remove an unused certificate file from the process."""

    path: str


class StoreTrust(msgspec.Struct, frozen=True, tag=True):
    """Store the content of a file of certificate authorities or revocations in the process."""

    kind: str
    """`ca-file` or `crl-file`."""
    path: str
    content: bytes


class AddCrtListEntry(msgspec.Struct, frozen=True, tag=True):
    """Append a line to a crt-list; its certificate must be known."""

    crt_list: str
    line: str


class DeleteCrtListEntry(msgspec.Struct, frozen=True, tag=True):
    """Remove the oldest line with a certificate from a crt-list."""

    crt_list: str
    certificate: str


Removal: TypeAlias = DeleteServer | DeleteBackend
"""Operations that may have to wait until the object is no longer in use."""

Operation: TypeAlias = (
    SetServerAddress
    | SetServerWeight
    | SetServerState
    | AddServer
    | EnableChecks
    | DeleteServer
    | AddBackend
    | PublishBackend
    | UnpublishBackend
    | DeleteBackend
    | StoreCertificate
    | DeleteCertificate
    | StoreTrust
    | AddCrtListEntry
    | DeleteCrtListEntry
    | AddMapEntry
    | SetMapEntry
    | DeleteMapEntry
    | ReplaceMap
    | AddAclEntry
    | DeleteAclEntry
    | ReplaceAcl
)


class Plan(msgspec.Struct, frozen=True):
    """Plan from one generation to another: operations, or reasons for a reload.

    The files on disk always become the desired ones. With `reasons`, HAProxy
    loads them by a reload; without, `operations` bring the running process to
    the same state. `haptic_trio.haproxy.plan.split` splits a mixed change
    into a plan of each kind.
    """

    operations: tuple[Operation, ...] = ()
    reasons: tuple[str, ...] = ()
    """Reasons for a reload, such as `backend web: directive 'balance' changed`; empty if none is needed."""
    causes: frozenset[str] = frozenset()
    """Namespaces of the changes that need the reload; see `haptic_trio.haproxy.causes`."""
    affected: frozenset[str] = frozenset()
    """Namespaces of all changes that the reload applies."""

    @property
    def reloads(self) -> bool:
        """Whether a reload is needed."""
        return bool(self.reasons)
