"""Certificates that a listener can serve, and the reasons against the others."""

import base64
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.objects import Lookups, Resource, derived, items_of, single, text_of
from haptic_trio.x509 import bundles
from haptic_trio.x509.bundles import names_in
from haptic_trio.x509.verdicts import cached

_SEARCHED: Final = 131_072
"""Characters in Base64 among which the first certificate of a Secret is searched for."""


class CertificateProblem(msgspec.Struct, frozen=True):
    """The problem of a certificate reference: reason and message of a condition."""

    reason: str
    message: str


def secret_of(lookups: Lookups, reference: Any, *, kind: str, namespace: str) -> Resource | CertificateProblem:
    """Return the TLS Secret that *reference* of an object of *kind* in *namespace* names, or its problem."""
    group, ref_kind, name = (
        text_of(reference, "group"),
        text_of(reference, "kind") or "Secret",
        text_of(reference, "name"),
    )
    if group or ref_kind != "Secret":
        return CertificateProblem(
            "InvalidCertificateRef", f"{ref_kind} of the group {group or 'core'} is not supported; use a Secret"
        )
    target = text_of(reference, "namespace") or namespace
    permitted = is_granted(lookups, kind=kind, namespace=namespace, to_namespace=target, to_kind="Secret", to_name=name)
    if not permitted:
        return CertificateProblem("RefNotPermitted", f"no ReferenceGrant permits the Secret {target}/{name}")
    secret = single(lookups, "tlsSecrets", target, name)
    if secret is None:
        return CertificateProblem("InvalidCertificateRef", f"the TLS Secret {target}/{name} does not exist")
    if fault := _find_fault(text_of(secret, "data", "tls.crt"), text_of(secret, "data", "tls.key")):
        return CertificateProblem("InvalidCertificateRef", f"the Secret {target}/{name} cannot be used: {fault}")
    return secret


@cached(4_096)
def _find_fault(certificate: str, key: str) -> str:
    """Return why HAProxy cannot use a certificate and a private key in Base64; empty if it can."""
    try:
        parts = [base64.b64decode(one, validate=True).decode() for one in (certificate, key)]
    except ValueError:
        return "tls.crt and tls.key must be PEM in Base64"
    try:
        bundles.bundle_of(*parts, is_pair=True)
    except bundles.BundleError as exc:
        return str(exc)
    return ""


def names_of(secret: Resource) -> frozenset[str] | None:
    """Return the names in the certificate of *secret*; None if it cannot be read or is too large."""
    try:
        return names_in(base64.b64decode(text_of(secret, "data", "tls.crt")[:_SEARCHED]))
    except ValueError:
        return None


def certificates_of(
    lookups: Lookups, listener: Any, *, kind: str, namespace: str
) -> tuple[tuple[Resource, ...], tuple[CertificateProblem, ...]]:
    """Return the Secrets that *listener*, of an object of *kind*, serves, and the problems of other references."""
    secrets, problems = [], []
    for reference in items_of(listener, "tls", "certificateRefs"):
        found = secret_of(lookups, reference, kind=kind, namespace=namespace)
        if isinstance(found, CertificateProblem):
            problems.append(found)
        else:
            secrets.append(found)
    return tuple(secrets), tuple(problems)


def authorities_in(lookups: Lookups, namespace: str, name: str) -> str:
    """Return the CA certificates in a ConfigMap, as PEM; empty if there are none."""
    return derived(lookups, "configMaps", _authorities, namespace, name) or ""


def _authorities(found: Sequence[Resource]) -> str:
    try:
        return bundles.authorities_in(text_of(found[0], "data", "ca.crt")) if found else ""
    except bundles.BundleError:
        return ""
