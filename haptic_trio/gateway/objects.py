"""Gateway API objects as plain data, and their lookup."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from haptic_trio.errors import HapticError

GROUP: Final = "gateway.networking.k8s.io"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?").fullmatch

Resource: TypeAlias = Mapping[str, Any]
T = TypeVar("T")
_IDENTITY: Final = ("namespace", "name", "creationTimestamp")


class GatewayObjectError(HapticError):
    """An object cannot be expressed; trying again helps after it has changed."""


class Same(Generic[T]):
    """What a lookup found, compared by identity: it finds the same until one of the objects changes."""

    __slots__ = ("found",)

    def __init__(self, found: T) -> None:
        self.found = found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.found is other.found

    def __hash__(self) -> int:
        return id(self.found)


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
        # To ask for the type is ten times as fast, and nearly all are that.
        value = value.get(field) if type(value) is dict or isinstance(value, Mapping) else None
    return value


def items_of(value: Any, *fields: str) -> Sequence[Any]:
    """Return the list at *fields* within *value*; empty if there is none."""
    found = dig(value, *fields)
    return found if isinstance(found, (list, tuple)) else ()


def text_of(value: Any, *fields: str) -> str:
    """Return the text at *fields* within *value*; empty if there is none."""
    found = dig(value, *fields)
    if type(found) is str:
        return found
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


def derived(lookups: Lookups, store: str, aspect: Callable[[Sequence[Any]], T], *keys: str) -> T:
    """Return what *aspect* makes of the objects of *store* under *keys*, or of all; of none without the store.

    Where answers are recorded, who asked depends on this one alone. So
    *aspect* may depend on the objects alone; it is hashable, and equal to any
    other that makes the same of them.
    """
    derive = getattr(lookups.get(store), "derive", None)
    if derive is None:
        return aspect(found_in(lookups, store, *keys) if all(keys) else ())
    return cast("T", derive(aspect, *keys))


def bare_in(lookups: Lookups, store: str, *keys: str) -> Sequence[Resource]:
    """Return what `found_in` does, as far as a configuration may depend on it: what it is called, its age and its spec.

    Labels, annotations and status may change at no cost.
    """
    if hasattr(lookups.get(store), "derive"):
        return derived(lookups, store, bare_of, *keys)
    return found_in(lookups, store, *keys)


def bare(lookups: Lookups, store: str, *keys: str) -> Resource | None:
    """Return what `single` does, as far as a configuration may depend on it: see `bare_in`."""
    found = bare_in(lookups, store, *keys) if all(keys) else ()
    return found[0] if found else None


def bare_of(found: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return *found*, each as far as a configuration may depend on it."""
    return tuple(
        {
            "kind": text_of(resource, "kind"),
            "metadata": {field: text_of(resource, "metadata", field) for field in _IDENTITY},
            "spec": resource.get("spec"),
        }
        for resource in found
    )


def bare_by_age(found: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return what `bare_of` does, the oldest first."""
    return tuple(sorted(bare_of(found), key=age_of))


def checked_name(text: str) -> str:
    """Return *text* if it is a Kubernetes name, or raise `GatewayObjectError`: it becomes part of a name or key."""
    if not _NAME(text):
        raise GatewayObjectError("invalid name: use lower-case letters, digits, '.' and '-'")
    return text
