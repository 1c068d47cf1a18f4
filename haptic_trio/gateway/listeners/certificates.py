"""Certificates that a listener can serve, and the reasons against the others."""

import base64
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from haptic_trio.gateway.grants import is_granted
from haptic_trio.gateway.objects import Lookups, Resource, derived, dig, items_of, single, text_of
from haptic_trio.x509_errors import UNREADABLE


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
    if not is_pair(secret):
        return CertificateProblem(
            "InvalidCertificateRef", f"the Secret {target}/{name} has no certificate with a matching private key"
        )
    return secret


def is_pair(secret: Resource) -> bool:
    """Whether *secret* holds a certificate and the private key that belongs to it."""
    data = dig(secret, "data")
    if not isinstance(data, Mapping):
        return False
    return _is_pair(text_of(data, "tls.crt"), text_of(data, "tls.key"))


@lru_cache(maxsize=4_096)
def _is_pair(certificate: str, key: str) -> bool:
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    try:
        chain = base64.b64decode(certificate, validate=True)
        certified = x509.load_pem_x509_certificate(chain).public_key().public_bytes(*form)
        own = load_pem_private_key(base64.b64decode(key, validate=True), None).public_key().public_bytes(*form)
    except UNREADABLE:
        return False
    return certified == own


@lru_cache(maxsize=20_000)
def names_in(encoded: str) -> frozenset[str] | None:
    """Return the names in the first certificate of *encoded*, PEM in Base64; None if it cannot be read."""
    try:
        certificate = x509.load_pem_x509_certificate(base64.b64decode(encoded))
        found = {str(one.value) for one in certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)}
        with suppress(x509.ExtensionNotFound):
            names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            found.update(names.get_values_for_type(x509.DNSName))
    except UNREADABLE:
        return None
    return frozenset(name.lower().rstrip(".") for name in found)


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
    content = derived(lookups, "configMaps", _authorities, namespace, name)
    return content if content and _is_certificates(content) else ""


def _authorities(found: Sequence[Resource]) -> str:
    return text_of(found[0], "data", "ca.crt") if found else ""


@lru_cache(maxsize=1_024)
def _is_certificates(text: str) -> bool:
    try:
        return bool(x509.load_pem_x509_certificates(text.encode()))
    except UNREADABLE:
        return False
