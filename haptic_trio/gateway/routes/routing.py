"""Map entries of one route: how requests find its backends.

A key is a listener, a host name that route and listener share, and a path.
Routes with a common key share one entry, which the oldest of them writes; the
other routes with the key are found by host name and path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby, takewhile
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec

from haptic_trio.gateway.extensions import NO_FILTERS, Allowed, guards_of
from haptic_trio.gateway.hostnames import ANY, intersection, specificity, wider
from haptic_trio.gateway.listeners.listeners import Listener
from haptic_trio.gateway.objects import (
    GatewayObjectError,
    Lookups,
    Resource,
    Same,
    age_of,
    derived,
    dig,
    items_of,
    name_of,
    namespace_of,
    text_of,
)
from haptic_trio.gateway.paths import normal_path
from haptic_trio.gateway.routes.attachment import Attached, listeners_for
from haptic_trio.gateway.routes.backends import Backend, backends_of, foreign_owner
from haptic_trio.gateway.routes.kinds import Key, RouteKind
from haptic_trio.gateway.routes.lists import Candidate, list_of
from haptic_trio.gateway.routes.matches import EXACT, PREFIX, Match
from haptic_trio.gateway.routes.precedence.claimants import Names, WantsOldest, counted, few
from haptic_trio.gateway.routes.precedence.contenders import hostnames_of
from haptic_trio.gateway.routes.programs import REJECTED, is_plain, rule_text
from haptic_trio.gateway.routes.rules import ServedRule, kept_rules, served_rules

_NO_ROUTE: Final = "no-route"
"""The backend that answers requests of rejected routes with 503."""
_KNOWN: Final = 16
"""Maximum number of lookups whose routes without host names are cached."""


class Entry(msgspec.Struct, frozen=True):
    """A line of a map."""

    key: str
    value: str
    """Empty if the route itself is omitted, since its namespace has too many older ones for the host and path."""
    omitted: tuple[Resource, ...] = ()
    """Routes with matches that have no room in the value."""


def entries(
    route: Resource,
    kind: RouteKind,
    path_kind: str,
    lookups: Lookups,
    controller: str,
    *,
    normalizes: bool = True,
    is_rejected: bool = False,
) -> Iterator[Entry]:
    """Yield the entries that *route* writes into the map of exact paths, or of prefixes.

    With *normalizes*, all spellings of a path have one entry.
    Raises `GatewayObjectError` if the route cannot be expressed, unless it
    *is_rejected* and keeps its paths for that reason.
    """
    if not is_rejected:
        served_rules(route, kind, lookups)
    served = _Known(kind, lookups, controller, normalizes=normalizes)
    if is_rejected:
        served.reject(route)
    paths = sorted(path for kind_of_path, path in served.matches_of(route) if kind_of_path == path_kind)
    for attached in listeners_for(route, kind.name, lookups, controller).values() if paths else ():
        for hostname, _ in attached.hostnames:
            resolver = _Resolver(served, attached.listener, hostname, lookups)
            for path in paths:
                value, omitted = resolver.value(route, Key(path_kind, hostname, path))
                if value or omitted:
                    shown = f"{attached.listener.key}|{hostname or '*'}|{path}"
                    yield Entry(shown if path_kind == EXACT else shown + "/", value, omitted)


def rule_entries(
    route: Resource, kind: RouteKind, lookups: Lookups, controller: str, allowed: Allowed = NO_FILTERS
) -> Iterator[Entry]:
    """Yield the entries for rules of *route* that do more than choose a backend, which may have filters *allowed*."""
    if not listeners_for(route, kind.name, lookups, controller):
        return
    known: set[str] = set()
    for rule in served_rules(route, kind, lookups):
        if rule.error is not None or not is_plain(rule.source, backends_of(route, rule.source, kind, lookups)):
            digest = rule.digest()
            # Requests never reach the second one of two equal rules.
            for position, match in enumerate(rule.matches) if digest not in known else ():
                is_closed = rule.error is not None
                text = REJECTED if is_closed else rule_text(route, rule.source, match, kind, lookups, allowed)
                yield Entry(_rule_key(route, kind, digest, position), text)
            known.add(digest)


def _rule_key(route: Resource, kind: RouteKind, digest: str, match: int) -> str:
    """Return the key of a rule, by its content: by its number, entries would lead to another rule while rules move."""
    return f"{kind.name}/{namespace_of(route)}/{name_of(route)}/{digest}.{match}"


class _Found(NamedTuple):
    """A match of a route, by its rule and its position among the matches of this rule."""

    rule: ServedRule
    position: int
    match: Match


class _Known:
    """Cache of the rules and host names of routes of one kind, for the computation of one result."""

    def __init__(self, kind: RouteKind, lookups: Lookups, controller: str, *, normalizes: bool) -> None:
        self.kind = kind
        self.normalizes = normalizes
        self._lookups = lookups
        self._controller = controller
        self._known: dict[tuple[str, str], list[ServedRule] | GatewayObjectError] = {}
        self._few: dict[_Source, tuple[Resource, ...] | None] = {}
        self._hostnames: dict[tuple[str, str], dict[str, dict[str, str]]] = {}
        self._matches: dict[tuple[str, str], dict[tuple[str, str], list[_Found]]] = {}
        self._backends: dict[tuple[str, str, int], tuple[Backend, ...]] = {}

    def hostnames_of(self, route: Resource, listener: Listener) -> dict[str, str]:
        """Return the host names that *route* shares with *listener*, each with the most specific one of the route."""
        key = namespace_of(route), name_of(route)
        known = self._hostnames.get(key)
        if known is None:
            found = listeners_for(route, self.kind.name, self._lookups, self._controller)
            known = self._hostnames[key] = {one: _own_hostnames(route, attached) for one, attached in found.items()}
        return known.get(listener.key, {})

    def matches_of(self, route: Resource) -> Mapping[tuple[str, str], Sequence["_Found"]]:
        """Return the matches of `of` by kind and text of their paths, or raise its error.

        Paths are in their normal form, unless they are compared as they are.
        """
        name = namespace_of(route), name_of(route)
        known = self._matches.get(name)
        if known is None:
            known = {}
            for rule in self.of(route):
                for position, match in enumerate(rule.matches):
                    path = normal_path(match.path) if self.normalizes else match.path
                    known.setdefault((match.path_kind, path), []).append(_Found(rule, position, match))
            self._matches[name] = known
        return known

    def backends_of(self, route: Resource, rule: ServedRule) -> tuple[Backend, ...]:
        """Return the backends of *rule* of *route*."""
        key = namespace_of(route), name_of(route), rule.number
        known = self._backends.get(key)
        if known is None:
            known = self._backends[key] = backends_of(route, rule.source, self.kind, self._lookups)
        return known

    def few(self, source: "_Source") -> tuple[Resource, ...] | None:
        """Return the routes that *source* finds, the oldest first; None if there are many."""
        try:
            return self._few[source]
        except KeyError:
            found: tuple[Resource, ...] | None = source.ask(self._lookups, few)
            self._few[source] = found
            return found

    def reject(self, route: Resource) -> None:
        """Have the rules of *route* without filters that may guard access rejected: it is not served in part."""
        if not guards_of(route):
            rules = [msgspec.structs.replace(rule, is_rejected=True) for rule in self.of(route)]
            self._known[namespace_of(route), name_of(route)] = rules

    def of(self, route: Resource) -> list[ServedRule]:
        """Return the cached result of `kept_rules`, or raise its error."""
        key = namespace_of(route), name_of(route)
        known = self._known.get(key)
        if known is None:
            try:
                known = kept_rules(route, self.kind, self._lookups)
            except GatewayObjectError as error:
                known = error
            self._known[key] = known
        if isinstance(known, GatewayObjectError):
            raise known
        return known


def _own_hostnames(route: Resource, attached: Attached) -> dict[str, str]:
    own = {shared: ANY for shared, _ in attached.hostnames}
    for hostname in hostnames_of(route):
        shared = intersection(hostname, attached.listener.hostname)
        if shared in own and specificity(hostname) > specificity(own[shared]):
            own[shared] = hostname
    return own


class _Source(msgspec.Struct, frozen=True):
    """A lookup that finds routes by host name and path, or else by a parent."""

    store: str
    keys: tuple[str, ...]
    section: str = ""
    port: int = 0
    """If not 0, only the routes without host names whose parent references may name a listener."""

    def ask(self, lookups: Lookups, aspect: Callable[[Sequence[Resource]], Any]) -> Any:
        """Return *aspect* of the routes that the lookup finds."""
        meant = _WithoutHost(self.section, self.port, aspect) if self.port else aspect
        return derived(lookups, self.store, meant, *self.keys)


class _WithoutHost(msgspec.Struct, frozen=True):
    """Lookup aspect: an aspect of the routes without host names whose parent references may name a listener."""

    section: str
    port: int
    aspect: Callable[[Sequence[Resource]], Any]

    def __call__(self, found: Sequence[Resource]) -> Any:
        return self.aspect(_meant(Same(found), self.section, self.port))


@lru_cache(maxsize=_KNOWN)
def _meant(found: Same[Sequence[Resource]], section: str, port: int) -> Sequence[Resource]:
    return tuple(
        route
        for route in found.found
        if not items_of(route, "spec", "hostnames")
        and any(
            text_of(reference, "sectionName") in ("", section) and dig(reference, "port") in (None, port)
            for reference in items_of(route, "spec", "parentRefs")
        )
    )


class _Resolver:
    """Finds the routes that compete for the paths of one host name of a listener."""

    def __init__(self, served: _Known, listener: Listener, hostname: str, lookups: Lookups) -> None:
        self._served = served
        self._kind = served.kind
        self._listener = listener
        self._hostname = hostname
        self._lookups = lookups
        self._known_sources: dict[Key, tuple[_Source, ...]] = {}

    def value(self, route: Resource, key: Key) -> tuple[str, tuple[Resource, ...]]:
        """Return the value of the entry for *key*, and the routes that it omits.

        The value is empty if another route than *route* writes it, or if
        *route* itself is omitted.
        """
        if not self._counts(route, key):
            return "", (route,)
        if self._is_taken(route, key):
            return "", ()
        own = namespace_of(route), name_of(route)
        rivals = [rival for rival in self._routes(key) if (namespace_of(rival), name_of(rival)) != own]
        candidates = self._candidates([*rivals, route], key)
        for wider_key in _fallbacks(key):
            if any(not candidate.match.is_conditional for candidate in candidates):
                break
            candidates += self._candidates(self._routes(wider_key), wider_key)
        return list_of(candidates, is_wide=not specificity(self._hostname)[0])

    def _counts(self, route: Resource, key: Key) -> bool:
        """Whether *route* is one of the oldest routes of its namespace with *key*."""
        question, is_limited, others = Names.around(route), False, []
        for source in self._sources(key):
            found = self._served.few(source)
            if found is None:
                omits, names = source.ask(self._lookups, question)
                if name_of(route) in names:
                    return True
                is_limited |= omits
            else:
                others.append(found)
        # Each route would search the lists of all: they are only searched if some routes are omitted.
        own = namespace_of(route), name_of(route)
        return not is_limited or any((namespace_of(one), name_of(one)) == own for routes in others for one in routes)

    def _is_taken(self, route: Resource, key: Key) -> bool:
        """Whether an older route has *key*. With very many such routes, each reads the oldest only."""
        age = age_of(route)
        return any(self._has_older(source, key, age) for source in self._sources(key))

    def _has_older(self, source: _Source, key: Key, age: tuple[str, str, str]) -> bool:
        rivals = self._served.few(source)
        if rivals is None:
            oldest = source.ask(self._lookups, WantsOldest(self._kind.name, self._served.normalizes))
            if oldest is None or age_of(oldest.route) >= age:
                return False
            hostnames = self._served.hostnames_of(oldest.route, self._listener)
            if self._hostname in hostnames and (key.path_kind, key.path) in oldest.paths:
                return True
            rivals = source.ask(self._lookups, counted)
        return any(self._has(rival, key) for rival in takewhile(lambda one: age_of(one) < age, rivals))

    def _routes(self, key: Key) -> list[Resource]:
        """Return all routes that have *key* and count."""
        found: dict[tuple[str, str], Resource] = {}
        for source in self._sources(key):
            routes = self._served.few(source)
            for route in source.ask(self._lookups, counted) if routes is None else routes:
                found.setdefault((namespace_of(route), name_of(route)), route)
        return [route for route in found.values() if self._has(route, key)]

    def _sources(self, key: Key) -> Sequence[_Source]:
        """Return the lookups that find the routes that may have *key*."""
        known = self._known_sources.get(key)
        if known is None:
            known = self._known_sources[key] = tuple(self._find_sources(key))
        return known

    def _find_sources(self, key: Key) -> Iterator[_Source]:
        owner = self._listener.owner
        for hostname in self._hostnames():
            for path in self._kind.spellings(key):
                if hostname:
                    yield _Source(self._kind.by_host, (hostname, path))
                else:
                    yield _Source(self._kind.of_any_host, (owner, path))
        if key.path_kind == PREFIX and not key.path:
            # Routes that cannot be found by path, and may be attached to the listener.
            for hostname in self._hostnames():
                if hostname:
                    yield _Source(self._kind.without_path, (owner, hostname))
                else:
                    yield _Source(self._kind.without_path, (owner,), self._listener.name, self._listener.port)

    def _hostnames(self) -> Iterator[str]:
        """Yield the host names of routes that match this host name on the listener."""
        if self._hostname:
            yield self._hostname
        if self._hostname == self._listener.hostname:
            yield from wider(self._hostname)
            yield ANY

    def _has(self, route: Resource, key: Key) -> bool:
        if self._hostname not in self._served.hostnames_of(route, self._listener):
            return False
        try:
            return (key.path_kind, key.path) in self._served.matches_of(route)
        except GatewayObjectError:
            # The faulty route is reported when it is rendered itself.
            return False

    def _candidates(self, routes: Sequence[Resource], key: Key) -> list[Candidate]:
        found = []
        for route in routes:
            own = self._served.hostnames_of(route, self._listener).get(self._hostname, ANY)
            matches = self._served.matches_of(route).get((key.path_kind, key.path), ())
            for _, of_rule in groupby(matches, attrgetter("rule.number", "rule.is_widened")):
                same = tuple(of_rule)
                rule = same[0].rule
                is_closed = rule.error is not None or rule.is_rejected
                backends = () if is_closed else self._served.backends_of(route, rule)
                plain = is_plain(rule.source, backends)
                digest = "" if plain else rule.digest()
                for _, position, match in same:
                    target = backends[0].name if plain else f"={_rule_key(route, self._kind, digest, position)}"
                    owner = foreign_owner(route, target) if plain and self._kind.has_requests else ""
                    if rule.is_rejected:
                        target, owner = _NO_ROUTE, namespace_of(route)
                    exact, length = specificity(own)
                    order = (
                        not exact,
                        -length,
                        match.precedence,
                        age_of(route),
                        not rule.is_widened,
                        rule.number,
                        position,
                    )
                    found.append(Candidate(match, target, route, order, (rule.number, position), owner))
        return sorted(found, key=lambda candidate: candidate.order)


def _fallbacks(key: Key) -> Iterator[Key]:
    """Yield the wider keys that requests for *key* match as well, the longest path first."""
    path = key.path.rstrip("/") if key.path_kind == EXACT else key.path
    if key.path_kind == EXACT:
        yield Key(PREFIX, key.hostname, path)
    while path:
        path = path.rpartition("/")[0]
        yield Key(PREFIX, key.hostname, path)
