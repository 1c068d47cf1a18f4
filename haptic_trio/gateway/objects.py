"""Gateway API objects as plain data, and their lookup."""

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar, cast

from haptic_trio.errors import HapticError

GROUP: Final = "gateway.networking.k8s.io"
_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?").fullmatch

Resource: TypeAlias = Mapping[str, Any]
T = TypeVar("T")
_IDENTITY: Final = ("namespace", "name", "creationTimestamp")


class GatewayObjectError(HapticError):
    """An object cannot be expressed as configuration; permanent until the object changes."""


class Same(Generic[T]):
    """The result of a lookup, compared by identity: it stays the same until one of the objects changes."""

    __slots__ = ("found",)

    def __init__(self, found: T) -> None:
        self.found = found

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.found is other.found

    def __hash__(self) -> int:
        return id(self.found)


class Lookup(Protocol):
    """Lookup of one kind of object, for templates and status sources."""

    def list(self) -> Sequence[Any]:
        """Return all objects, ordered by namespace and name."""
        ...

    def get(self, *keys: Any) -> Sequence[Any]:
        """Return the objects found under *keys*."""
        ...


Lookups: TypeAlias = Mapping[str, Any]
"""A `Lookup` for each watched kind, by its name in the library."""


def dig(value: Any, *fields: str) -> Any:
    """Return the value at the path *fields* within *value*; None if any part of the path is absent."""
    for field in fields:
        # Comparing the type first is ten times as fast, and nearly all values are plain dictionaries.
        value = value.get(field) if type(value) is dict or isinstance(value, Mapping) else None
    return value


def items_of(value: Any, *fields: str) -> Sequence[Any]:
    """Return the list at the path *fields* within *value*; empty if it is absent or no list."""
    # As `dig`: a route asks for fifty fields.
    for field in fields:
        value = value.get(field) if type(value) is dict or isinstance(value, Mapping) else None
    return value if type(value) is list or isinstance(value, (list, tuple)) else ()


def text_of(value: Any, *fields: str) -> str:
    """Return the text at the path *fields* within *value*; empty if it is absent or not text."""
    # As `dig`, see `items_of`.
    for field in fields:
        value = value.get(field) if type(value) is dict or isinstance(value, Mapping) else None
    if type(value) is str:
        return value
    return str(value) if value is not None and isinstance(value, str | int) and not isinstance(value, bool) else ""


def namespace_of(resource: Resource) -> str:
    """Return the namespace of *resource*."""
    # A render asks for names a hundred times for each route: without loops and further calls in nearly all cases.
    metadata = resource.get("metadata") if type(resource) is dict else None
    found = metadata.get("namespace") if type(metadata) is dict else None
    return found if type(found) is str else text_of(resource, "metadata", "namespace")


def target_namespace(reference: Mapping[str, Any], owner: Resource) -> str:
    """Return the namespace of the object that *reference* of *owner* names: that of *owner* by default."""
    return text_of(reference, "namespace") or namespace_of(owner)


def name_of(resource: Resource) -> str:
    """Return the name of *resource*."""
    metadata = resource.get("metadata") if type(resource) is dict else None
    found = metadata.get("name") if type(metadata) is dict else None
    return found if type(found) is str else text_of(resource, "metadata", "name")


def generation_of(resource: Resource) -> int:
    """Return `metadata.generation` of *resource*, or 0."""
    found = dig(resource, "metadata", "generation")
    return found if isinstance(found, int) else 0


def age_of(resource: Resource) -> tuple[str, str, str]:
    """Return the sort key for conflicts between objects: the oldest first, then by namespace and name."""
    metadata = resource.get("metadata") if type(resource) is dict else None
    if type(metadata) is dict:
        created, namespace, name = metadata.get("creationTimestamp"), metadata.get("namespace"), metadata.get("name")
        if type(created) is str and type(namespace) is str and type(name) is str:
            return created, namespace, name
    # An object without a creation time, as in files, counts as the oldest.
    return text_of(resource, "metadata", "creationTimestamp"), namespace_of(resource), name_of(resource)


def single(lookups: Lookups, store: str, *keys: str) -> Resource | None:
    """Return the first object of *store* under *keys*; None if there is no such object or no such store."""
    lookup: Lookup | None = lookups.get(store)
    found = lookup.get(*keys) if lookup is not None and all(keys) else ()
    return found[0] if found else None


def found_in(lookups: Lookups, store: str, *keys: str) -> Sequence[Any]:
    """Return the objects of *store* under *keys*, or all objects without keys; none if there is no such store."""
    lookup: Lookup | None = lookups.get(store)
    if lookup is None:
        return ()
    return lookup.get(*keys) if keys else lookup.list()


def derived(lookups: Lookups, store: str, aspect: Callable[[Sequence[Any]], T], *keys: str) -> T:
    """Return *aspect* of the objects of *store* under *keys*, or of all objects without keys.

    If lookups are recorded, the dependent depends on this value only. So
    *aspect* must be a pure function of the objects; it must be hashable, and
    equal to any other that returns the same values.
    """
    derive = getattr(lookups.get(store), "derive", None)
    if derive is None:
        return aspect(found_in(lookups, store, *keys) if all(keys) else ())
    # Each route asks thirty times: a call of `cast` would be a tenth of this one.
    return derive(aspect, *keys)  # type: ignore[no-any-return]


def shared(lookups: Lookups, key: Hashable, compute: Callable[[], T]) -> T:
    """Return the result of *compute*; if lookups are recorded, it is called once a render for all that ask with *key*.

    *compute* does nothing but lookups; *key* identifies all its other input.
    """
    share = getattr(lookups.get("gateways"), "share", None)
    return compute() if share is None else cast("T", share(key, compute))


def hash_of(text: str, length: int = 32) -> str:
    """Return *length* hexadecimal digits of a hash of *text*, for names that would be too long or not valid."""
    return hashlib.sha256(text.encode()).hexdigest()[:length]


def identity_of(resource: Resource) -> tuple[Hashable, ...]:
    """Return a key for *resource* and its reductions of `bare_of`: equal for those with the same `spec`."""
    return (*age_of(resource), Same(resource.get("spec")))


def bare_in(lookups: Lookups, store: str, *keys: str) -> Sequence[Resource]:
    """Return the objects that `found_in` returns, reduced to kind, identity, creation time and `spec`.

    A change of labels, annotations or status then renders nothing again.
    """
    if hasattr(lookups.get(store), "derive"):
        return derived(lookups, store, bare_of, *keys)
    return found_in(lookups, store, *keys)


def bare(lookups: Lookups, store: str, *keys: str) -> Resource | None:
    """Return the object that `single` returns, reduced as by `bare_in`."""
    found = bare_in(lookups, store, *keys) if all(keys) else ()
    return found[0] if found else None


def bare_of(found: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return the objects *found*, reduced to kind, identity, creation time and `spec`."""
    return tuple(
        {
            "kind": text_of(resource, "kind"),
            "metadata": {field: text_of(resource, "metadata", field) for field in _IDENTITY},
            "spec": resource.get("spec"),
        }
        for resource in found
    )


def bare_by_age(found: Sequence[Resource]) -> tuple[Resource, ...]:
    """Return the reduced objects of `bare_of`, the oldest first."""
    return tuple(sorted(bare_of(found), key=age_of))


def by_namespace(found: Sequence[Resource]) -> Iterator[tuple[str, Sequence[Resource]]]:
    """Yield each namespace of the objects *found*, which a lookup has ordered by namespace, with its objects.

    It looks at few of the objects, however many a namespace has.
    """
    start = 0
    while start < len(found):
        namespace = namespace_of(found[start])
        end = bisect_right(found, namespace, start, key=namespace_of)
        yield namespace, found[start:end]
        start = end


def checked_name(text: str) -> str:
    """Return *text* if it is a Kubernetes name, or raise `GatewayObjectError`: it becomes part of a name or key."""
    if not _NAME(text):
        raise GatewayObjectError("invalid name: use lower-case letters, digits, '.' and '-'")
    return text
