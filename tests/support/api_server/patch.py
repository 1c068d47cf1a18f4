"""Patches of the in-process API server: JSON merge patch, and server-side apply with lists as single values."""

from collections.abc import Iterator, Mapping
from typing import Any

from haptic_trio.k8s.resource import Resource
from tests.support.api_server.state import StatusError

FieldPath = tuple[str, ...]
Owners = dict[str, set[FieldPath]]
"""Which manager has applied which fields."""

_IDENTITY = {("apiVersion",), ("kind",), ("metadata", "name"), ("metadata", "namespace")}


def merge(target: Any, patch: Any) -> Any:
    """Return *target* with a JSON merge patch (RFC 7396) applied."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge(result.get(key), value)
    return result


def apply(current: Resource | None, wanted: Resource, owners: Owners, manager: str, *, force: bool) -> Resource:
    """Return what server-side apply makes of *current*, and bring *owners* up to date.

    Simpler than the real one: a list is one value.
    """
    fields = {path: value for path, value in _leaves(wanted) if path not in _IDENTITY}
    result: Resource = dict(current) if current is not None else {}
    for path, value in fields.items():
        others = [other for other, owned in owners.items() if other != manager and path in owned]
        if others and _at(result, path) != value:
            if not force:
                raise StatusError(
                    409, "Conflict", f"Apply failed with 1 conflict: conflict with {others[0]!r}: .{'.'.join(path)}"
                )
            for other in others:
                owners[other].discard(path)
    for path in owners.get(manager, set()) - fields.keys():
        if not any(path in owned for other, owned in owners.items() if other != manager):
            result = _without(result, path)
    owners[manager] = set(fields)
    return dict(merge(result, wanted))


def note_update(owners: Owners, before: Resource, after: Resource, manager: str) -> None:
    """Make *manager* the owner of the fields that it has changed by other means than apply."""
    old = dict(_leaves(before))
    changed = {path for path, value in _leaves(after) if old.get(path) != value and path[0] != "metadata"}
    if changed:
        for owned in owners.values():
            owned.difference_update(changed)
        owners.setdefault(manager, set()).update(changed)


def _leaves(value: Mapping[str, Any], path: FieldPath = ()) -> Iterator[tuple[FieldPath, Any]]:
    for key, inner in value.items():
        if isinstance(inner, dict) and inner:
            yield from _leaves(inner, (*path, key))
        else:
            yield (*path, key), inner


def _at(value: Any, path: FieldPath) -> Any:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _without(value: Any, path: FieldPath) -> Any:
    if not isinstance(value, dict) or path[0] not in value:
        return value
    rest = {key: inner for key, inner in value.items() if key != path[0]}
    if len(path) > 1:
        rest[path[0]] = _without(value[path[0]], path[1:])
    return rest
