"""DNS records that external-dns makes from objects and their status, by the rules of its documentation.

Written from the pages about its sources `ingress`, `gateway-httproute` and `service`, without its options: no
templates, no filters. It knows nothing of what writes the status.
"""

import ipaddress
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from haptic_trio.k8s.resource import Resource

Records: TypeAlias = dict[tuple[str, str], set[str]]
"""Targets by name and type of record."""
GATEWAY_GROUP: Final = "gateway.networking.k8s.io"
_ANNOTATION: Final = "external-dns.alpha.kubernetes.io/"
_CONTROLLER: Final = "dns-controller"


def records_of(
    *,
    ingresses: Iterable[Resource] = (),
    routes: Iterable[Resource] = (),
    gateways: Iterable[Resource] = (),
    services: Iterable[Resource] = (),
) -> Records:
    """Return the records of all objects together; *routes* are HTTPRoutes."""
    known = {(one["metadata"]["namespace"], one["metadata"]["name"]): one for one in gateways}
    found: Records = {}
    for name, target in (
        *(pair for one in ingresses for pair in of_ingress(one)),
        *(pair for one in routes for pair in of_route(one, known)),
        *(pair for one in services for pair in of_service(one)),
    ):
        found.setdefault((name, type_of(target)), set()).add(target)
    return found


def type_of(target: str) -> str:
    """Return the type of the record that leads to *target*."""
    try:
        return "A" if ipaddress.ip_address(target).version == 4 else "AAAA"
    except ValueError:
        return "CNAME"


def of_ingress(ingress: Resource) -> Iterator[tuple[str, str]]:
    """Yield name and target of the records of an Ingress."""
    if not _is_wanted(ingress):
        return
    spec, source = ingress.get("spec") or {}, _annotation(ingress, "ingress-hostname-source")
    defined = [rule.get("host") for rule in spec.get("rules") or ()]
    defined += [host for tls in spec.get("tls") or () for host in tls.get("hosts") or ()]
    hosts = [] if source == "annotation-only" else defined
    hosts += [] if source == "defined-hosts-only" else _words(ingress, "hostname")
    targets = _words(ingress, "target") or _load_balancer(ingress)
    yield from ((host, target) for host in hosts if host for target in targets)


def of_route(route: Resource, gateways: Mapping[tuple[str, str], Resource]) -> Iterator[tuple[str, str]]:
    """Yield name and target of the records of an HTTPRoute."""
    if not _is_wanted(route):
        return
    namespace, generation = route["metadata"]["namespace"], route["metadata"]["generation"]
    wanted = {_parent(one, namespace) for one in route["spec"].get("parentRefs") or ()}
    hostnames = route["spec"].get("hostnames") or []
    names = [*hostnames, *_words(route, "hostname"), *([] if hostnames else [""])]
    for status in (route.get("status") or {}).get("parents") or ():
        reference = status["parentRef"]
        parent = _parent(reference, namespace)
        gateway = gateways.get(parent[2:])
        if parent not in wanted or parent[:2] != (GATEWAY_GROUP, "Gateway") or gateway is None:
            continue
        if not _is_accepted(status.get("conditions") or (), generation):
            continue
        addresses = (gateway.get("status") or {}).get("addresses") or ()
        targets = _words(gateway, "target") or [one["value"] for one in addresses]
        for listener in gateway["spec"]["listeners"]:
            if _is_meant(reference, listener) and _allows(listener, gateway, namespace):
                for name in names:
                    host = _overlap(listener.get("hostname") or "", name)
                    if host:
                        yield from ((host, target) for target in targets)


def of_service(service: Resource) -> Iterator[tuple[str, str]]:
    """Yield name and target of the records of a Service, which only load balancers have."""
    if _is_wanted(service) and service["spec"].get("type") == "LoadBalancer":
        targets = _words(service, "target") or service["spec"].get("externalIPs") or _load_balancer(service)
        yield from ((host, target) for host in _words(service, "hostname") for target in targets)


def _annotation(resource: Resource, name: str) -> str:
    return str((resource["metadata"].get("annotations") or {}).get(_ANNOTATION + name) or "")


def _words(resource: Resource, name: str) -> list[str]:
    return [word.strip() for word in _annotation(resource, name).split(",") if word.strip()]


def _is_wanted(resource: Resource) -> bool:
    return _annotation(resource, "controller") in ("", _CONTROLLER)


def _load_balancer(resource: Resource) -> list[str]:
    entries = ((resource.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [one[field] for one in entries for field in ("ip", "hostname") if one.get(field)]


def _parent(reference: Mapping[str, Any], namespace: str) -> tuple[str, str, str, str]:
    return (
        reference.get("group") or GATEWAY_GROUP,
        reference.get("kind") or "Gateway",
        reference.get("namespace") or namespace,
        reference["name"],
    )


def _is_accepted(conditions: Iterable[Mapping[str, Any]], generation: int) -> bool:
    for one in conditions:
        if one["type"] == "Accepted":
            return bool(one["status"] == "True" and one.get("observedGeneration") == generation)
    return False


def _is_meant(reference: Mapping[str, Any], listener: Mapping[str, Any]) -> bool:
    return (
        listener["protocol"] in ("HTTP", "HTTPS")
        and reference.get("sectionName") in (None, "", listener["name"])
        and reference.get("port") in (None, listener["port"])
    )


def _allows(listener: Mapping[str, Any], gateway: Resource, namespace: str) -> bool:
    """Whether *listener* takes routes of *namespace*; selectors are not needed here."""
    allowed = (listener.get("allowedRoutes") or {}).get("namespaces") or {}
    is_same = bool(gateway["metadata"]["namespace"] == namespace)
    return is_same or allowed.get("from") == "All"


def _overlap(one: str, other: str) -> str:
    """Return the more specific of two host names if they overlap; empty: any host, or none."""
    if not one or not other or one == other:
        return one or other
    wide, narrow = sorted((one, other), key=lambda name: (not name.startswith("*."), len(name)))
    return narrow if wide.startswith("*.") and narrow.endswith(wide[1:]) else ""
