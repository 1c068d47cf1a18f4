"""Computed lookup keys of routes, for `indexBy`: JSONPath filters over every route would cost more than its output."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from haptic_trio.gateway.extensions import has_extensions
from haptic_trio.gateway.objects import dig, items_of, text_of
from haptic_trio.gateway.paths import normal_path
from haptic_trio.gateway.routes.matches import REGEX
from haptic_trio.jsonpath import Path


def _names(references: Any) -> Iterator[Any]:
    for reference in references:
        if (name := dig(reference, "name")) is not None:
            yield name


def _has_hostnames(route: Any) -> bool:
    return bool(items_of(route, "spec", "hostnames"))


def _path_of(match: Any) -> Any:
    """Return what the map of paths has for *match*: the path of an HTTPRoute, the service of a GRPCRoute.

    None for a regular expression: all expressions of a host belong to one entry, that of the root.
    """
    for field, value in (("path", "value"), ("method", "service")):
        found = dig(match, field, value)
        if found is not None:
            return None if text_of(match, field, "type") == REGEX else _normal(found)
    return None


def _normal(path: Any) -> Any:
    return normal_path(path) if isinstance(path, str) else path


def _needs_own_backend(rule: Any) -> bool:
    return dig(rule, "retry") is not None or dig(rule, "sessionPersistence") is not None or has_extensions(rule)


def find_retried_services(route: Any) -> list[Any]:
    """Return the names of the Services in rules of *route* with retries, session persistence or extension filters."""
    rules = [rule for rule in items_of(route, "spec", "rules") if _needs_own_backend(rule)]
    return [name for rule in rules for name in _names(items_of(rule, "backendRefs"))]


def find_paths(route: Any) -> list[Any]:
    """Return the paths of *route* in their normal form: all spellings of a path have one key."""
    matches = (match for rule in items_of(route, "spec", "rules") for match in items_of(rule, "matches"))
    return [_normal(path) for match in matches if (path := dig(match, "path", "value")) is not None]


def find_paths_of_any_host(route: Any) -> list[Any]:
    """Return the paths of *route* in their normal form, or the services of a GRPCRoute, if it has no host names."""
    if _has_hostnames(route):
        return []
    paths = [_path_of(match) for rule in items_of(route, "spec", "rules") for match in items_of(rule, "matches")]
    return [path for path in paths if path is not None]


def find_parents_without_hostnames(route: Any) -> list[Any]:
    """Return the names of the parents of *route* if it has no host names."""
    return [] if _has_hostnames(route) else [*_names(items_of(route, "spec", "parentRefs"))]


def find_parents_without_path(route: Any) -> list[Any]:
    """Return the names of the parents of *route* if a rule has no match, or one without a path or by an expression."""
    for rule in items_of(route, "spec", "rules"):
        matches = items_of(rule, "matches")
        if not matches or any(_path_of(match) is None for match in matches):
            return [*_names(items_of(route, "spec", "parentRefs"))]
    return []


ROUTE_KEYS: Final[Mapping[str, Path]] = {
    name: Path(name, None, find)
    for name, find in {
        "route_retried_services()": find_retried_services,
        "route_paths()": find_paths,
        "route_paths_of_any_host()": find_paths_of_any_host,
        "route_parents_without_hostnames()": find_parents_without_hostnames,
        "route_parents_without_path()": find_parents_without_path,
    }.items()
}
