"""Reasons why a Gateway, or a route of a Gateway, is not served as its owner may expect.

The status has the same reasons as conditions, but only if there is an API
server to write it to. These name the field, and the objects that exist.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from haptic_trio.gateway.extensions import NO_FILTERS, Allowed, closed_text, filter_problems
from haptic_trio.gateway.hostnames import ANY
from haptic_trio.gateway.listeners.listeners import all_listeners, class_of, is_managed, is_managed_class
from haptic_trio.gateway.objects import (
    GROUP,
    GatewayObjectError,
    Resource,
    bare_in,
    found_in,
    items_of,
    name_of,
    namespace_of,
    single,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes.attachment import (
    DISPLACED,
    NO_HOSTNAME,
    NO_PARENT,
    NOT_ALLOWED,
    attach,
)
from haptic_trio.gateway.routes.backends import endpoints_of, resolve
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS, RouteKind
from haptic_trio.gateway.routes.matches import rules_of
from haptic_trio.gateway.routes.precedence.contenders import hostnames_of

_MOST_NAMES: Final = 5
_REASONS: Final = {
    NOT_ALLOWED: "no listener of {parent} allows a {kind} of the namespace {namespace} (listeners[].allowedRoutes)",
    NO_HOSTNAME: "no listener of {parent} has a hostname in common with spec.hostnames",
    DISPLACED: "an older route of another kind has the host names at {parent}",
}


class Fault(NamedTuple):
    """Fault of a field of an object."""

    reason: str
    """One word in upper camel case."""
    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}" if self.path else self.message


def gateway_faults(gateway: Resource, stores: Mapping[str, Any], controller: str) -> Iterator[Fault]:
    """Yield why *gateway* is left to other controllers; nothing if it is of *controller*."""
    if is_managed(gateway, stores, controller):
        return
    name = class_of([gateway])
    found = single(stores, "gatewayClasses", name)
    own = [
        name_of(one)
        for one in found_in(stores, "gatewayClasses")
        if text_of(one, "spec", "controllerName") == controller
    ]
    served = f"this controller serves {_named('GatewayClasses', own, 'with')} spec.controllerName {controller}"
    if found is None:
        yield Fault("GatewayClassNotFound", "spec.gatewayClassName", f"there is no GatewayClass {name}; {served}")
    else:
        other = text_of(found, "spec", "controllerName")
        message = f"the GatewayClass {name} is of the controller {other}; {served}"
        yield Fault("ForeignClass", "spec.gatewayClassName", message)


def route_faults(
    route: Resource, stores: Mapping[str, Any], controller: str, filters: Allowed = NO_FILTERS
) -> Iterator[Fault]:
    """Yield what is wrong with the parents, backends and filters of *route*, a route of a Gateway.

    *filters* are those of the administrator that routes may name.
    A route whose parents all belong to other controllers has faults of its parents only.
    """
    kind = ROUTE_KINDS[route["kind"]]
    attachments = [(one.reference, one) for one in attach(route, kind.name, stores, controller)]
    for index, reference in enumerate(items_of(route, "spec", "parentRefs")):
        found = next((one for given, one in attachments if given is reference), None)
        path = f"spec.parentRefs[{index}]"
        if found is None:
            yield from _parent_faults(route, reference, path, stores, controller)
        elif found.reason == NO_PARENT:
            yield Fault(found.reason, path, _no_listener(route, reference, stores))
        elif found.reason:
            parent = _parent(route, reference)
            text = _REASONS[found.reason].format(parent=parent, kind=kind.name, namespace=namespace_of(route))
            yield Fault(found.reason, path, text)
    if not items_of(route, "spec", "parentRefs"):
        yield Fault("NoMatchingParent", "spec.parentRefs", "the route names no Gateway")
    if attachments:
        yield from _backend_faults(route, kind, stores)
        for field, problem in filter_problems(route, filters):
            yield Fault(problem.reason, f"spec.{field}", closed_text(problem.message))


def routes_at(stores: Mapping[str, Any], host: str, *, is_named: bool = False) -> Iterator[dict[str, Any]]:
    """Yield the HTTPRoutes and GRPCRoutes that name *host* or a wildcard of it or, unless *is_named*, no host."""
    labels = host.split(".")
    scopes = {host, *("*." + ".".join(labels[number:]) for number in range(1, len(labels)))}
    scopes |= set() if is_named else {ANY}
    for kind in ROUTE_KINDS.values():
        if kind.has_requests:
            yield from (one for one in found_in(stores, kind.store) if not scopes.isdisjoint(hostnames_of(one)))


def _parent(route: Resource, reference: Mapping[str, Any]) -> str:
    namespace = target_namespace(reference, route)
    return f"the {text_of(reference, 'kind') or 'Gateway'} {namespace}/{text_of(reference, 'name')}"


def _parent_faults(
    route: Resource, reference: Mapping[str, Any], path: str, stores: Mapping[str, Any], controller: str
) -> Iterator[Fault]:
    kind = text_of(reference, "kind") or "Gateway"
    if (text_of(reference, "group") or GROUP) != GROUP or kind not in {"Gateway", "ListenerSet"}:
        # Such as a Service, for a mesh.
        return
    store = "gateways" if kind == "Gateway" else "listenerSets"
    found = single(stores, store, target_namespace(reference, route), text_of(reference, "name"))
    if found is None:
        known = [f"{namespace_of(one)}/{name_of(one)}" for one in bare_in(stores, store)]
        listed = f" ({kind}s: {_listed(known)})" if known else f"; there are no {kind}s"
        yield Fault("NoMatchingParent", path, f"{_parent(route, reference)} does not exist{listed}")
    elif kind == "Gateway" and not is_managed_class(class_of([found]), stores, controller):
        for fault in gateway_faults(found, stores, controller):
            yield Fault(fault.reason, path, f"{_parent(route, reference)} is not served: {fault}")
    else:
        yield Fault("NoMatchingParent", path, f"{_parent(route, reference)} belongs to no Gateway of this controller")


def _no_listener(route: Resource, reference: Mapping[str, Any], stores: Mapping[str, Any]) -> str:
    wanted = [f"{field} {text_of(reference, field)}" for field in ("sectionName", "port") if text_of(reference, field)]
    gateway = single(stores, "gateways", target_namespace(reference, route), text_of(reference, "name"))
    known = [
        f"{one.name} at port {one.port}" for one in (all_listeners(gateway, stores) if gateway is not None else ())
    ]
    listed = f" (listeners: {_listed(known)})" if known else ""
    return (
        f"{_parent(route, reference)} has no usable listener{' with ' if wanted else ''}{' and '.join(wanted)}{listed}"
    )


def _backend_faults(route: Resource, kind: RouteKind, stores: Mapping[str, Any]) -> Iterator[Fault]:
    for number, rule in rules_of(route):
        for index, reference in enumerate(items_of(rule, "backendRefs")):
            path = f"spec.rules[{number}].backendRefs[{index}]"
            try:
                name, reason, message = resolve(route, reference, kind.name, stores)
            except GatewayObjectError as error:
                name, reason, message = "", "BackendNotFound", str(error)
            if reason:
                text = message.removeprefix("backendRefs: ")
                yield Fault(reason, path, f"{text}; requests for it are answered with 500")
            elif name and not _has_endpoints(route, reference, stores):
                namespace = target_namespace(reference, route)
                service = f"{namespace}/{text_of(reference, 'name')}"
                text = f"the Service {service} has no ready endpoint; requests for it are answered with 503"
                yield Fault("NoEndpoints", path, text)


def _has_endpoints(route: Resource, reference: Mapping[str, Any], stores: Mapping[str, Any]) -> bool:
    namespace = target_namespace(reference, route)
    try:
        return bool(endpoints_of(stores, namespace, text_of(reference, "name"), reference["port"]))
    except GatewayObjectError:
        # Another message is about the endpoints.
        return True


def _named(kind: str, names: list[str], otherwise: str) -> str:
    return f"the {kind} {_listed(names)} with" if names else f"{kind} {otherwise}"


def _listed(names: Iterable[str]) -> str:
    known = list(names)
    return ", ".join(known[:_MOST_NAMES]) + (", …" if len(known) > _MOST_NAMES else "")
