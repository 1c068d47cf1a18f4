"""Explanation of a request's route by the maps of the library `base`."""

import posixpath
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

import msgspec

from haptic_trio.explain import base_maps
from haptic_trio.explain.answers import Entry, GatewayVisit, HostAnswer, RouteAnswer, Step
from haptic_trio.explain.base_maps import EXACT, NO_PATH, NO_ROUTE, PREFIX, TLS_HOSTS, MapEntry, MapLookup, RouteMap
from haptic_trio.explain.certificates import certificate_reasons, certificates_for
from haptic_trio.explain.conditions import RequestParts
from haptic_trio.explain.gateways import gateway_notes, gateway_visits
from haptic_trio.explain.site import MAIN, Site, hidden
from haptic_trio.explain.targets import MalformedTargetError, UnknownTargetError
from haptic_trio.explain.why_not import reasons_at, route_reasons_at
from haptic_trio.haproxy.model import FileKind
from haptic_trio.templating.filters.request_paths import Readings, readings
from haptic_trio.templating.incremental.questions import Question

_MOST_OTHERS: Final = 20
_MOST_ENTRIES: Final = 200
_HOST_REJECTED: Final = "a host with `|` or `*` is rejected before the lookup"
_PATH_REJECTED: Final = "the path is rejected: it cannot be decoded, or it leaves the root after decoding"
_AMBIGUOUS: Final = "the path is rejected: it is ambiguous, and its readings lead to different backends"
_GAP: Final = "the host belongs to one namespace, which does not have the path (setting hostOwnership)"
_RULES: Final = "rules of frontends, such as redirects or denials, apply before the lookup and are not shown"


class Routing(msgspec.Struct, frozen=True):
    """Routing maps of one render."""

    paths: Mapping[str, str]
    """Paths of the files, by name of the map."""
    maps: Mapping[str, RouteMap]
    is_normalised: bool = False
    """Whether frontends normalise paths before the lookup."""

    def read(self, path: str) -> Readings | None:
        """Return *path* as the frontends read it; None if they reject it."""
        return readings(path) if self.is_normalised else Readings(path, path)

    def find(self, key: str) -> str | None:
        """Return the value of *key* in the map `TLS_HOSTS`, or None."""
        known = self.maps.get(TLS_HOSTS)
        found = known.exact(key) if known is not None else ()
        return found[0].value if found else None


def routing_of(site: Site) -> Routing | None:
    """Return the routing maps; None if the configuration does not have the maps of the library `base`."""
    paths = {
        posixpath.basename(file.path): file.path
        for file in site.files.values()
        if file.kind is FileKind.MAP and posixpath.basename(file.path) in {EXACT, PREFIX, TLS_HOSTS}
    }
    if EXACT not in paths or PREFIX not in paths:
        return None
    known: Routing | None = site.memo.get("routing")
    if known is None:
        maps = {name: RouteMap(tuple(base_maps.read_entries(site.texts[path].text))) for name, path in paths.items()}
        is_normalised = "set-var(txn.literal)" in site.texts[MAIN].text
        known = site.memo["routing"] = Routing(paths, maps, is_normalised)
    return known


def need_routing(site: Site) -> Routing:
    """Return the routing maps; raises `UnknownTargetError`."""
    routing = routing_of(site)
    if routing is None:
        raise UnknownTargetError(
            f"routes are unknown: the configuration does not have the maps {EXACT} and {PREFIX} of the library base",
            hint="ask for a line, a backend or an object",
        )
    return routing


def hosts_of(site: Site) -> set[str]:
    """Return the hosts with routes, including wildcards."""
    routing = routing_of(site)
    if routing is None:
        return set()
    entries = (entry for name in (EXACT, PREFIX) for entry in routing.maps[name].entries)
    return {base_maps.split_key(entry.key)[0] for entry in entries} - {"*", ""}


def entries_for(routing: Routing, host: str) -> list[tuple[str, MapEntry]]:
    """Return map and entry of all routes for *host*, in the lookup order of HAProxy."""
    found = []
    scopes = base_maps.scopes_of(host) if "*" not in host else (host,)
    for scope in scopes:
        for name in (EXACT, PREFIX):
            of_scope = [entry for entry in routing.maps[name].entries if entry.key.partition("|")[0] == scope]
            found += [(name, entry) for entry in sorted(of_scope, key=lambda entry: -len(entry.key))]
    return found


def explain_host(site: Site, given: str) -> HostAnswer:
    """Return the explanation of the host or wildcard *given*; raises `UnknownTargetError`."""
    routing = need_routing(site)
    host = _host(given)
    found = entries_for(routing, host)
    return HostAnswer(
        host=host,
        entries=tuple(_entries(site, routing, found[:_MOST_ENTRIES])),
        entries_count=len(found),
        certificates=certificates_for(site, host),
        notes=(
            *_redirect_notes(routing, host),
            *gateway_notes(site, host),
        ),
        reasons=(*reasons_at(site, host), *route_reasons_at(site, host), *certificate_reasons(site, host)),
        problems=site.problems_at(host),
        warnings=site.warnings_at(host),
    )


def explain_route(site: Site, given: str, path: str) -> RouteAnswer:
    """Return the route of a request for *given* and *path*; raises `UnknownTargetError` if routes are unknown."""
    routing = need_routing(site)
    host = given if base_maps.is_rejected(given) else _host(given)
    read = routing.read(path)
    rejection = _HOST_REJECTED if base_maps.is_rejected(host) else _PATH_REJECTED if read is None else ""
    lookups = [] if rejection or read is None else base_maps.look_up(routing.maps, host, read.separated)
    hit = next((number for number, lookup in enumerate(lookups) if lookup.matches), None)
    if read is not None and hit is not None and _is_ambiguous(routing, host, read, lookups[hit]):
        rejection = _AMBIGUOUS
    found = [] if rejection else [(lookup.map, entry) for lookup in lookups for entry in lookup.matches]
    entries = list(_entries(site, routing, found[: _MOST_OTHERS + 1]))
    backend = found[0][1].value if found else ""
    is_gap = backend == NO_PATH
    if is_gap:
        backend = ""
    is_secret = bool(entries) and entries[0].line.is_secret
    target = _header_of(site, backend)
    gateways: tuple[GatewayVisit, ...] = ()
    if read is not None and not rejection:
        gateways = tuple(gateway_visits(site, host, read.separated, RequestParts()))
    is_routed = any(visit.routes for visit in gateways)
    asked: set[Question] = set()
    for name, entry in found[:1]:
        maker = site.provenance.maker_of(routing.paths[name], entry.line)
        asked.update(maker.asked if maker is not None else ())
    return RouteAnswer(
        host=host,
        path=path,
        status=400 if rejection else 404 if is_gap or not found else 0 if target else 503,
        backend=hidden(backend) if is_secret else backend,
        backend_made_by=site.made_by(MAIN, site.texts[MAIN].origin_of(target)) if target else None,
        winner=entries[0] if entries else None,
        others=tuple(entries[1:]),
        others_count=max(0, len(found) - 1),
        steps=tuple(
            Step(
                path=routing.paths[lookup.map],
                key=lookup.key,
                match="exact" if lookup.map == EXACT else "prefix",
                found=bool(lookup.matches),
            )
            for lookup in lookups[: len(lookups) if hit is None else hit + 1]
        ),
        depends_on=site.lookups(asked),
        certificates=certificates_for(site, host),
        notes=(
            *([_GAP] if is_gap else []),
            *_notes(site, routing, host, status_is_503=bool(backend) and not target, rejection=rejection),
        ),
        reasons=(
            *reasons_at(site, host, "" if backend or rejection or is_routed else path),
            *route_reasons_at(site, host, "" if backend or rejection or is_routed else path),
            *certificate_reasons(site, host),
        ),
        problems=site.problems_at(host),
        warnings=site.warnings_at(host),
        gateways=gateways,
    )


def _is_ambiguous(routing: Routing, host: str, read: Readings, lookup: MapLookup) -> bool:
    """Whether another reading of the path of a request for *host* may have another backend than *lookup*.

    It may have one in the scope of *lookup*, or by an exact path in a scope that is more specific.
    """
    backend = lookup.matches[0].value
    if read.literal == read.separated or backend == NO_PATH:
        return False
    scope = lookup.key.partition("|")[0]
    for beginning in read.beginnings():
        found = routing.maps[PREFIX].prefixes(f"{scope}|{beginning}")
        if not found or found[0].value != backend:
            return True
    scopes = base_maps.scopes_of(host)
    return any(
        other.value != backend
        for narrower in scopes[: scopes.index(scope) + 1]
        for path in read.exact_paths()
        for other in routing.maps[EXACT].exact(f"{narrower}|{path}")[:1]
    )


def routes_to(site: Site, backend: str) -> Iterator[Entry]:
    """Yield the entries that point to *backend*, in the order of the maps."""
    routing = routing_of(site)
    if routing is not None:
        found = [(name, entry) for name in (EXACT, PREFIX) for entry in routing.maps[name].entries]
        yield from _entries(site, routing, [item for item in found if item[1].value == backend])


def _host(given: str) -> str:
    host = base_maps.plain_host(given)
    if not host:
        raise MalformedTargetError("the target names no host")
    return host


def _header_of(site: Site, backend: str) -> int:
    """Return the first line of *backend*; 0 if it does not exist."""
    if not backend:
        return 0
    if site.config is not None:
        known = site.config.find("backend", backend) or site.config.find("listen", backend)
        if known is None:
            return 0
    for number, line in enumerate(site.lines_of(MAIN), 1):
        words = line.split(None, 2)
        if line[:1] in {"b", "l"} and words[0] in {"backend", "listen"} and words[1:2] == [backend]:
            return number
    return 0


def _entries(site: Site, routing: Routing, found: Iterable[tuple[str, MapEntry]]) -> Iterator[Entry]:
    for name, entry in found:
        path = routing.paths[name]
        origin = site.texts[path].origin_of(entry.line)
        line = site.line(path, entry.line, f"{entry.key} {entry.value}", origin)
        scope, request_path = base_maps.split_key(entry.key)
        match = "exact" if name == EXACT else "prefix" if request_path else "default"
        yield Entry(
            line=line,
            scope="" if line.is_secret else scope,
            path="" if line.is_secret else request_path,
            match=match,
            backend="" if line.is_secret else entry.value,
            made_by=site.made_by(path, origin),
        )


def _notes(site: Site, routing: Routing, host: str, *, status_is_503: bool, rejection: str) -> Iterator[str]:
    if rejection:
        yield rejection
        return
    yield from _redirect_notes(routing, host)
    if status_is_503:
        cause = "" if site.warnings_at(host) else ": the Service or its port is missing, or the Service is not served"
        yield f"the backend does not exist, so `{NO_ROUTE}` answers{cause}"
    if _has_snippets(site, "frontend-routing-"):
        yield "snippets `frontend-routing-*` apply after the lookup and may choose another backend"
    yield _RULES


def _has_snippets(site: Site, prefix: str) -> bool:
    return any(name.startswith(prefix) for name in site.templates)


def _redirect_notes(routing: Routing, host: str) -> Iterator[str]:
    for key in (host, base_maps.wildcard_of(host)):
        is_excluded = key != host and routing.find(f"-{host}") is not None
        if routing.find(key) is not None and not is_excluded:
            yield f"plain HTTP is redirected to HTTPS: {routing.paths[TLS_HOSTS]} has {key}"
            return
