"""Client certificates: those that a Gateway demands, and the one that it presents to backends."""

from typing import Any, Final

import msgspec

from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.listeners.certificates import CertificateProblem, authorities_in, secret_of
from haptic_trio.gateway.listeners.listeners import parent_of
from haptic_trio.gateway.objects import (
    GROUP,
    Lookups,
    Resource,
    bare,
    checked_name,
    dig,
    hash_of,
    items_of,
    name_of,
    namespace_of,
    target_namespace,
    text_of,
)

_LONGEST_SUFFIX: Final = 55
"""The rest of 255 characters, which HAProxy's names may have, after `MAX_NAME`."""


class ClientValidation(msgspec.Struct, frozen=True):
    """Validation of client certificates on a port."""

    authorities: str = ""
    """CA certificates that verify clients, as PEM; empty if there are none."""
    is_optional: bool = False
    reason: str = ""
    message: str = ""


def client_validation(gateway: Resource, port: int, lookups: Lookups) -> ClientValidation | None:
    """Return the validation of client certificates on *port* of *gateway*; None if none are required."""
    frontend = dig(gateway, "spec", "tls", "frontend")
    own = next((entry for entry in items_of(frontend, "perPort") if entry.get("port") == port), None)
    validation = dig(frontend, "default", "validation") if own is None else dig(own, "tls", "validation")
    if validation is None:
        return None
    found: list[str] = []
    reason = message = ""
    for reference in items_of(validation, "caCertificateRefs"):
        authorities, problem = _authorities(gateway, reference, lookups)
        found += [authorities] if authorities else []
        if problem is not None and not reason:
            reason, message = problem.reason, problem.message
    is_optional = text_of(validation, "mode") == "AllowInsecureFallback"
    return ClientValidation("\n".join(found), is_optional, reason, message)


def _authorities(gateway: Resource, reference: Any, lookups: Lookups) -> tuple[str, CertificateProblem | None]:
    kind, name = text_of(reference, "kind"), text_of(reference, "name")
    if text_of(reference, "group") or kind != "ConfigMap":
        return "", CertificateProblem("InvalidCACertificateKind", "caCertificateRefs: use a ConfigMap")
    own = namespace_of(gateway)
    namespace = text_of(reference, "namespace") or own
    permitted = is_granted(
        lookups, kind="Gateway", namespace=own, to_namespace=namespace, to_kind="ConfigMap", to_name=name
    )
    if not permitted:
        return "", CertificateProblem("RefNotPermitted", f"no ReferenceGrant permits the ConfigMap {namespace}/{name}")
    content = authorities_in(lookups, namespace, name)
    if not content:
        message = f"the ConfigMap {namespace}/{name} has no certificates under ca.crt"
        return "", CertificateProblem("InvalidCACertificateRef", message)
    return content, None


def has_insecure_fallback(gateway: Resource) -> bool:
    """Whether some port accepts clients without a valid certificate."""
    frontend = dig(gateway, "spec", "tls", "frontend")
    validations = [dig(frontend, "default", "validation")]
    validations += [dig(entry, "tls", "validation") for entry in items_of(frontend, "perPort")]
    return any(text_of(validation, "mode") == "AllowInsecureFallback" for validation in validations)


def has_client_certificate(gateway: Resource) -> bool:
    """Whether *gateway* names a client certificate for backends."""
    return dig(gateway, "spec", "tls", "backend", "clientCertificateRef") is not None


def client_certificate(gateway: Resource, lookups: Lookups) -> Resource | CertificateProblem | None:
    """Return the Secret with the client certificate that *gateway* presents to backends, its problem, or None."""
    reference = dig(gateway, "spec", "tls", "backend", "clientCertificateRef")
    if reference is None:
        return None
    found = secret_of(lookups, reference, kind="Gateway", namespace=namespace_of(gateway))
    if isinstance(found, CertificateProblem) and found.reason == "InvalidCertificateRef":
        return CertificateProblem("InvalidClientCertificateRef", found.message)
    return found


def certificate_suffix(gateway: Resource) -> str:
    """Return the suffix of the names of backends that get the client certificate of *gateway*.

    It begins with a single colon, which no name of a session has: so no route
    can choose the name of such a backend.
    """
    text = f":tls_{checked_name(namespace_of(gateway))}_{checked_name(name_of(gateway))}"
    if len(text) <= _LONGEST_SUFFIX:
        return text
    # One part instead of two: no other Gateway has it.
    return f":tls_{hash_of(text)}"


def certificates_for(route: Resource, lookups: Lookups) -> dict[str, Resource]:
    """Return the client certificates of the Gateways that *route* names, by the suffix of the backends' names."""
    found: dict[str, Resource] = {}
    for reference in items_of(route, "spec", "parentRefs"):
        if (text_of(reference, "group") or GROUP) != GROUP:
            continue
        namespace = target_namespace(reference, route)
        name = text_of(reference, "name")
        gateway: Resource | None = None
        if (text_of(reference, "kind") or "Gateway") == "Gateway":
            gateway = bare(lookups, "gateways", namespace, name)
        elif text_of(reference, "kind") == "ListenerSet":
            listener_set = bare(lookups, "listenerSets", namespace, name)
            gateway = parent_of(listener_set, lookups) if listener_set is not None else None
        secret = client_certificate(gateway, lookups) if gateway is not None else None
        if gateway is not None and secret is not None and not isinstance(secret, CertificateProblem):
            found[certificate_suffix(gateway)] = secret
    return found
