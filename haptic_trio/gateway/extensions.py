"""Filters of the administrator, which routes name by `extensionRef`.

A filter is a template snippet `gateway-filter-NAME` or `gateway-shared-filter-NAME`. The setting `gatewayFilters`
lists the namespaces whose routes may name it.
"""

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import msgspec

from haptic_trio.gateway.objects import (
    Resource,
    checked_name,
    dig,
    items_of,
    name_of,
    namespace_of,
    target_namespace,
    text_of,
)

Allowed = Mapping[str, Sequence[str]]
"""The namespaces whose routes may name a filter, by the name of the filter; `*` stands for all."""

NO_FILTERS: Final[Allowed] = MappingProxyType({})
EXTENSION: Final = "ExtensionRef"
GROUP: Final = "haptic-trio.io"
KIND: Final = "Filter"
ANNOTATED: Final = "access"
"""The filter of the library `haptic-annotations`, for the annotations of the route."""
SNIPPETS: Final = ("gateway-filter-", "gateway-shared-filter-")
"""Prefixes of the names of the snippets of filters; the second one is for those that are the same for all routes."""
SUPPORTED: Final = frozenset({
    "CORS", "RequestHeaderModifier", "RequestMirror", "RequestRedirect", "ResponseHeaderModifier", "URLRewrite",
})  # fmt: skip
"""Types of other filters that have an effect."""
_NAME: Final = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?").fullmatch
_MOST_NAMES: Final = 20


class FilterProblem(msgspec.Struct, frozen=True):
    """Problem of a reference that is not resolved; requests of its rule are answered with 500."""

    reason: str
    message: str


def allowed_filters(settings: Mapping[str, Any]) -> Allowed:
    """Return the setting `gatewayFilters` among *settings* of the libraries."""
    return settings.get("gatewayFilters") or NO_FILTERS


def closed_text(problem: object) -> str:
    """Return the message for the owner of a rule that is answered with 500 because of *problem*."""
    return f"{problem}; requests of the rule are answered with 500"


def filter_owners(rule: Any) -> tuple[Any, ...]:
    """Return what may have filters: *rule* itself, and its backend references."""
    return (rule, *items_of(rule, "backendRefs"))


def references_in(filters: Iterable[Any]) -> Iterator[tuple[int, Any]]:
    """Yield position and `extensionRef` of those of *filters* that have one."""
    for position, item in enumerate(filters):
        if text_of(item, "type") == EXTENSION:
            yield position, dig(item, "extensionRef")


def filters_of(owner: Any) -> tuple[str, ...]:
    """Return the filters that *owner*, a rule or a backend reference, names, each once; allowed or not."""
    found = references_in(items_of(owner, "filters"))
    return tuple(dict.fromkeys(text_of(one, "name") for _, one in found if not _kind_problem(one)))


def all_filters_of(rule: Any) -> tuple[str, ...]:
    """Return the names of the filters of *rule* and of its backends."""
    return tuple(dict.fromkeys(name for owner in filter_owners(rule) for name in filters_of(owner)))


def has_extensions(rule: Any) -> bool:
    """Whether *rule* or a backend of it has a reference to a filter, resolved or not."""
    return any(True for owner in filter_owners(rule) for _ in references_in(items_of(owner, "filters")))


def has_guards(rule: Any) -> bool:
    """Whether *rule* or a backend of it has a filter that may guard access, supported or not."""
    return any(True for owner in filter_owners(rule) for _ in _guards_in(items_of(owner, "filters")))


def _guards_in(filters: Iterable[Any]) -> Iterator[str]:
    """Yield a name for each of *filters* that may guard access: extension filters, and types that are not supported.

    The latter, such as `ExternalAuth`, are answered with 500.
    """
    for item in filters:
        kind = text_of(item, "type")
        if kind == EXTENSION:
            yield _full_name(dig(item, "extensionRef"))
        elif kind not in SUPPORTED:
            yield f"type {kind}"


def guards_of(route: Resource) -> list[str]:
    """Return what may guard access to *route*, for the template function `guarded`; empty without such filters.

    A former version has them all if it has each of these filters, for the same match, and all host names, and if it
    left no request unfiltered by an earlier rule with this match, by another backend of the rule, or by any rule where
    no rule does so now. Whether the filters are allowed does not matter.
    """
    found: set[str] = set()
    matched: set[str] = set()
    is_open = False
    for rule in items_of(route, "spec", "rules"):
        names = set(_guards_in(items_of(rule, "filters")))
        is_open_behind = not names
        references = items_of(rule, "backendRefs")
        behind = sorted(
            (target_namespace(backend, route), text_of(backend, "name"), text_of(backend, "port"), one)
            for backend in references
            for one in _guards_in(items_of(backend, "filters"))
        )
        if behind:
            names.add(f"of backends {_digest(behind)}")
            if all(any(True for _ in _guards_in(items_of(backend, "filters"))) for backend in references):
                names.add(f"of all backends {_digest(behind)}")
                is_open_behind = False
        is_open = is_open or is_open_behind
        places = {_digest(match) for match in items_of(rule, "matches") or ({},)}
        found.update(f"filter {name} for {place}" for name in names for place in places)
        found.update(f"filter {name} first for {place}" for name in names for place in places - matched)
        matched |= places
    if found:
        found.update(f"filters for the host {host}" for host in items_of(route, "spec", "hostnames") or ("*",))
        if not is_open:
            found.add("filters of all rules")
    return sorted(found)


def _full_name(reference: Any) -> str:
    return "/".join(text_of(reference, field) for field in ("group", "kind", "name"))


def _digest(value: Any) -> str:
    return hashlib.sha256(msgspec.json.encode(value, order="deterministic")).hexdigest()


def backend_suffix(route: Resource, kind: str, filters: Sequence[str]) -> str:
    """Return the suffix of the backends of *route* with *filters*: no other route has them.

    Raises `GatewayObjectError` if namespace and name are no Kubernetes names.
    """
    if not filters:
        return ""
    return f"::{kind}_{checked_name(namespace_of(route))}_{checked_name(name_of(route))}::{'.'.join(filters)}"


def problem_of(reference: Any, namespace: str, allowed: Allowed) -> FilterProblem | None:
    """Return why *reference* of a route in *namespace* is not resolved; None if it is."""
    name = text_of(reference, "name")
    known = sorted(one for one in allowed if is_allowed(one, namespace, allowed))
    if unknown := _kind_problem(reference):
        return FilterProblem("InvalidKind", f"{unknown}; {_listed(known)}")
    if name not in allowed:
        return FilterProblem("BackendNotFound", f"there is no filter {name}; {_listed(known)}")
    if name not in known:
        message = f"the filter {name} is not allowed in the namespace {namespace}; {_listed(known)}"
        return FilterProblem("RefNotPermitted", message)
    return None


def filter_problems(route: Resource, allowed: Allowed) -> Iterator[tuple[str, FilterProblem]]:
    """Yield each reference of *route* that is not resolved: its field below `spec`, and the problem."""
    for number, rule in enumerate(items_of(route, "spec", "rules")):
        place = f"rules[{number}]"
        owners = [(place, rule)]
        owners += [(f"{place}.backendRefs[{index}]", one) for index, one in enumerate(items_of(rule, "backendRefs"))]
        for field, owner in owners:
            for position, reference in references_in(items_of(owner, "filters")):
                if problem := problem_of(reference, namespace_of(route), allowed):
                    yield f"{field}.filters[{position}].extensionRef", problem


def is_allowed(name: str, namespace: str, allowed: Allowed) -> bool:
    """Whether routes of *namespace* may name the filter *name*."""
    namespaces = allowed.get(name, ())
    return "*" in namespaces or namespace in namespaces


def _kind_problem(reference: Any) -> str:
    """Return why *reference* names nothing that can be a filter; empty if it may."""
    group, kind = text_of(reference, "group"), text_of(reference, "kind")
    if (group, kind) != (GROUP, KIND):
        return f"{kind or 'a filter'} of the group {group or 'core'} is not supported; use {KIND} of the group {GROUP}"
    if not _NAME(text_of(reference, "name")):
        return "the name of a filter has up to 63 lower-case letters, digits and -"
    return ""


def _listed(names: Sequence[str]) -> str:
    more = ", …" if len(names) > _MOST_NAMES else ""
    return f"allowed filters: {', '.join(names[:_MOST_NAMES]) or 'none'}{more} (gatewayFilters)"
