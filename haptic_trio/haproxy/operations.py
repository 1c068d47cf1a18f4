"""What a running HAProxy can be told without a reload, as data."""

from typing import TypeAlias

import msgspec


class SetServerAddress(msgspec.Struct, frozen=True, tag=True):
    """Point a server elsewhere."""

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


Operation: TypeAlias = (
    SetServerAddress | SetServerWeight | SetServerState | AddMapEntry | SetMapEntry | DeleteMapEntry | ReplaceMap
)


class Plan(msgspec.Struct, frozen=True):
    """How to get from one generation to another.

    The files on disk always become the desired ones. With `reasons` a reload
    takes them in; without, `operations` bring the running process to the
    same state.
    """

    operations: tuple[Operation, ...] = ()
    reasons: tuple[str, ...] = ()
    """Why a reload is needed, such as `backend web: directive 'balance' changed`; empty when none is."""

    @property
    def reloads(self) -> bool:
        """Whether a reload is needed."""
        return bool(self.reasons)
