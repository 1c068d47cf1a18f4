"""List of all routes of a render, each with its object, backend, servers and state.

The entries of the maps that `routes` and `gateways` look up, and in addition
the routes that objects ask for and do not have, because the object is
quarantined or another one has the path.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Final

import msgspec

from haptic_trio.explain import base_maps, gateway_maps
from haptic_trio.explain.base_maps import MapEntry
from haptic_trio.explain.gateways import gateway_maps_of
from haptic_trio.explain.routes import routing_of
from haptic_trio.explain.site import Site, hidden, identity
from haptic_trio.explain.why_not import paths_of
from haptic_trio.haproxy.config.servers import read_server
from haptic_trio.haproxy.model import Section
from haptic_trio.templating.values.faults import ContentUnavailableError
from haptic_trio.templating.values.subjects import Subject

_TAKEN: Final = frozenset({"HostTaken", "PathTaken"})
"""Reasons of warnings about routes that another object has."""
_ABOUT_BACKENDS: Final = frozenset({"NoEndpoints", "PortNotFound", "ServiceNotFound", "ServiceNotSupported"})
"""Reasons of warnings about one backend of the object, perhaps of another route."""
_ABOUT_OTHERS: Final = frozenset({"HostShared", "HostWanted", "PathWanted"})
"""Reasons of warnings to the object that has a route."""
_MOST_REASONS: Final = 3
_MAX_REASON: Final = 500
_MAX_TEXT: Final = 500
"""Characters of hosts and paths that are not served."""


class RouteState(StrEnum):
    """State of a route, which decides the answer to requests for it."""

    SERVING = "serving"
    DEGRADED = "degraded"
    DOWN = "down"
    QUARANTINED = "quarantined"
    CONFLICT = "conflict"


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A route."""

    host: str
    """Host, host with `*` for its first label, or `*`; empty if the line derives from a Secret."""
    path: str
    match: str
    """`exact`, `prefix`, `default` for requests that match nothing else of the host, or `none`: there is no entry."""
    kind: str = ""
    """Kind of the object that made it; empty outside of objects, like the next two."""
    namespace: str = ""
    name: str = ""
    backend: str = ""
    """Backend, several with commas between them, or a response of HAProxy."""
    servers: int = 0
    """Enabled servers of the backends."""
    state: RouteState = RouteState.SERVING
    """`serving`; `degraded`: served, but not as the object says; `down`: answered with 503;
    `quarantined`: the object is; `conflict`: another object has the route."""
    reason: str = ""
    """Why the state is not `serving`."""
    place: str = ""
    """Map and line, such as `maps/path-exact.map:7`."""
    listener: str = ""
    """Listener of a Gateway."""


def list_routes(site: Site) -> tuple[Route, ...]:
    """Return all routes, in the order of hosts and paths."""
    states = _States(site)
    found = [*_base_routes(site, states), *_gateway_routes(site, states)]
    found += _missing_routes(site, states, found)
    return tuple(sorted(found, key=lambda route: (route.host, route.path, route.match, route.place)))


class _States:
    """States of routes by object and backend."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._problems: dict[tuple[str, str, str], list[str]] = {}
        for rejection in site.rejections:
            text = rejection.problem.message
            self._problems.setdefault(identity(rejection.subject), []).append(text)
        self._warnings: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
        for warning in site.warnings:
            self._warnings.setdefault(identity(warning.subject), []).append((warning.reason, warning.message))
        self._servers: dict[str, int | None] = {}

    @property
    def failing(self) -> Iterator[tuple[tuple[str, str, str], RouteState, str]]:
        """Quarantined and conflicting objects, whose routes may not be served: identity, state and reason."""
        for key, problems in self._problems.items():
            yield key, RouteState.QUARANTINED, _joined(problems)
        for key, warnings in self._warnings.items():
            taken = [f"{reason}: {message}" for reason, message in warnings if reason in _TAKEN]
            if taken and key not in self._problems:
                yield key, RouteState.CONFLICT, _joined(taken)

    def servers_of(self, backend: str) -> int | None:
        """Return the number of enabled servers of *backend*; None if it does not exist or is unknown."""
        if backend not in self._servers:
            config = self._site.config
            section = config and (config.find("backend", backend) or config.find("listen", backend))
            self._servers[backend] = _count_servers(section) if section else None
        return self._servers[backend]

    def state_of(self, subject: Subject | None, backends: Sequence[str]) -> tuple[int, RouteState, str]:
        """Return servers, state and reason of a route of *subject*."""
        counts = [self.servers_of(backend) for backend in backends]
        servers = sum(count or 0 for count in counts)
        key = identity(subject) if subject is not None else ("", "", "")
        warnings = self._warnings.get(key, ())
        about_backends = [f"{reason}: {message}" for reason, message in warnings if reason in _ABOUT_BACKENDS]
        if key in self._problems:
            return servers, RouteState.QUARANTINED, _joined(self._problems[key])
        if backends and not servers and self._site.config is not None:
            is_there = any(count is not None for count in counts)
            known = "the backend has no enabled server" if is_there else "the backend does not exist"
            return 0, RouteState.DOWN, _joined(about_backends) or f"{known}; requests are answered with 503"
        if any(not count for count in counts) and self._site.config is not None:
            return servers, RouteState.DEGRADED, _joined(about_backends) or "a backend of it has no enabled server"
        others = [
            f"{reason}: {message}"
            for reason, message in warnings
            if reason not in _TAKEN | _ABOUT_BACKENDS | _ABOUT_OTHERS
        ]
        return servers, RouteState.DEGRADED if others else RouteState.SERVING, _joined(others)


def _joined(reasons: Sequence[str]) -> str:
    more = f"; and {len(reasons) - _MOST_REASONS} more" if len(reasons) > _MOST_REASONS else ""
    text = "; ".join(dict.fromkeys(reasons[:_MOST_REASONS])) + more
    return text if len(text) <= _MAX_REASON else text[: _MAX_REASON - 1] + "…"


def _count_servers(section: Section) -> int:
    count = 0
    for line in section.all("server"):
        server = read_server(line)
        count += server is None or (not server.disabled and server.weight != 0)
    return count


def _base_routes(site: Site, states: _States) -> Iterator[Route]:
    routing = routing_of(site)
    if routing is None:
        return
    for name in (base_maps.EXACT, base_maps.PREFIX):
        path = routing.paths[name]
        for entry, subject, is_secret in _with_origins(site, path, routing.maps[name].entries):
            if entry.value in {base_maps.NO_PATH, base_maps.NO_WILDCARD}:
                continue
            scope, request_path = base_maps.split_key(entry.key)
            match = "exact" if name == base_maps.EXACT else "prefix" if request_path else "default"
            servers, state, reason = states.state_of(subject, (entry.value,))
            yield _route(
                subject,
                host="" if is_secret else scope,
                path="" if is_secret else _shown_path(request_path, match),
                match=match,
                backend=hidden(entry.value) if is_secret else entry.value,
                servers=servers,
                state=state,
                reason=reason,
                place=f"{path}:{entry.line}",
            )


def _gateway_routes(site: Site, states: _States) -> Iterator[Route]:
    known = gateway_maps_of(site)
    if known is None:
        return
    for name in (gateway_maps.EXACT, gateway_maps.PREFIX):
        path = known.paths[name]
        match = "exact" if name == gateway_maps.EXACT else "prefix"
        for entry, subject, _is_secret in _with_origins(site, path, known.maps[name].entries):
            listener, host, request_path = (*entry.key.split("|", 2), "", "")[:3]
            for target in gateway_maps.targets_of(entry.value):
                backends = tuple(dict.fromkeys(gateway_maps.backends_of(known.maps, target)))
                servers, state, reason = states.state_of(subject, backends)
                yield _route(
                    subject,
                    host=host,
                    path=_shown_path(request_path, match),
                    match=match,
                    backend=", ".join(backends) or "; ".join(gateway_maps.outcomes(known.maps, target)),
                    servers=servers,
                    state=state,
                    reason=reason,
                    place=f"{path}:{entry.line}",
                    listener=listener,
                )


def _missing_routes(site: Site, states: _States, present: Iterable[Route]) -> Iterator[Route]:
    """Yield the routes of quarantined and conflicting objects that are missing."""
    served = {(route.kind, route.namespace, route.name, route.host, route.path) for route in present}
    for key, state, reason in states.failing:
        kind, namespace, name = key
        for host, path in _wanted(site, key):
            if (*key, host or "*", path) not in served:
                yield Route(
                    host=_shortened(host) or "*",
                    path=_shortened(path),
                    match="none",
                    kind=kind,
                    namespace=namespace,
                    name=name,
                    state=state,
                    reason=reason,
                )


def _shortened(text: str) -> str:
    """Return *text* of an object, which may be anything, as a short UTF-8 text."""
    return text[:_MAX_TEXT].encode(errors="backslashreplace").decode()


def _wanted(site: Site, key: tuple[str, str, str]) -> Iterator[tuple[str, str]]:
    kind, namespace, name = key
    for resource in site.objects(name, namespace):
        try:
            if resource.get("kind") == kind:
                yield from dict.fromkeys(paths_of(resource))
        except ContentUnavailableError:
            # Lists do not fetch on-demand objects.
            continue


def _with_origins(
    site: Site, path: str, entries: Sequence[MapEntry]
) -> Iterator[tuple[MapEntry, Subject | None, bool]]:
    """Yield *entries*, which are in the order of lines, each with the object that made it and whether it is secret."""
    rest = iter(entries)
    entry = next(rest, None)
    for _first, last, origin in site.ranges.between(path, 1, entries[-1].line if entries else 0):
        is_secret = False
        is_known = False
        while entry is not None and entry.line <= last:
            if not is_known:
                is_secret, is_known = site.is_secret(path, origin), True
            yield entry, origin.subject if origin is not None else None, is_secret
            entry = next(rest, None)


def _shown_path(path: str, match: str) -> str:
    """Return the path of a map's key as a person writes it: without the slash that ends each prefix."""
    return path.rstrip("/") or "/" if match == "prefix" else path or "/"


def _route(subject: Subject | None, **fields: object) -> Route:
    named: Mapping[str, str] = {}
    if subject is not None:
        named = {"kind": subject.kind, "namespace": subject.namespace, "name": subject.name}
    # Names and paths may be instances of the templates' subclass of `str`.
    return msgspec.convert({**named, **fields}, Route)
