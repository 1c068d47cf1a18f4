"""Conditions of Gateway API objects, without the times of their last transitions."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from haptic_trio.gateway.conditions import condition
from haptic_trio.gateway.extensions import NO_FILTERS, Allowed, filter_problems
from haptic_trio.gateway.features import FEATURES
from haptic_trio.gateway.listeners.addresses import IP_ADDRESS, Placement
from haptic_trio.gateway.listeners.certificates import CertificateProblem, certificates_of
from haptic_trio.gateway.listeners.clients import (
    ClientValidation,
    client_certificate,
    client_validation,
    has_insecure_fallback,
)
from haptic_trio.gateway.listeners.listener_limits import listeners_beyond
from haptic_trio.gateway.listeners.listeners import (
    Listener,
    all_listeners,
    allows_set,
    has_hostname_fault,
    is_rejected,
    listeners_of,
    listeners_of_set,
)
from haptic_trio.gateway.listeners.overlaps import overlapping
from haptic_trio.gateway.listeners.port_rules import TOO_MANY, TOO_MANY_OWN, PortRules
from haptic_trio.gateway.objects import (
    GROUP,
    Lookups,
    Resource,
    dig,
    generation_of,
    items_of,
    namespace_of,
)
from haptic_trio.gateway.routes.attachment import (
    DISPLACED,
    NO_HOSTNAME,
    NO_PARENT,
    NOT_ALLOWED,
    attach,
)
from haptic_trio.gateway.routes.backends import mirrors_of, resolve
from haptic_trio.gateway.routes.kinds import RouteKind
from haptic_trio.gateway.routes.matches import rules_of
from haptic_trio.gateway.routes.rules import dropped_text, faults_of
from haptic_trio.status.gateway_versions import version_condition

NOTHING: Final[Mapping[int, str]] = MappingProxyType({})
_MESSAGES: Final = {
    NO_PARENT: "no listener has this name and port",
    NOT_ALLOWED: "no listener allows routes of this kind or namespace",
    NO_HOSTNAME: "no listener and route have a host name in common",
    DISPLACED: "an older route of another kind has one of the host names on this listener",
}


def class_status(
    gateway_class: Resource, features: Iterable[str] = FEATURES, versions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the status of a GatewayClass of this controller with the supported *features*.

    *versions* are those of the definitions of the Gateway API, by name; empty if they are unknown.
    """
    generation = generation_of(gateway_class)
    if dig(gateway_class, "spec", "parametersRef"):
        accepted = condition(
            "Accepted", False, "InvalidParameters", "parametersRef is not supported", generation=generation
        )
    else:
        accepted = condition("Accepted", True, "Accepted", generation=generation)
    conditions = [accepted, *([version_condition(versions, generation)] if versions else ())]
    return {"conditions": conditions, "supportedFeatures": [{"name": name} for name in sorted(features)]}


def gateway_status(
    gateway: Resource,
    lookups: Lookups,
    placement: Placement,
    counts: Mapping[str, int],
    taken: Mapping[int, str] = NOTHING,
    rules: PortRules = PortRules(),  # noqa: B008  immutable
) -> dict[str, Any]:
    """Return the status of a Gateway of this controller.

    *counts* says how many routes each listener has, by its key; *taken* are ports that it cannot have, and why.
    """
    generation = generation_of(gateway)
    listeners = listeners_of(gateway)
    everything = _served(gateway, lookups, listeners_beyond(gateway, lookups, rules))
    sets = {
        (listener.namespace, listener.owner)
        for listener in everything
        if listener.kind == "ListenerSet" and listener.is_accepted
    }
    overlaps = overlapping(everything)
    entries = [
        listener_status(listener, gateway, lookups, counts.get(listener.key, 0), generation, taken, overlaps)
        for listener in listeners
    ]
    return {
        "attachedListenerSets": len(sets),
        "addresses": [{"type": kind_of(address), "value": address} for address in placement.addresses],
        "conditions": _gateway_conditions(gateway, listeners, entries, placement, lookups, taken),
        "listeners": entries,
    }


class Neighbours:
    """Parts that the statuses of all ListenerSets of a Gateway share, computed once."""

    def __init__(self, gateway: Resource, lookups: Lookups, taken: Mapping[int, str], rules: PortRules) -> None:
        self.gateway = gateway
        self.beyond = listeners_beyond(gateway, lookups, rules)
        self.overlaps = overlapping(_served(gateway, lookups, self.beyond))
        self.taken = taken


def _served(gateway: Resource, lookups: Lookups, beyond: Mapping[str, Listener]) -> tuple[Listener, ...]:
    """Return the listeners of *gateway* without those *beyond* the limit."""
    everything = all_listeners(gateway, lookups)
    return tuple(listener for listener in everything if listener.key not in beyond) if beyond else everything


def set_status(
    listener_set: Resource, neighbours: Neighbours, lookups: Lookups, counts: Mapping[str, int]
) -> dict[str, Any]:
    """Return the status of a ListenerSet among its *neighbours*; *counts* as for `gateway_status`."""
    generation = generation_of(listener_set)
    gateway, taken, overlaps = neighbours.gateway, neighbours.taken, neighbours.overlaps
    listeners = listeners_of_set(listener_set, gateway, lookups)
    entries = [
        listener_status(
            *(listener, gateway, lookups, counts.get(listener.key, 0), generation, taken, overlaps),
            is_beyond=listener.key in neighbours.beyond,
        )
        for listener in listeners
    ]
    served = [entry for entry in entries if is_programmed(entry)]
    if not allows_set(gateway, listener_set, lookups):
        verdict = False, "NotAllowed", "the Gateway does not allow ListenerSets of this namespace"
        programmed = verdict
    elif is_rejected(gateway):
        verdict = False, "ParentNotAccepted", "the Gateway is not accepted"
        programmed = False, "ParentNotProgrammed", "the Gateway is not accepted"
    elif not served:
        verdict = False, "ListenersNotValid", "no listener can be served"
        programmed = verdict
    else:
        verdict = True, "Accepted" if len(served) == len(listeners) else "ListenersNotValid", ""
        programmed = True, "Programmed", ""
    return {
        "conditions": [
            condition("Accepted", *verdict, generation=generation),
            condition("Programmed", *programmed, generation=generation),
        ],
        "listeners": entries,
    }


def is_programmed(entry: Mapping[str, Any]) -> bool:
    """Whether *entry*, the status of a listener, has the condition Programmed."""
    return _says(entry, "Programmed")


def _says(entry: Mapping[str, Any], kind: str) -> bool:
    return any(one["type"] == kind and one["status"] == "True" for one in entry["conditions"])


def kind_of(address: str) -> str:
    """Return the type of *address*."""
    return IP_ADDRESS if address.replace(".", "").isdigit() or ":" in address else "Hostname"


def _gateway_conditions(
    gateway: Resource,
    listeners: Sequence[Listener],
    entries: Sequence[Mapping[str, Any]],
    placement: Placement,
    lookups: Lookups,
    taken: Mapping[int, str],
) -> list[dict[str, Any]]:
    generation = generation_of(gateway)
    accepted = [
        listener
        for listener in listeners
        if listener.is_accepted and listener.port not in taken and not _clients_fault(listener, gateway, lookups)
    ]
    if is_rejected(gateway):
        verdict = False, "InvalidParameters", "infrastructure.parametersRef is not supported"
    elif placement.unsupported:
        verdict = False, "UnsupportedAddress", "addresses of this type are not supported"
    elif len(accepted) < len(listeners):
        verdict = bool(accepted), "ListenersNotValid", "some listeners cannot be served"
    else:
        verdict = True, "Accepted", ""
    if not verdict[0]:
        programmed = False, "Invalid", "the Gateway is not accepted"
    elif placement.unusable:
        reason = "AddressNotUsable" if dig(gateway, "spec", "addresses") else "AddressNotAssigned"
        programmed = False, reason, placement.unusable
    elif not placement.addresses:
        programmed = False, "AddressNotAssigned", "the addresses of HAProxy are not known yet"
    else:
        programmed = True, "Programmed", ""
    conditions = [
        condition("Accepted", *verdict, generation=generation),
        condition("Programmed", *programmed, generation=generation),
    ]
    secret = client_certificate(gateway, lookups)
    if isinstance(secret, CertificateProblem):
        resolved = False, secret.reason, secret.message
    elif not all(_says(entry, "ResolvedRefs") for entry in entries):
        resolved = False, "ListenersNotResolved", "a listener has a reference that cannot be resolved"
    else:
        resolved = True, "ResolvedRefs", ""
    conditions.append(condition("ResolvedRefs", *resolved, generation=generation))
    if has_insecure_fallback(gateway):
        message = "clients without a valid certificate are accepted"
        conditions.append(
            condition("InsecureFrontendValidationMode", True, "ConfigurationChanged", message, generation=generation)
        )
    return conditions


def _clients_fault(listener: Listener, gateway: Resource, lookups: Lookups) -> ClientValidation | None:
    """Return the problem with the CA certificates of clients; None if they are valid."""
    clients = client_validation(gateway, listener.port, lookups) if listener.is_terminated else None
    return clients if clients is not None and (clients.reason or not clients.authorities) else None


def listener_status(
    listener: Listener,
    gateway: Resource,
    lookups: Lookups,
    attached: int,
    generation: int,
    taken: Mapping[int, str] = NOTHING,
    overlaps: frozenset[str] = frozenset(),
    *,
    is_beyond: bool = False,
) -> dict[str, Any]:
    """Return the status of *listener* of *gateway*, with its number of attached routes.

    *overlaps* has the keys of those that share hosts with others of their port. One that *is_beyond* the limit of its
    namespace is not served.
    """
    clients = _clients_fault(listener, gateway, lookups)
    fault, message = "", ""
    if listener.conflict:
        fault, message = listener.conflict, "another listener conflicts with this one"
    elif not listener.is_accepted:
        fault, message = "UnsupportedProtocol", "the protocol is not supported"
    elif is_beyond:
        is_own = listener.namespace == namespace_of(gateway)
        fault, message = "TooManyListeners", TOO_MANY_OWN if is_own else TOO_MANY
    elif listener.port in taken:
        fault, message = "PortUnavailable", taken[listener.port]
    elif has_hostname_fault(listener):
        fault, message = "UnsupportedValue", "the host name is invalid"
    elif clients is not None and not clients.authorities:
        fault, message = "NoValidCACertificate", clients.message
    secrets: tuple[Any, ...] = ()
    unresolved = ("InvalidRouteKinds", "a kind of routes is not supported") if listener.has_invalid_kinds else None
    if listener.is_terminated:
        secrets, problems = certificates_of(lookups, listener.source, kind=listener.kind, namespace=listener.namespace)
        if problems:
            unresolved = unresolved or (problems[0].reason, problems[0].message)
    if clients is not None and clients.reason:
        unresolved = unresolved or (clients.reason, clients.message)
    has_certificates = not listener.is_terminated or bool(secrets)
    is_served = not fault and has_certificates and bool(listener.kinds) and not is_rejected(gateway)
    conditions = [
        condition("Accepted", not fault, fault or "Accepted", message, generation=generation),
        condition(
            "Programmed",
            is_served,
            "Programmed" if is_served else listener.conflict or "Invalid",
            generation=generation,
        ),
        condition("ResolvedRefs", not unresolved, *(unresolved or ("ResolvedRefs", "")), generation=generation),
        condition(
            "Conflicted",
            bool(listener.conflict),
            listener.conflict or "NoConflicts",
            generation=generation,
        ),
    ]
    if listener.key in overlaps:
        message = (
            "another listener of the port has some of the hosts: requests for them on this one's connections get 421"
        )
        conditions.append(
            condition("OverlappingTLSConfig", True, "OverlappingHostnames", message, generation=generation)
        )
    return {
        "name": listener.name,
        "supportedKinds": [] if listener.conflict else [{"group": GROUP, "kind": kind} for kind in listener.kinds],
        "attachedRoutes": attached,
        "conditions": conditions,
    }


def route_parents(
    route: Resource, kind: RouteKind, lookups: Lookups, controller: str, filters: Allowed = NO_FILTERS
) -> list[dict[str, Any]]:
    """Return the status entries of *route* for its parents of this controller; *filters* are those it may name."""
    generation = generation_of(route)
    attachments = list(attach(route, kind.name, lookups, controller))
    if not attachments:
        return []
    faults = faults_of(route, kind, lookups)
    is_partial = 0 < len(faults) < sum(1 for _ in rules_of(route))
    refs = _resolved_refs(route, kind, lookups, generation, filters)
    parents = []
    for attachment in attachments:
        if attachment.reason:
            verdict = False, attachment.reason, _MESSAGES[attachment.reason]
        elif faults and not is_partial:
            verdict = False, faults[0].reason, str(faults[0])
        else:
            verdict = True, "Accepted", ""
        conditions = [condition("Accepted", *verdict, generation=generation), refs]
        if verdict[0] and is_partial:
            reason, message = faults[0].reason, dropped_text(faults)
            conditions.append(condition("PartiallyInvalid", True, reason, message, generation=generation))
        parents.append(
            {
                "parentRef": dict(attachment.reference),
                "controllerName": controller,
                "conditions": conditions,
            }
        )
    return parents


def _resolved_refs(
    route: Resource, kind: RouteKind, lookups: Lookups, generation: int, filters: Allowed
) -> dict[str, Any]:
    for _, rule in rules_of(route):
        for reference in (*items_of(rule, "backendRefs"), *mirrors_of(rule)):
            _, reason, message = resolve(route, reference, kind.name, lookups)
            if reason:
                return condition("ResolvedRefs", False, reason, message, generation=generation)
    for field, problem in filter_problems(route, filters):
        return condition("ResolvedRefs", False, problem.reason, f"{field}: {problem.message}", generation=generation)
    return condition("ResolvedRefs", True, "ResolvedRefs", generation=generation)


def same_parent(one: Any, other: Any) -> bool:
    """Whether two parent references are equal."""
    fields = ("group", "kind", "namespace", "name", "sectionName", "port")
    return all(dig(one, field) == dig(other, field) for field in fields)


def others_of(parents: Iterable[Any], controller: str) -> list[Any]:
    """Return the entries of a route's status that other controllers own."""
    return [parent for parent in parents if dig(parent, "controllerName") != controller]
