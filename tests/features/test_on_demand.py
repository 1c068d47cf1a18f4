"""Certificates from Secrets of which the controller holds the keys alone: real TLS from a real HAProxy."""

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.demo.certificate import DemoCertificate, make_certificate
from haptic_trio.messages import Quarantined, Released
from tests.features.harness import LIMIT, Running, controller, ingress
from tests.features.server_site import ServerSite
from tests.support.api_server.server import serving
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

HOST = "web.localhost"


class TlsSite(ServerSite):
    """A site with HTTPS, whose Secrets are fetched on demand."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.https = free_port()

    def write_tls_config(self) -> None:
        """Write the configuration, which fetches Secrets on demand."""
        secrets = {
            "apiVersion": "v1",
            "resources": "secrets",
            "fieldSelector": "type=kubernetes.io/tls",
            "store": "on-demand",
        }
        context = {"httpPort": self.port, "httpsPort": self.https, "bindAddress": "127.0.0.1"}
        self.write_config(watchedResources={"tlsSecrets": secrets}, templating={"extraContext": context})

    def write_secret(self, name: str, certificate: DemoCertificate) -> None:
        """Write a TLS Secret."""
        data = {"tls.crt": certificate.chain, "tls.key": certificate.key}
        self.write(
            f"secret-{name}",
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "type": "kubernetes.io/tls",
                "metadata": {"name": name, "namespace": "default"},
                "data": {field: base64.b64encode(text.encode()).decode() for field, text in data.items()},
            },
        )

    def write_tls_ingress(self, name: str, host: str, secret: str) -> None:
        """Write an Ingress for *host* with the certificate of *secret*."""
        resource = ingress(name, host, "web")
        resource["spec"]["tls"] = [{"hosts": [host], "secretName": secret}]
        self.write(f"ingress-{name}", resource)

    async def serves(self, host: str, certificate: DemoCertificate) -> None:
        """Return once *host* is served with *certificate*."""
        wanted = ssl.PEM_cert_to_DER_cert(certificate.chain)
        with trio.fail_after(LIMIT):
            while True:
                if await self._served(host) == wanted:
                    return
                await trio.sleep(0.02)

    async def _served(self, host: str) -> bytes | None:
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        try:
            stream = await trio.open_tcp_stream("127.0.0.1", self.https)
            async with trio.SSLStream(stream, context, server_hostname=host, https_compatible=True) as secured:
                await secured.do_handshake()
                served: bytes | None = secured.getpeercert(binary_form=True)
                return served
        except (OSError, trio.BrokenResourceError):
            # Not listening yet.
            return None


@asynccontextmanager
async def tls_controller(root: Path, binary: Path) -> AsyncIterator[tuple[TlsSite, Running, DemoCertificate]]:
    """Run the controller over an API server with an Ingress that has a certificate, and an unused Secret."""
    certificate = make_certificate(HOST)
    async with serving() as server, backend("one") as port:
        site = TlsSite(root, free_port(), server)
        server.write_kubeconfig(site.kubeconfig, token_file=str(site.token_file))
        site.write_tls_config()
        site.write_class()
        site.write_service("web", port)
        site.write_secret("unused", make_certificate("unused.localhost"))
        site.write_secret("web", certificate)
        site.write_tls_ingress("web", HOST, "web")
        async with controller(site, binary) as running:
            await site.serves(HOST, certificate)
            yield site, running, certificate


def reads(site: ServerSite) -> list[str]:
    """Return which Secrets were read one by one."""
    start = "GET /api/v1/namespaces/default/secrets/"
    return [request.removeprefix(start) for request in site.server.requests if request.startswith(start)]


async def test_certificates_are_served_and_rotated_and_no_secret_is_read_that_is_not_used(
    instance_root: Path, haproxy_binary: Path
) -> None:
    async with tls_controller(instance_root, haproxy_binary) as (site, running, _certificate):
        await running.quiet()
        before = await running.reloads()
        rotated = make_certificate(HOST)
        site.write_secret("web", rotated)
        await site.serves(HOST, rotated)
        assert await running.reloads() == before
        assert "unused" not in reads(site)
        assert reads(site).count("web") == 2


async def test_a_secret_that_cannot_be_read_keeps_its_certificate_and_is_read_again_once_it_can(
    instance_root: Path, haproxy_binary: Path
) -> None:
    async with tls_controller(instance_root, haproxy_binary) as (site, running, certificate):
        site.server.faults.unreadable.add("web")
        rotated = make_certificate(HOST)
        site.write_secret("web", rotated)
        held = await running.wait(Quarantined)
        assert held.ref.name == "web"
        assert "403" in held.problem.message
        assert held.has_fallback

        other = make_certificate("other.localhost")
        site.write_secret("other", other)
        site.write_tls_ingress("other", "other.localhost", "other")
        await site.serves("other.localhost", other)
        await site.serves(HOST, certificate)

        site.server.faults.unreadable.clear()
        # Nothing else has to change for that.
        await running.wait(Released)
        await site.serves(HOST, rotated)


async def test_a_lost_watch_has_no_secret_read_again(instance_root: Path, haproxy_binary: Path) -> None:
    async with tls_controller(instance_root, haproxy_binary) as (site, _running, certificate):
        site.server.cut_watches()
        site.server.compact()
        fresh = make_certificate("fresh.localhost")
        site.write_secret("fresh", fresh)
        site.write_tls_ingress("fresh", "fresh.localhost", "fresh")
        await site.serves("fresh.localhost", fresh)
        await site.serves(HOST, certificate)
        assert reads(site) == ["web", "fresh"]
