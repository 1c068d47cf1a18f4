"""The library `gateway` on a real HAProxy, over plain objects, with backends in this process."""

import base64
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from haptic_trio.config.model import Config
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.k8s.resource import Resource
from haptic_trio.pipeline.render import Rendered, Renderer
from haptic_trio.validation_tests.fixtures import make_stores
from tests.gateway.objects import gateway_class, made, plural_of
from tests.support.components.rendering import library_config
from tests.support.traffic.proxy import check, running

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


class Authority:
    """Issues certificates with names of any kind."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        constraints = x509.BasicConstraints(ca=True, path_length=None)
        found = self._builder(self._name).public_key(self._key.public_key()).add_extension(constraints, critical=True)
        self.certificate = found.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()

    def _builder(self, subject: x509.Name) -> x509.CertificateBuilder:
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            serial_number=x509.random_serial_number(),
            not_valid_before=BEGIN,
            not_valid_after=BEGIN + timedelta(days=36_500),
        )

    def issue(self, *hosts: str, uris: tuple[str, ...] = ()) -> tuple[str, str]:
        """Return a certificate and its key, as PEM."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = [*map(x509.DNSName, hosts), *map(x509.UniformResourceIdentifier, uris)]
        found = (
            self._builder(x509.Name([]))
            .public_key(key.public_key())
            .add_extension(x509.SubjectAlternativeName(names), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        return found.public_bytes(serialization.Encoding.PEM).decode(), key.private_bytes(*form).decode()

    def client(self) -> ssl.SSLContext:
        """Return what a client trusts the authority by."""
        return ssl.create_default_context(cadata=self.certificate)

    def config_map(self, name: str = "authority") -> Resource:
        """Return a ConfigMap with the authority's certificate."""
        return made("ConfigMap", name, version="v1", data={"ca.crt": self.certificate})


def secret(name: str, pair: tuple[str, str]) -> Resource:
    """Return a Secret with a certificate and its key."""
    certificate, key = (base64.b64encode(part.encode()).decode() for part in pair)
    return made("Secret", name, version="v1", type="kubernetes.io/tls", data={"tls.crt": certificate, "tls.key": key})


def endpoints(service: str, *ports: tuple[str, int]) -> Resource:
    """Return where a Service leads: to *ports* of this machine, by name."""
    listed = [{"name": name, "port": port} for name, port in ports]
    found = made(
        "EndpointSlice",
        f"{service}-1",
        version="discovery.k8s.io/v1",
        addressType="IPv4",
        ports=listed,
        endpoints=[{"addresses": ["127.0.0.1"]}],
    )
    found["metadata"]["labels"] = {"kubernetes.io/service-name": service}
    return found


def render(*objects: Resource, libraries: tuple[str, ...] = (), user: Config | None = None, **context: Any) -> Rendered:
    """Render *objects* of the class `haptic`, with more *libraries*; *context* is the extraContext of *user*."""
    names = "base", "ssl", *libraries, "gateway"
    config = library_config(*names, user=user, **{"gatewayAddresses": ["127.0.0.1"], **context})
    stores = make_stores(config)
    watched = config.watched_resources.items()
    for one in (gateway_class(), *objects):
        for name, kind in watched:
            if (kind.api_version, kind.resources) == (one["apiVersion"], plural_of(one)):
                stores[name].upsert(one)
    return Renderer(config).render_here(stores)


@contextmanager
def served(
    directory: Path, port: int, *objects: Resource, rejected: tuple[str, ...] = (), **context: Any
) -> Iterator[Rendered]:
    """Serve *objects* until the block ends; *port* is one of a Gateway, and *context* the user's extraContext.

    *rejected* are those of them that are rejected, such as `HTTPRoute web/app`.
    """
    rendered = render(*objects, bindAddress="127.0.0.1", **context)
    assert {str(one.subject) for one in rendered.rejections} == {*rejected}
    files = {file.path: file.content.decode() for file in rendered.files.values()}
    parse_config(rendered.text)
    assert check(directory, rendered.text, files) == ""
    with running(directory, rendered.text, files, port=port):
        yield rendered
