"""Two namespaces that want one host, with a controller at work: who has it, and who has it when the other is gone."""

import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from tests.features.harness import LIMIT, Site, controller
from tests.support.kubernetes import endpoint, endpoint_slice, ingress, path, rule, service, tls_secret
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port
from tests.support.traffic.servers import names_of

pytestmark = pytest.mark.haproxy

HOST = "shop.localhost"
AUTHORITY = trustme.CA()


def tenant(namespace: str, port: int, kind: str, age: int) -> list[dict[str, Any]]:
    """Return an Ingress for the host with a path of *kind*, what it names, and a certificate with another name, too."""
    issued = AUTHORITY.issue_cert(HOST, f"{namespace}.localhost", key_type=trustme.KeyType.ECDSA)
    return [
        tls_secret(
            # Older than any other: what counts is the Ingress.
            "tls",
            issued.cert_chain_pems[0].bytes(),
            issued.private_key_pem.bytes(),
            namespace=namespace,
            age=20 - age,
        ),
        service("web", namespace=namespace),
        endpoint_slice("web", endpoint("127.0.0.1"), ports=port, namespace=namespace),
        ingress(
            "web",
            rule(HOST, path("/login", "web", kind=kind)),
            namespace=namespace,
            age=age,
            tls=[{"hosts": [HOST], "secretName": "tls"}],
        ),
    ]


async def shows(port: int, namespace: str) -> None:
    """Return once the certificate of *namespace* is shown for the host."""
    with trio.fail_after(LIMIT):
        while True:
            try:
                names = await trio.to_thread.run_sync(names_of, port, HOST)
            except (OSError, ssl.SSLError):
                names = set()
            if names == {HOST, f"{namespace}.localhost"}:
                return
            await trio.sleep(0.01)


async def test_the_older_one_has_path_and_certificate_and_the_younger_one_once_that_is_gone(
    site: Site, haproxy_binary: Path
) -> None:
    https = free_port()
    site.write_config(
        templating={"extraContext": {"httpPort": site.port, "httpsPort": https, "bindAddress": "127.0.0.1"}}
    )
    async with backend("older") as older, backend("younger") as younger, controller(site, haproxy_binary) as running:
        site.write("older", *tenant("older", older, "Prefix", 1))
        site.write("younger", *tenant("younger", younger, "Exact", 2))
        await running.serves(site, HOST, "older", "/login")
        await shows(https, "older")
        await running.quiet()
        assert await site.get(HOST, "/login") == (200, "older")
        await shows(https, "older")

        site.remove("older")
        await running.serves(site, HOST, "younger", "/login")
        await shows(https, "younger")

        site.write("older", *tenant("older", older, "Prefix", 1))
        await running.serves(site, HOST, "older", "/login")
        await shows(https, "older")
