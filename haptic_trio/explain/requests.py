"""Match of a request that is not sent, from the map line to the servers."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

from haptic_trio.explain import gateway_maps
from haptic_trio.explain.answers import GatewayVisit, Named, to_json
from haptic_trio.explain.base_maps import RouteMap
from haptic_trio.explain.conditions import RequestParts, fits
from haptic_trio.explain.gateway_maps import Hit, Visit, visits
from haptic_trio.explain.gateways import gateway_maps_of, gateway_visits
from haptic_trio.explain.routes import explain_route, need_routing
from haptic_trio.explain.site import MAIN, Site
from haptic_trio.explain.targets import LONGEST, MalformedTargetError
from haptic_trio.haproxy.config.servers import read_server
from haptic_trio.templating.values.subjects import Origin

_MOST_SERVERS: Final = 100
_MOST_BACKENDS: Final = 20
_MOST_HEADERS: Final = 100


class RequestQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is not sent."""

    target: str
    """`host/path?query`, or a URL."""
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = ()


class BackendServer(msgspec.Struct, frozen=True, kw_only=True):
    """A `server` line."""

    name: str
    address: str
    """Empty if the line derives from a Secret."""
    is_enabled: bool
    line: int
    """In haproxy.cfg, 1-based."""


class RequestBackend(msgspec.Struct, frozen=True, kw_only=True):
    """A backend that the request may reach."""

    name: str
    line: int
    """First line in haproxy.cfg; 0 if the backend does not exist."""
    object: Named | None = None
    servers: tuple[BackendServer, ...] = ()
    """The first of them."""
    servers_count: int = 0


class RequestMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Match of a request."""

    route: Any
    """Output of `haptic-trio explain HOST/PATH --output json`."""
    visits: tuple[GatewayVisit, ...] = ()
    """At frontends of Gateways."""
    backends: tuple[RequestBackend, ...] = ()


def match_request(site: Site, question: RequestQuestion) -> RequestMatch:
    """Return what the request of *question* matches.

    Raises `MalformedTargetError`, and `UnknownTargetError` if routes are unknown.
    """
    host, path, query = _split(question.target)
    if len(question.headers) > _MOST_HEADERS:
        raise MalformedTargetError(f"the request has more than {_MOST_HEADERS} headers")
    headers: dict[str, tuple[str, ...]] = {}
    for name, value in question.headers:
        headers[name.strip().lower()] = (*headers.get(name.strip().lower(), ()), value.strip())
    request = RequestParts(method=question.method or "GET", query=query, headers=headers)
    route = explain_route(site, host, path)
    known = gateway_maps_of(site)
    backends = [] if route.winner is None or route.winner.line.is_secret or not route.backend else [route.backend]
    read = need_routing(site).read(path)
    if known is not None and read is not None and route.status != 400:
        for visit in visits(known.maps, route.host, read.separated):
            backends += _reached(known.maps, visit, request)
    return RequestMatch(
        route=to_json(route),
        visits=tuple(gateway_visits(site, route.host, read.separated, request)) if read and route.status != 400 else (),
        backends=tuple(_backend(site, name) for name in list(dict.fromkeys(backends))[:_MOST_BACKENDS]),
    )


def _split(target: str) -> tuple[str, str, str]:
    """Return host, path and query of a request."""
    if len(target) > LONGEST:
        raise MalformedTargetError(f"the target has more than {LONGEST} characters")
    try:
        target.encode()
        parts = urlsplit(target if "://" in target else f"//{target}")
    except (UnicodeEncodeError, ValueError) as exc:
        raise MalformedTargetError(f"{target!r} is not a host with a path, or a URL") from exc
    return parts.netloc.rpartition("@")[2], parts.path or "/", parts.query


def _reached(maps: Mapping[str, RouteMap], visit: Visit, request: RequestParts) -> Iterator[str]:
    """Yield the backends of the effective route, and of those before it that may be effective."""
    for hit in _possible(visit.hits, request):
        yield from gateway_maps.backends_of(maps, hit.target)


def _possible(hits: Sequence[Hit], request: RequestParts) -> Iterator[Hit]:
    for hit in hits:
        verdict = fits(hit.conditions, request)
        if verdict is not False:
            yield hit
        if verdict:
            return


def _backend(site: Site, name: str) -> RequestBackend:
    config = site.config
    section = config and (config.find("backend", name) or config.find("listen", name))
    if config is None or not section:
        return RequestBackend(name=name, line=0)
    places = zip(config.sections, config.first_lines(), strict=True)
    first = next(line for one, line in places if one is section)
    servers = []
    lines = list(section.all("server"))
    for directive in lines[:_MOST_SERVERS]:
        number = first + directive.line - 1
        read = read_server(directive)
        line = site.line(MAIN, number, directive.words[2] if len(directive.words) > 2 else "", _origin(site, number))
        servers.append(
            BackendServer(
                name="" if line.is_secret else directive.words[1],
                address="" if line.is_secret else line.text,
                is_enabled=read is None or (not read.disabled and read.weight != 0),
                line=number,
            )
        )
    return RequestBackend(
        name=name,
        line=first,
        object=site.made_by(MAIN, _origin(site, first)).object,
        servers=tuple(servers),
        servers_count=len(lines),
    )


def _origin(site: Site, line: int) -> Origin | None:
    return site.texts[MAIN].origin_of(line)
