"""Requests to Gateways, and notes about their listeners, one for each frontend."""

import posixpath
from collections.abc import Iterator

import msgspec

from haptic_trio.explain.answers import GatewayRoute, GatewayVisit
from haptic_trio.explain.base_maps import RouteMap, read_entries
from haptic_trio.explain.conditions import RequestParts, fits, readable
from haptic_trio.explain.gateway_maps import MAPS, Visit, outcomes, visits
from haptic_trio.explain.site import Site
from haptic_trio.haproxy.model import FileKind


class GatewayMaps(msgspec.Struct, frozen=True):
    """Routing maps of Gateways of one render."""

    paths: dict[str, str]
    """Paths of the files, by name of the map."""
    maps: dict[str, RouteMap]


def gateway_notes(site: Site, host: str) -> Iterator[str]:
    """Yield a sentence for each frontend of a Gateway that takes requests for *host*: the listener."""
    known = gateway_maps_of(site)
    if known is not None:
        for visit in visits(known.maps, host, "/"):
            yield f"{place_of(visit.frontend, visit.front)}: listener {visit.listener}"


def place_of(frontend: str, front: str) -> str:
    """Return *frontend* in words, with the frontend *front* that passes requests to it, if any."""
    return f"frontend {front}, which passes it to frontend {frontend}" if front else f"frontend {frontend}"


def gateway_visits(site: Site, host: str, path: str, request: RequestParts) -> Iterator[GatewayVisit]:
    """Yield the result of *request* for *host* and *path* at each frontend of a Gateway with a listener for it."""
    known = gateway_maps_of(site)
    if known is not None:
        for visit in visits(known.maps, host, path):
            yield _visit(site, known, visit, request)


def gateway_maps_of(site: Site) -> GatewayMaps | None:
    """Return the maps of the library `gateway`; None if the configuration does not have all of them."""
    paths = {
        posixpath.basename(file.path): file.path
        for file in site.files.values()
        if file.kind is FileKind.MAP and posixpath.basename(file.path) in MAPS
    }
    if paths.keys() != MAPS:
        return None
    known: GatewayMaps | None = site.memo.get("gateways")
    if known is None:
        # Only names of frontends, hosts, listeners and backends, none of which derives from a Secret.
        maps = {name: RouteMap(tuple(read_entries(site.texts[path].text))) for name, path in paths.items()}
        known = site.memo["gateways"] = GatewayMaps(paths, maps)
    return known


def _visit(site: Site, known: GatewayMaps, visit: Visit, request: RequestParts) -> GatewayVisit:
    routes = []
    for hit in visit.hits:
        path = known.paths[hit.map]
        verdict = fits(hit.conditions, request)
        routes.append(
            GatewayRoute(
                path=path,
                line=hit.entry.line,
                object=site.made_by(path, site.texts[path].origin_of(hit.entry.line)).object,
                conditions=tuple(readable(hit.conditions)),
                verdict="unknown" if verdict is None else "yes" if verdict else "no",
                outcomes=tuple(outcomes(known.maps, hit.target)),
            )
        )
    return GatewayVisit(frontend=visit.frontend, front=visit.front, listener=visit.listener, routes=tuple(routes))
