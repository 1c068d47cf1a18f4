"""BackendTLSPolicies: which one applies to a Service port, its settings and problems."""

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from haptic_trio.gateway.conditions import condition
from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.hostnames import is_hostname
from haptic_trio.gateway.listeners.certificates import authorities_in
from haptic_trio.gateway.objects import (
    GROUP,
    GatewayObjectError,
    Lookups,
    Resource,
    age_of,
    bare_in,
    dig,
    found_in,
    items_of,
    name_of,
    namespace_of,
    single,
    target_namespace,
    text_of,
)
from haptic_trio.gateway.routes.attachment import attach
from haptic_trio.gateway.routes.kinds import ROUTE_KINDS

_MOST_ANCESTORS: Final = 16
"""The API allows no more."""
SNI: Final = "haptic-trio/sni"
"""The option of a policy that is `off` for servers whose certificates have no host name."""
# RFC 3986, without looking at the parts after the scheme.
_URI: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]{0,30}:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]{1,500}").fullmatch


class BackendTls(msgspec.Struct, frozen=True):
    """TLS settings of the connections to a backend."""

    hostname: str = ""
    """The server's host name; empty for an invalid policy: no request may be sent then."""
    authorities: str = ""
    """CA certificates that verify the server, as PEM; empty for the CA certificates of the system."""
    names: str = ""
    """Names in the format of `gateway-names.lua`; the certificate must have one. Empty: `hostname` is verified."""
    asks_for_hostname: bool = True
    """Whether `hostname` is sent as SNI; HAProxy then always requires a certificate for it."""


class Checked(msgspec.Struct, frozen=True):
    """The TLS settings of a policy, and the problem of its references."""

    tls: BackendTls
    reason: str = ""
    message: str = ""
    is_usable: bool = True


def tls_for(service: Resource, port_name: str, lookups: Lookups) -> BackendTls | None:
    """Return the TLS settings of connections to the port *port_name* of *service*; None without a policy."""
    namespace, name = namespace_of(service), name_of(service)
    policies = [
        (text_of(target, "sectionName") != port_name, age_of(policy), policy)
        for policy in bare_in(lookups, "backendTLSPoliciesByTarget", namespace, name)
        for target in items_of(policy, "spec", "targetRefs")
        if _is_service(target) and text_of(target, "name") == name and text_of(target, "sectionName") in ("", port_name)
    ]
    if not policies:
        return None
    policy = min(policies, key=lambda found: found[:2])[2]
    return check(policy, lookups).tls


def _is_service(target: Any) -> bool:
    return not text_of(target, "group") and text_of(target, "kind") == "Service"


def check(policy: Resource, lookups: Lookups) -> Checked:
    """Return the TLS settings of *policy*, with the problem if a reference is invalid."""
    validation = dig(policy, "spec", "validation")
    hostname = text_of(validation, "hostname").lower()
    if not is_hostname(hostname) or hostname.startswith("*"):
        return Checked(
            BackendTls(), "", "spec.validation.hostname must be a host name without wildcard", is_usable=False
        )
    asks = text_of(policy, "spec", "options", SNI) != "off"
    try:
        names = alternative_names(items_of(validation, "subjectAltNames"))
    except GatewayObjectError as error:
        return Checked(BackendTls(), "", str(error), is_usable=False)
    references = items_of(validation, "caCertificateRefs")
    if not references:
        is_system = text_of(validation, "wellKnownCACertificates") == "System"
        message = (
            "" if is_system else "spec.validation: set caCertificateRefs, or set wellKnownCACertificates to System"
        )
        tls = BackendTls(hostname, "", names, asks) if is_system else BackendTls()
        return Checked(tls, "", message, is_usable=is_system)
    found: list[str] = []
    reason = message = ""
    for reference in references:
        authorities, problem = authorities_of(policy, reference, lookups)
        found += [authorities] if authorities else []
        reason, message = (reason, message) if reason or not problem[0] else problem
    usable = BackendTls(hostname, "\n".join(found), names, asks) if found else BackendTls()
    return Checked(usable, reason, message, is_usable=bool(found))


def alternative_names(wanted: Sequence[Any]) -> str:
    """Return the names *wanted* by a policy in the format of the Lua action; raises `GatewayObjectError`."""
    return ".".join(_alternative_name(one) for one in wanted)


def _alternative_name(wanted: Any) -> str:
    hostname, uri = text_of(wanted, "hostname").lower(), text_of(wanted, "uri")
    match text_of(wanted, "type"):
        case "Hostname" if is_hostname(hostname):
            return f"d{hostname.encode().hex()}"
        case "URI" if _URI(uri):
            return f"u{uri.encode().hex()}"
    raise GatewayObjectError("spec.validation.subjectAltNames: each entry must be a host name or a URI")


def authorities_of(owner: Resource, reference: Any, lookups: Lookups) -> tuple[str, tuple[str, str]]:
    """Return the CA certificates in the ConfigMap that *reference* of *owner* names, and a reason and message."""
    if text_of(reference, "group") or text_of(reference, "kind") != "ConfigMap":
        return "", ("InvalidKind", "caCertificateRefs: use a ConfigMap")
    namespace, name = namespace_of(owner), text_of(reference, "name")
    content = authorities_in(lookups, namespace, name)
    if not content:
        return "", ("InvalidCACertificateRef", f"the ConfigMap {namespace}/{name} has no certificates under ca.crt")
    return content, ("", "")


def policy_ancestors(policy: Resource, lookups: Lookups, controller: str) -> list[dict[str, Any]]:
    """Return the status entries of *policy* for the Gateways of *controller* that send requests to its targets."""
    generation = dig(policy, "metadata", "generation")
    generation = generation if isinstance(generation, int) else 0
    checked = check(policy, lookups)
    if not _has_target(policy, lookups):
        verdict = False, "TargetNotFound", "spec.targetRefs: the Service, or its port, does not exist"
    elif _is_conflicted(policy, lookups):
        verdict = False, "Conflicted", "spec.targetRefs: an older BackendTLSPolicy has the same target"
    elif not checked.is_usable:
        reason = "NoValidCACertificate" if checked.reason else "Invalid"
        verdict = False, reason, checked.message
    else:
        verdict = True, "Accepted", ""
    conditions = [
        condition("Accepted", *verdict, generation=generation),
        condition(
            "ResolvedRefs",
            not checked.reason,
            checked.reason or "ResolvedRefs",
            checked.message if checked.reason else "",
            generation=generation,
        ),
    ]
    return [
        {"ancestorRef": reference, "controllerName": controller, "conditions": conditions}
        for reference in _gateways_before(policy, lookups, controller)[:_MOST_ANCESTORS]
    ]


def _has_target(policy: Resource, lookups: Lookups) -> bool:
    for target in items_of(policy, "spec", "targetRefs"):
        found = (
            single(lookups, "services", namespace_of(policy), text_of(target, "name")) if _is_service(target) else None
        )
        ports = {text_of(port, "name") for port in items_of(found, "spec", "ports")}
        if found is not None and text_of(target, "sectionName") in {"", *ports}:
            return True
    return False


def _is_conflicted(policy: Resource, lookups: Lookups) -> bool:
    return any(
        age_of(other) < age_of(policy)
        for target in items_of(policy, "spec", "targetRefs")
        for other in found_in(lookups, "backendTLSPoliciesByTarget", namespace_of(policy), text_of(target, "name"))
        for rival in items_of(other, "spec", "targetRefs")
        if all(text_of(rival, field) == text_of(target, field) for field in ("group", "kind", "name", "sectionName"))
    )


def _gateways_before(policy: Resource, lookups: Lookups, controller: str) -> Sequence[dict[str, str]]:
    namespace = namespace_of(policy)
    names = {text_of(target, "name") for target in items_of(policy, "spec", "targetRefs") if _is_service(target)}
    found: set[tuple[str, str]] = set()
    for kind in ROUTE_KINDS.values():
        for name in names:
            for route in found_in(lookups, kind.by_service, namespace, name):
                if _names(route, namespace, name) and is_granted(
                    lookups,
                    kind=kind.name,
                    namespace=namespace_of(route),
                    to_namespace=namespace,
                    to_kind="Service",
                    to_name=name,
                ):
                    for attachment in attach(route, kind.name, lookups, controller):
                        reference = attachment.reference
                        if (text_of(reference, "kind") or "Gateway") == "Gateway":
                            place = target_namespace(reference, route)
                            found.add((place, text_of(reference, "name")))
    return [
        {"group": GROUP, "kind": "Gateway", "namespace": place, "name": gateway} for place, gateway in sorted(found)
    ]


def _names(route: Resource, namespace: str, service: str) -> bool:
    return any(
        target_namespace(reference, route) == namespace and text_of(reference, "name") == service
        for rule in items_of(route, "spec", "rules")
        for reference in items_of(rule, "backendRefs")
    )
