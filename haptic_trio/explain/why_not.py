"""Reasons why objects that name a host or a path are not served as their owner may expect."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from haptic_trio.explain.base_maps import wildcard_of
from haptic_trio.explain.site import Site, named_resource
from haptic_trio.gateway.extensions import allowed_filters
from haptic_trio.gateway.objects import dig, items_of, text_of
from haptic_trio.gateway.reasons import route_faults, routes_at
from haptic_trio.ingress.classes import OwnClasses, class_of
from haptic_trio.k8s.resource import Resource
from haptic_trio.k8s.store import ReadableStore
from haptic_trio.templating.values.subjects import subject_of

_BY_HOST: Final = "ingressesByHost"
_MOST_OBJECTS: Final = 20
_MOST_PATHS: Final = 5


def ingresses_at(site: Site, host: str) -> tuple[Resource, ...]:
    """Return the first Ingresses that name *host* or its wildcard, whatever their class."""
    store = site.stores.get(_BY_HOST)
    if store is None:
        return ()
    found = {
        str(named_resource(one)): one
        for scope in dict.fromkeys((host, wildcard_of(host)))
        for one in (store.get(scope) if scope else ())
    }
    return tuple(found.values())[:_MOST_OBJECTS]


def reasons_at(site: Site, host: str, path: str = "") -> Iterator[str]:
    """Yield the reasons why Ingresses that name *host* do not serve it; with *path*, also those without that path."""
    for ingress in ingresses_at(site, host):
        title = str(named_resource(ingress))
        foreign = why_foreign(site, ingress)
        if foreign:
            yield f"{title} names this host, but {foreign}"
        elif path and not site.problems_of(subject_of(ingress)):
            paths = list(_paths_at(ingress, host))
            listed = ", ".join(paths[:_MOST_PATHS]) + (", …" if len(paths) > _MOST_PATHS else "")
            yield f"{title} names this host, but has no path for {path}" + (f" (paths: {listed})" if listed else "")


def route_reasons_at(site: Site, host: str, path: str = "") -> Iterator[str]:
    """Yield the reasons why routes of Gateways for *host* are not served; with *path*, also those without a match."""
    controller = str(site.context.get("gatewayController", ""))
    if not controller or "gatewayClasses" not in site.stores:
        return
    for route in islice(routes_at(site.stores, host), _MOST_OBJECTS):
        title = str(named_resource(route))
        faults = list(route_faults(route, site.stores, controller, allowed_filters(site.context)))
        yield from (f"{title}: {fault}" for fault in faults[:_MOST_PATHS])
        if path and not faults and not site.problems_of(subject_of(route)):
            paths = list(dict.fromkeys(_matches_of(route)))
            listed = ", ".join(paths[:_MOST_PATHS]) + (", …" if len(paths) > _MOST_PATHS else "")
            yield f"{title} is for this host, but has no match for {path}" + (f" (matches: {listed})" if listed else "")


def _matches_of(route: Resource) -> Iterator[str]:
    """Yield the paths of the matches of *route*, with their types."""
    for rule in items_of(route, "spec", "rules") if route["kind"] == "HTTPRoute" else ():
        for match in items_of(rule, "matches") or ({},):
            path = dig(match, "path")
            yield f"{text_of(path, 'type') or 'PathPrefix'} {text_of(path, 'value') or '/'}"


def why_foreign(site: Site, ingress: Resource) -> str:
    """Return why *ingress* is left to other controllers; empty if it is served or this is unknown."""
    return foreign_class(ingress, site.stores, site.context)


def foreign_class(ingress: Resource, stores: Mapping[str, ReadableStore], context: Mapping[str, Any]) -> str:
    """Return why *ingress* is left to other controllers, by the variables *context* of templates; otherwise empty."""
    name, controller = str(context.get("ingressClass", "")), str(context.get("ingressController", ""))
    if not name or ingress.get("kind") != "Ingress":
        return ""
    classes = OwnClasses(name, controller, without=bool(context.get("watchIngressWithoutClass")))
    given = class_of(ingress)
    if classes.handles(given, stores):
        return ""
    served = f"this controller serves the class {name} and classes with spec.controller {controller}"
    if not given:
        return f"it has no class (spec.ingressClassName); {served}"
    known = stores.get("ingressClasses")
    found = known.get_single(given) if known is not None else None
    if found is not None:
        return f"its class is {given}, of the controller {text_of(found, 'spec', 'controller')}; {served}"
    return f"its class is {given}; {served}"


def paths_of(resource: Resource) -> Iterator[tuple[str, str]]:
    """Yield the hosts and paths that *resource*, an Ingress or a route of a Gateway, asks for; `/` for whole hosts."""
    for rule in items_of(resource, "spec", "rules"):
        for one in items_of(rule, "http", "paths"):
            yield text_of(rule, "host").lower(), text_of(one, "path").rstrip("/") or "/"
    for host in items_of(resource, "spec", "hostnames"):
        if isinstance(host, str):
            yield host.lower(), "/"


def _paths_at(ingress: Resource, host: str) -> Iterator[str]:
    """Yield the paths of *ingress* for *host*, with their types."""
    for rule in items_of(ingress, "spec", "rules"):
        if text_of(rule, "host").lower() in {host, wildcard_of(host)}:
            for one in items_of(dig(rule, "http"), "paths"):
                yield f"{text_of(one, 'path') or '/'} ({text_of(one, 'pathType')})"
