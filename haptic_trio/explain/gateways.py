"""Notes about requests to Gateways, one for each frontend."""

import posixpath
from collections.abc import Iterator

import msgspec

from haptic_trio.explain.base_maps import RouteMap, read_entries
from haptic_trio.explain.gateway_maps import MAPS, Hit, Visit, outcomes, visits
from haptic_trio.explain.site import Site
from haptic_trio.haproxy.model import FileKind


class GatewayMaps(msgspec.Struct, frozen=True):
    """Routing maps of Gateways of one render."""

    paths: dict[str, str]
    """Paths of the files, by name of the map."""
    maps: dict[str, RouteMap]


def gateway_notes(site: Site, host: str, path: str) -> Iterator[str]:
    """Yield a sentence for each frontend of a Gateway that takes a request for *host* and *path*.

    Without a *path*, only the listeners are named.
    """
    known = gateway_maps_of(site)
    if known is not None:
        for visit in visits(known.maps, host, path or "/"):
            place = f"frontend {visit.frontend}"
            if visit.front:
                place = f"frontend {visit.front}, which passes it to {place}"
            taken = f"{place}: listener {visit.listener}"
            yield f"{taken}, {_routes(site, known, visit)}" if path else taken


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


def _routes(site: Site, known: GatewayMaps, visit: Visit) -> str:
    routes = [_route(site, known, hit) for hit in visit.hits]
    if not visit.hits or visit.hits[-1].is_conditional:
        routes.append("no route")
    return "; else ".join(routes)


def _route(site: Site, known: GatewayMaps, hit: Hit) -> str:
    path = known.paths[hit.map]
    maker = site.made_by(path, site.texts[path].origin_of(hit.entry.line)).object
    place = f"{path}:{hit.entry.line}" + (f", {maker}" if maker is not None else "")
    condition = "under conditions " if hit.is_conditional else ""
    return f"{condition}{' and '.join(outcomes(known.maps, hit.target))} ({place})"
