"""HAProxy connects to OCSP responders for certificates of Secrets only if the administrator trusts them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import AuthorityInformationAccessOID

from tests.libraries.conftest import Cluster
from tests.support.components.succession import Succession
from tests.support.kubernetes import ingress, path, rule, tls_secret
from tests.support.traffic.servers import PATIENCE, QuietHandler, answering

pytestmark = pytest.mark.haproxy

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
AUTHORITY_KEY = ec.generate_private_key(ec.SECP256R1())
AUTHORITY_NAME = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
Key = ec.EllipticCurvePrivateKey


def builder(name: x509.Name, key: Key) -> x509.CertificateBuilder:
    return x509.CertificateBuilder(
        issuer_name=AUTHORITY_NAME,
        subject_name=name,
        public_key=key.public_key(),
        serial_number=x509.random_serial_number(),
        not_valid_before=BEGIN,
        not_valid_after=BEGIN + timedelta(days=36_500),
    )


def pem_of(found: x509.CertificateBuilder) -> bytes:
    return found.sign(AUTHORITY_KEY, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def issued(host: str, responder: str, *, with_issuer: bool = True) -> tuple[bytes, bytes]:
    """Return a chain that names *responder*, if any, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    found = builder(x509.Name([]), key).add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=True)
    if responder:
        access = x509.AccessDescription(AuthorityInformationAccessOID.OCSP, x509.UniformResourceIdentifier(responder))
        found = found.add_extension(x509.AuthorityInformationAccess([access]), critical=False)
    issuer = builder(AUTHORITY_NAME, AUTHORITY_KEY).add_extension(x509.BasicConstraints(True, None), critical=True)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return pem_of(found) + (pem_of(issuer) if with_issuer else b""), key.private_bytes(*form)


@contextmanager
def responder() -> Iterator[tuple[str, threading.Event]]:
    """Run a server that knows no certificate; yields its address, and what is set once it is asked."""
    asked = threading.Event()

    class Handler(QuietHandler):
        def answer(self) -> None:
            asked.set()
            self.send_error(404)

    with answering(Handler) as port:
        yield f"http://127.0.0.1:{port}/", asked


def site(namespace: str, chain: tuple[bytes, bytes]) -> list[dict[str, object]]:
    """Return an Ingress of *namespace* with its certificate."""
    host = f"{namespace}.example.com"
    tls = [{"hosts": [host], "secretName": "pair"}]
    return [
        ingress("web", rule(host, path("/", "web")), namespace=namespace, tls=tls),
        tls_secret("pair", *chain, namespace=namespace),
    ]


def test_only_the_responders_of_trusted_namespaces_and_of_the_default_certificate_are_asked(cluster: Cluster) -> None:
    with responder() as (tenants, of_tenant), responder() as (own, of_own), responder() as (default, of_default):
        cluster.serve(
            *site("tenant", issued("tenant.example.com", tenants)),
            *site("trusted", issued("trusted.example.com", own)),
            tls_secret("default", *issued("default.example.com", default), namespace="certs"),
            ocspUpdate=True,
            ocspUpdateNamespaces=["trusted"],
            defaultCertificate="certs/default",
        )
        # HAProxy asks for one certificate after the other, in the order of the lists.
        assert of_default.wait(PATIENCE)
        assert of_own.wait(PATIENCE)
        assert not of_tenant.is_set()


@pytest.mark.parametrize("with_issuer", [True, False])
@pytest.mark.parametrize("responder", ["", "http://127.0.0.1:1/"])
def test_certificates_without_responder_or_issuer_are_served(
    cluster: Cluster, responder: str, with_issuer: bool
) -> None:
    chain = issued("trusted.example.com", responder, with_issuer=with_issuer)

    rendered = cluster.serve(*site("trusted", chain), ocspUpdate=True, ocspUpdateNamespaces=["trusted"])

    assert ("[ocsp-update on]" in rendered.files["ssl/https.list"]) is bool(responder and with_issuer)


def test_no_responder_is_asked_by_default(cluster: Cluster) -> None:
    chain = issued("trusted.example.com", "http://127.0.0.1:1/")

    for settings in ({}, {"ocspUpdateNamespaces": ["trusted"]}, {"ocspUpdate": True}):
        rendered = cluster.render(*site("trusted", chain), **settings)

        assert "ocsp-update" not in rendered.text + rendered.files["ssl/https.list"]


def test_a_rejected_secret_keeps_no_responder_of_a_namespace_that_is_no_longer_trusted() -> None:
    trusted: dict[str, Any] = {"ocspUpdate": True, "ocspUpdateNamespaces": ["tenant"]}
    controller = Succession(("base", "ssl", "ingress"), **trusted)
    objects = site("tenant", issued("tenant.example.com", "http://192.0.2.1/"))
    assert "ocsp-update on" in controller.render(*objects).texts["ssl/https.list"].text
    garbage = {**tls_secret("pair", b"-", b"-", namespace="tenant"), "data": {"tls.crt": "", "tls.key": ""}}
    garbage["metadata"]["resourceVersion"] = "2"
    assert "ocsp-update on" in controller.render(garbage).texts["ssl/https.list"].text

    lists = controller.configure(**{**trusted, "ocspUpdateNamespaces": ["other"]}).texts

    assert "ocsp-update" not in lists["ssl/https.list"].text
