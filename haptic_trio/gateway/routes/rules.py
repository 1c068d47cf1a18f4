"""Served rules of a route, and the problems of the others.

A rule that cannot be expressed is dropped, and the others are served. A route
whose rules are all dropped is rejected. Requests of a rule with a filter of the
administrator, or with one of a type that is not supported, would then pass
another rule without it, so such a rule is answered with 500 instead.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

from haptic_trio.gateway.extensions import (
    ANNOTATED,
    EXTENSION,
    all_filters_of,
    closed_text,
    filter_owners,
    has_guards,
)
from haptic_trio.gateway.objects import (
    GatewayObjectError,
    Lookups,
    Resource,
    Same,
    derived,
    dig,
    hash_of,
    identity_of,
    items_of,
    name_of,
    namespace_of,
    shared,
    text_of,
)
from haptic_trio.gateway.routes.backends import without_persistence
from haptic_trio.gateway.routes.kinds import HTTP_ROUTE, RouteKind
from haptic_trio.gateway.routes.matches import Match, expression_count, rules_of
from haptic_trio.gateway.routes.programs import MAX_CONDITIONS, checked_size, conditions_text, rule_text

UNSUPPORTED: Final = "UnsupportedValue"
INCOMPATIBLE: Final = "IncompatibleFilters"
_UNFILTERED: Final = ("RequestMirror", "RequestRedirect")
"""Filters that work before those of the administrator, which may be there to reject the request."""
_EXCLUSIVE: Final = frozenset({"RequestRedirect", "URLRewrite"})
_MOST_BACKENDS: Final = 16
"""The API allows no more."""
_MOST_REPORTED: Final = 8
_ANNOTATIONS: Final = "haptic-trio/"
MOST_MIRRORS: Final = 4
"""Maximum number of copies of a request that a rule and one of its backends send."""
MOST_FILTERS: Final = 8
"""Maximum number of filters of the administrator in a rule: their names are a part of the name of its backend."""
MOST_EXPRESSIONS: Final = 128
"""Maximum number of regular expressions in a route: each is analysed whenever the route changes."""

_DIGITS: Final = 12
"""Number of digits of the hash of a rule: enough for the rules of one route."""


class ServedRule(msgspec.Struct, frozen=True):
    """A rule whose matches can be expressed."""

    number: int
    source: Any
    matches: tuple[Match, ...]
    error: GatewayObjectError | None = None
    """Why its requests are answered with 500."""
    is_widened: bool = False
    """Conditions of some matches could not be expressed, and are left out."""
    is_rejected: bool = False
    """The whole route is rejected: its requests are answered with 503, so that they reach no other route."""

    def digest(self) -> str:
        """Return a hash of the content, which is the same wherever the rule is in its route."""
        return hash_of(json.dumps(self.source, sort_keys=True), _DIGITS)


class RuleFault(msgspec.Struct, frozen=True):
    """The problem of a rule that is dropped, or answered with 500."""

    number: int
    name: str
    reason: str
    message: str

    def __str__(self) -> str:
        return f"rules[{self.number}]{f' ({self.name})' if self.name else ''}: {self.message}"


class _Matches(msgspec.Struct, frozen=True):
    """The matches of a rule that can be expressed, and the problem of the others."""

    found: tuple[Match, ...]
    problem: str = ""


class _MatchesAsked:
    """Lookup aspect: the matches of each rule of a route. Expressions are analysed once for all."""

    __slots__ = ("_identity", "_kind", "_known", "_route")

    def __init__(self, kind: RouteKind, route: Resource) -> None:
        self._identity = kind.name, Same(route.get("spec"))
        self._kind = kind
        self._route = route
        self._known: tuple[_Matches, ...] | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _MatchesAsked) and self._identity == other._identity

    def __hash__(self) -> int:
        return hash(self._identity)

    def __call__(self, _found: Sequence[Resource]) -> tuple[_Matches, ...]:
        if self._known is None:
            self._known = tuple(_matches(self._route, self._kind))
        return self._known


class IncompatibleFiltersError(GatewayObjectError):
    """A rule has filters that cannot be combined; permanent until the route changes."""


def served_rules(route: Resource, kind: RouteKind, lookups: Lookups) -> list[ServedRule]:
    """Return the rules of *route* that are served; raises `GatewayObjectError` if none can be."""
    result = _served(route, kind, lookups)
    if isinstance(result, GatewayObjectError):
        # The message names the place in the template, which is not that of the last fragment with this error.
        raise result.with_traceback(None)
    return result


def _served(route: Resource, kind: RouteKind, lookups: Lookups) -> list[ServedRule] | GatewayObjectError:
    key = "served_rules", kind.name, *identity_of(route)
    return shared(lookups, key, lambda: _find_served(route, kind, lookups))


def _find_served(route: Resource, kind: RouteKind, lookups: Lookups) -> list[ServedRule] | GatewayObjectError:
    served: list[ServedRule] = []
    error: GatewayObjectError | None = None
    for _, _, result in _results(route, kind, lookups):
        if isinstance(result, ServedRule):
            served.append(result)
        else:
            error = error or result
    return served if error is None or served else error


def kept_rules(route: Resource, kind: RouteKind, lookups: Lookups) -> list[ServedRule]:
    """Return the rules of *route* that are served; if none can be, all with a match that can be expressed, rejected.

    Otherwise a younger route of another namespace would get the requests of a
    rejected one. Raises `GatewayObjectError` instead for routes of connections,
    which nothing can answer with a status.
    """
    if not kind.has_requests or not isinstance(_served(route, kind, lookups), GatewayObjectError):
        return served_rules(route, kind, lookups)
    key = "kept_rules", kind.name, *identity_of(route)
    return shared(lookups, key, lambda: _find_rejected(route, kind, lookups))


def _find_rejected(route: Resource, kind: RouteKind, lookups: Lookups) -> list[ServedRule]:
    return [
        ServedRule(number, rule, matches.found, is_rejected=True)
        for (number, rule), matches in _matches_by_rule(route, kind, lookups)
    ]


def faults_of(route: Resource, kind: RouteKind, lookups: Lookups) -> list[RuleFault]:
    """Return the faults of the rules of *route* that are dropped, or answered with 500."""
    found: list[RuleFault] = []
    for number, rule, result in _results(route, kind, lookups):
        error = result.error if isinstance(result, ServedRule) else result
        if error is not None:
            reason = INCOMPATIBLE if isinstance(error, IncompatibleFiltersError) else UNSUPPORTED
            message = str(error) if error is result else closed_text(error)
            found.append(RuleFault(number, text_of(rule, "name"), reason, message))
    return found


def closed_rules(route: Resource, kind: RouteKind, lookups: Lookups) -> Iterator[str]:
    """Yield a message for each rule of *route* that is answered with 500 since it cannot be expressed."""
    if not any(has_guards(rule) for _, rule in rules_of(route)):
        return
    try:
        served = served_rules(route, kind, lookups)
    except GatewayObjectError:
        # The route is rejected, with a message of its own.
        return
    for rule in served:
        if rule.error is not None:
            yield f"spec.rules[{rule.number}]: {closed_text(rule.error)}"


def _results(
    route: Resource, kind: RouteKind, lookups: Lookups
) -> Iterator[tuple[int, Any, ServedRule | GatewayObjectError]]:
    """Yield each rule of *route* with its number, and the served rule or the error."""
    for (number, rule), matches in _matches_by_rule(route, kind, lookups):
        try:
            yield number, rule, _checked(route, number, rule, matches, kind, lookups)
        except GatewayObjectError as error:
            is_closed = matches.found and has_guards(rule)
            closed = ServedRule(number, rule, matches.found, error, is_widened=bool(matches.problem))
            yield number, rule, closed if is_closed else error


def _matches_by_rule(route: Resource, kind: RouteKind, lookups: Lookups) -> Iterator[tuple[tuple[int, Any], _Matches]]:
    asked = _MatchesAsked(kind, route)
    found = derived(lookups, kind.store, asked, namespace_of(route), name_of(route))
    return zip(rules_of(route), found, strict=True)


def _matches(route: Resource, kind: RouteKind) -> Iterator[_Matches]:
    room = MOST_EXPRESSIONS
    for _, rule in rules_of(route):
        count = expression_count(rule)
        if count > room:
            problem = f"matches: the route has more than {MOST_EXPRESSIONS} regular expressions; use several routes"
            yield _Matches(_widened_matches(rule, kind, 0), problem)
            continue
        room -= count
        try:
            yield _Matches(_checked_matches(rule, kind))
        except GatewayObjectError as error:
            yield _Matches(_widened_matches(rule, kind, count), str(error))


def _widened_matches(rule: Any, kind: RouteKind, most: int) -> tuple[Match, ...]:
    """Return what can be expressed of the matches of *rule*: those matches as they are, or else their paths if it has
    filters of the administrator. They have at most *most* expressions.
    """
    found: list[Match] = []
    is_guarded = has_guards(rule)
    for match in items_of(rule, "matches"):
        # A GRPCRoute has the path in the field `method`.
        path = {field: dig(match, field) for field in ("path" if kind.name == HTTP_ROUTE.name else "method",)}
        for one in (match, path) if is_guarded else (match,):
            alone = {"matches": [one]}
            if (count := expression_count(alone)) <= most:
                try:
                    found += _checked_matches(alone, kind)
                except GatewayObjectError:
                    continue
                most -= count
                break
    return tuple(found)


def _checked_matches(rule: Any, kind: RouteKind) -> tuple[Match, ...]:
    matches = kind.matches(rule)
    for match in matches:
        checked_size(conditions_text(match), MAX_CONDITIONS)
    return matches


def certain_paths(route: Resource, kind: RouteKind) -> Iterator[tuple[str, str]]:
    """Yield kind and path of matches of *route* that are served whatever other objects there are; no expressions."""
    for _, rule in rules_of(route):
        if _is_simple(rule) and not expression_count(rule):
            try:
                yield from ((match.path_kind, match.path) for match in _checked_matches(rule, kind))
            except GatewayObjectError:
                continue


def dropped_text(faults: list[RuleFault]) -> str:
    """Return the message about rules that were dropped for *faults*; the API specifies how it begins."""
    more = f"; and {len(faults) - _MOST_REPORTED} more" if len(faults) > _MOST_REPORTED else ""
    return f"Dropped Rule {'; '.join(map(str, faults[:_MOST_REPORTED]))}{more}"


def _checked(
    route: Resource, number: int, rule: Any, matches: _Matches, kind: RouteKind, lookups: Lookups
) -> ServedRule:
    if matches.problem:
        raise GatewayObjectError(matches.problem)
    if not _is_simple(rule):
        for owner in filter_owners(rule):
            _check_filters(items_of(owner, "filters"))
        _check_extensions(rule)
        _check_mirrors(rule)
        for match in matches.found:
            rule_text(route, rule, match, kind, lookups)
    return ServedRule(number, rule, matches.found)


def _is_simple(rule: Any) -> bool:
    """Whether only the matches of *rule* can be invalid."""
    references = items_of(rule, "backendRefs")
    return (
        not any(dig(rule, field) for field in ("filters", "timeouts", "retry", "sessionPersistence"))
        and len(references) <= _MOST_BACKENDS
        and not any(items_of(reference, "filters") for reference in references)
    )


def _check_filters(filters: Iterable[Any]) -> None:
    if _EXCLUSIVE.issubset(text_of(one, "type") for one in filters):
        raise IncompatibleFiltersError("filters: RequestRedirect and URLRewrite cannot be combined")


def _check_extensions(rule: Any) -> None:
    if names := all_filters_of(rule):
        if len(names) > MOST_FILTERS:
            raise GatewayObjectError(
                f"filters: {len(names)} different {EXTENSION}; at most {MOST_FILTERS} are supported"
            )
        types = {text_of(one, "type") for owner in filter_owners(rule) for one in items_of(owner, "filters")}
        for other in _UNFILTERED:
            if other in types:
                reason = f"HAProxy executes {other} first; use a rule for each"
                raise IncompatibleFiltersError(f"filters: {EXTENSION} and {other} cannot be combined: {reason}")


def _check_mirrors(rule: Any) -> None:
    most = _mirrors_of(rule) + max(map(_mirrors_of, items_of(rule, "backendRefs")), default=0)
    if most > MOST_MIRRORS:
        raise GatewayObjectError(f"filters: {most} mirrors for one request; at most {MOST_MIRRORS} are supported")


def _mirrors_of(owner: Any) -> int:
    return sum(text_of(one, "type") == "RequestMirror" for one in items_of(owner, "filters"))


def ineffective(route: Resource) -> Iterator[str]:
    """Yield a message for each field of *route* that has no effect."""
    for number, rule in rules_of(route):
        if text_of(rule, "retry", "backoff"):
            yield (
                f"spec.rules[{number}].retry.backoff: not supported; HAProxy waits up to a second after a failed "
                "connection, and does not wait after a response"
            )
        if problem := without_persistence(rule):
            yield f"spec.rules[{number}].sessionPersistence: {problem}"
    given = dig(route, "metadata", "annotations")
    annotations = sorted(key for key in given if key.startswith(_ANNOTATIONS)) if isinstance(given, dict) else []
    if annotations and not any(ANNOTATED in all_filters_of(rule) for _, rule in rules_of(route)):
        yield (
            f"metadata.annotations.{annotations[0]}: no rule has the filter `{ANNOTATED}`, so annotations protect "
            f"nothing; add the filter to the rules, as `type: {EXTENSION}`"
        )
