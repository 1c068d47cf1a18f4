"""Field lists of Kubernetes kinds, and the check of manifests by them.

`tools.kubernetes_schemas` generates the lists. Kinds of other groups, such as
CRDs, are not checked, except those of the Gateway API.
"""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from haptic_trio.errors import Problem
from haptic_trio.k8s.kinds import group_of
from haptic_trio.k8s.resource import Resource, ref_of

FILE: Final = Path(__file__).with_name("schemas.json")
_MOST: Final = 20
"""Maximum number of problems of one object."""
_MOST_SHOWN: Final = 80
"""Characters of a value in a message."""
_SECRET: Final = "Secret"  # noqa: S105  a kind of object
_REMOVED_GROUPS: Final = frozenset({"extensions"})
_TYPES: Final[Mapping[str, tuple[type, ...]]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "array": (list,),
}
_HINTS: Final = {"string": "put it in quotes", "integer": "write a number without quotes"}


class Schema(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Type and fields of a value."""

    type: str = ""
    """Empty: any value."""
    fields: dict[str, "Schema"] = {}
    items: "Schema | None" = None
    """Of an array."""
    values: "Schema | None" = None
    """Of an object with any keys."""
    enum: tuple[str, ...] = ()


class Catalogue(msgspec.Struct, frozen=True, kw_only=True):
    """Known kinds and schemas."""

    kinds: dict[str, tuple[str, ...]]
    """By kind: the API versions that serve it."""
    schemas: dict[str, Schema]
    """By API version and kind, such as `v1 Service`."""

    @property
    def groups(self) -> frozenset[str]:
        """API groups of the kinds."""
        return frozenset(group_of(known) for versions in self.kinds.values() for known in versions)


class _Fault(NamedTuple):
    path: str
    message: str
    hint: str = ""
    value: str = ""
    """The value at the end of the message, if any."""


@cache
def shipped_catalogue() -> Catalogue:
    """Return the generated catalogue."""
    return msgspec.json.decode(FILE.read_bytes(), type=Catalogue)


def check_manifests(resources: Iterable[Resource]) -> Iterator[Problem]:
    """Yield a problem for each field and kind of *resources* that a cluster would reject."""
    for resource in resources:
        yield from check_manifest(resource)


def check_manifest(resource: Resource) -> Iterator[Problem]:
    """Yield a problem for each field of *resource* that a cluster would reject, or one for its kind."""
    catalogue = shipped_catalogue()
    faults = _check_kind(catalogue, resource)
    if faults is None:
        schema = catalogue.schemas.get(f"{resource['apiVersion']} {resource['kind']}")
        faults = _check(schema, resource, "") if schema is not None else iter(())
    for number, fault in enumerate(faults):
        if number == _MOST:
            break
        message = fault.message
        if resource["kind"] == _SECRET and fault.value:
            message = message.removesuffix(fault.value).removesuffix(", not ")
        yield Problem(message=message, path=fault.path, hint=fault.hint, subject=str(ref_of(resource)))


def _check_kind(catalogue: Catalogue, resource: Resource) -> Iterator[_Fault] | None:
    """Return the fault of the kind of *resource*; None if it is served or unknown."""
    version, kind = str(resource["apiVersion"]), str(resource["kind"])
    group = group_of(version)
    served = catalogue.kinds.get(kind, ())
    if version in served or group not in catalogue.groups | _REMOVED_GROUPS:
        return None
    if group == "gateway.networking.k8s.io" and served:
        # Its versions depend on the installed CRDs.
        return None
    if served:
        message = f"{kind} is not served in {version}"
        return iter([_Fault("apiVersion", message, f"write apiVersion: {' or '.join(served)}")])
    in_group = [name for name, versions in catalogue.kinds.items() if any(group_of(one) == group for one in versions)]
    near = get_close_matches(kind, in_group, 1) or get_close_matches(kind, catalogue.kinds, 1)
    hint = f"did you mean `{near[0]}`?" if near else ""
    return iter([_Fault("kind", f"there is no kind {kind!r} in {version}", hint)])


def _check(schema: Schema, value: Any, path: str) -> Iterator[_Fault]:
    if value is None or not schema.type:
        return
    expected = _TYPES.get(schema.type, (object,))
    if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
        shown = _shown(value)
        yield _Fault(path, f"expected {schema.type}, not {shown}", _HINTS.get(schema.type, ""), shown)
    elif schema.enum and value not in schema.enum:
        near = get_close_matches(str(value), schema.enum, 1)
        hint = f"did you mean `{near[0]}`?" if near else ""
        yield _Fault(path, f"{_shown(value)} is not one of {', '.join(schema.enum)}", hint)
    elif isinstance(value, list) and schema.items is not None:
        for index, item in enumerate(value):
            yield from _check(schema.items, item, f"{path}[{index}]")
    elif isinstance(value, dict):
        yield from _check_fields(schema, value, path)


def _check_fields(schema: Schema, value: dict[str, Any], path: str) -> Iterator[_Fault]:
    for name, inner in value.items():
        place = f"{path}.{name}" if path else str(name)
        if schema.fields and name not in schema.fields:
            near = get_close_matches(str(name), schema.fields, 1)
            yield _Fault(place, "unknown field", f"did you mean `{near[0]}`?" if near else _listed(schema.fields))
        elif schema.fields:
            yield from _check(schema.fields[name], inner, place)
        elif schema.values is not None:
            yield from _check(schema.values, inner, place)


def _listed(fields: Iterable[str]) -> str:
    return f"valid are: {', '.join(fields)}"


def _shown(value: Any) -> str:
    text = f"{type(value).__name__} {value!r}" if not isinstance(value, dict | list) else type(value).__name__
    text = {"dict": "a mapping", "list": "a list"}.get(text, text.removeprefix("str "))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}…"
