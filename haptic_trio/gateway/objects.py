"""Gateway API objects as plain data, and how they are looked up."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from haptic_trio.errors import HapticError

GROUP: Final = "gateway.networking.k8s.io"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?").fullmatch

Resource: TypeAlias = Mapping[str, Any]


class GatewayObjectError(HapticError):
    """An object cannot be expressed; trying again helps after it has changed."""


class Lookup(Protocol):
    """A kind of object, as templates and status sources may ask for it."""

    def list(self) -> Sequence[Any]:
        """Return all objects, ordered by namespace and name."""
        ...

    def get(self, *keys: Any) -> Sequence[Any]:
        """Return the objects found under *keys*."""
        ...


Lookups: TypeAlias = Mapping[str, Any]
"""A `Lookup` for each watched kind, by its name in the library."""


def dig(value: Any, *fields: str) -> Any:
    """Return what is at *fields* within *value*; None where anything on the way is absent."""
    for field in fields:
        value = value.get(field) if isinstance(value, Mapping) else None
    return value


def items_of(value: Any, *fields: str) -> Sequence[Any]:
    """Return the list at *fields* within *value*; empty if there is none."""
    found = dig(value, *fields)
    return found if isinstance(found, list | tuple) else ()


def text_of(value: Any, *fields: str) -> str:
    """Return the text at *fields* within *value*; empty if there is none."""
    found = dig(value, *fields)
    return str(found) if isinstance(found, str | int) and not isinstance(found, bool) else ""


def namespace_of(resource: Resource) -> str:
    """Return the namespace of *resource*."""
    return text_of(resource, "metadata", "namespace")


def name_of(resource: Resource) -> str:
    """Return the name of *resource*."""
    return text_of(resource, "metadata", "name")


def age_of(resource: Resource) -> tuple[str, str, str]:
    """Return what objects are ordered by when they compete: the oldest first, then by namespace and name."""
    # Without a creation time, which a file may lack, an object is the oldest.
    return text_of(resource, "metadata", "creationTimestamp"), namespace_of(resource), name_of(resource)


def single(lookups: Lookups, store: str, *keys: str) -> Resource | None:
    """Return the object of *store* under *keys*; None without one, or without the store."""
    lookup: Lookup | None = lookups.get(store)
    found = lookup.get(*keys) if lookup is not None and all(keys) else ()
    return found[0] if found else None


def found_in(lookups: Lookups, store: str, *keys: str) -> Sequence[Any]:
    """Return the objects of *store* under *keys*, all of them without keys; none without the store."""
    lookup: Lookup | None = lookups.get(store)
    if lookup is None:
        return ()
    return lookup.get(*keys) if keys else lookup.list()


def checked_name(text: str) -> str:
    """Return *text* if it is a Kubernetes name, or raise `GatewayObjectError`: it becomes part of a name or key."""
    if not _NAME(text):
        raise GatewayObjectError("a name has other characters than lower-case letters, digits, '.' and '-'")
    return text
