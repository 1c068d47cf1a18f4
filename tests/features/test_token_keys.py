"""The keys of tokens in a running controller: changed keys of a Secret or URL, without a reload where possible."""

import base64
from pathlib import Path

import pytest
import trio

from haptic_trio.messages import (
    HttpContentAccepted,
    HttpContentRejected,
    HttpFetched,
    InstanceDeployed,
    WarningRaised,
    WarningResolved,
)
from tests.features.harness import Site, controller, ingress
from tests.libraries.requests.tokens import (
    CLAIMS,
    OTHER_RSA,
    RSA_KEY,
    by_rsa,
    by_secret,
    encoded,
    key_set,
    of_rsa,
    public_pem,
    token,
)
from tests.support.processes.haproxy import backend
from tests.support.traffic.web import Page, serving_pages

pytestmark = pytest.mark.haproxy
OLD, NEW = b"old" * 20, b"new" * 20


def write_keys(site: Site, **entries: bytes) -> None:
    data = {name.replace("__", "."): base64.b64encode(value).decode() for name, value in entries.items()}
    meta = {"name": "keys", "namespace": "default"}
    site.write("keys", {"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": meta, "data": data})


def write_site(site: Site, **source: str) -> None:
    site.write_config(
        http={"allowedNetworks": ["127.0.0.1/32"], "minInterval": "50ms"},
        templating={
            "libraries": ["base", "ssl", "ingress", "haptic-annotations"],
            "extraContext": {
                "httpPort": site.port,
                "bindAddress": "127.0.0.1",
                "jwksUrls": list(source.values()),
                "jwksInterval": "100ms",
            },
        },
    )
    web = ingress("web", "web.test", "web")
    keys = {name.replace("_", "-"): value for name, value in source.items()} or {"jwt-secret": "keys"}
    annotations = {**keys, "jwt-issuer": CLAIMS["iss"], "jwt-audience": CLAIMS["aud"]}
    web["metadata"]["annotations"] = {f"haptic-trio/{name}": text for name, text in annotations.items()}
    site.write("ingress-web", web)


async def status(site: Site, bearer: str) -> int:
    async with await trio.open_tcp_stream("127.0.0.1", site.port) as stream:
        head = f"GET / HTTP/1.1\r\nHost: web.test\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\r\n"
        await stream.send_all(head.encode())
        return int(b"".join([chunk async for chunk in stream]).split()[1])


async def until_taken(site: Site, bearer: str) -> None:
    """Return once a request with *bearer* reaches the endpoint."""
    with trio.fail_after(60):
        while True:
            try:
                if await status(site, bearer) == 200:
                    return
            except (OSError, trio.BrokenResourceError, IndexError):
                pass
            await trio.sleep(0.01)


async def test_a_changed_public_key_replaces_the_former_one(site: Site, haproxy_binary: Path) -> None:
    former, latter = token("RS256", by_rsa(RSA_KEY)), token("RS256", by_rsa(OTHER_RSA))
    write_site(site)
    write_keys(site, key__pem=public_pem(RSA_KEY))
    async with backend("one") as one, controller(site, haproxy_binary):
        site.write_service("web", one)
        await until_taken(site, former)
        assert await status(site, latter) == 401

        write_keys(site, key__pem=public_pem(OTHER_RSA))
        await until_taken(site, latter)

        assert await status(site, former) == 401


async def test_a_changed_shared_secret_needs_no_reload(site: Site, haproxy_binary: Path) -> None:
    former, latter = token("HS256", by_secret(OLD)), token("HS256", by_secret(NEW))
    write_site(site)
    write_keys(site, shared__hmac=OLD)
    async with backend("one") as one, controller(site, haproxy_binary) as running:
        site.write_service("web", one)
        await until_taken(site, former)
        await running.quiet()
        since = len(running.events.all(InstanceDeployed))

        write_keys(site, shared__hmac=NEW)
        await until_taken(site, latter)
        await running.quiet()

        assert await status(site, former) == 401
        assert not any(event.result.reloaded for event in running.events.all(InstanceDeployed)[since:])


async def test_keys_of_a_url_are_kept_fresh_and_fail_closed(site: Site, haproxy_binary: Path) -> None:
    former, latter = token("RS256", by_rsa(RSA_KEY)), token("RS256", by_rsa(OTHER_RSA))
    async with serving_pages() as issuer, backend("one") as one:
        issuer.pages["/jwks"] = Page(status=503)
        write_site(site, jwt_jwks_url=issuer.url("/jwks"))
        site.write_service("web", one)
        site.write_ingress("other", "other.test", "web")
        async with controller(site, haproxy_binary) as running:
            # Without a key, requests of this Ingress alone are rejected.
            raised = await running.wait(WarningRaised)
            assert (raised.warning.subject.name, raised.warning.reason) == ("web", "NoTokenKeys")
            assert f"jwt-jwks-url: there is no key from {issuer.url('/jwks')}" in raised.warning.message
            await running.serves(site, "other.test", "one")
            assert await status(site, former) == 401

            # A published secret does not count, and keys that HAProxy cannot use are left out.
            shared = {"kty": "oct", "k": encoded(OLD), "alg": "HS256"}
            keys = [of_rsa(RSA_KEY, kid="1"), shared, {"kty": "OKP", "crv": "Ed25519", "x": "AA"}]
            issuer.text("/jwks", key_set(*keys).decode())
            await until_taken(site, former)
            await running.wait(WarningResolved)
            assert await status(site, latter) == 401
            assert await status(site, token("HS256", by_secret(OLD))) == 401

            since = len(running.events)
            issuer.text("/jwks", key_set(of_rsa(OTHER_RSA, kid="2")).decode())
            await until_taken(site, latter)
            await running.wait(HttpContentAccepted, since=since)
            assert await status(site, former) == 401

            # An issuer that fails, or answers with something else, does not take the keys away.
            await running.quiet()
            since = len(running.events)
            issuer.text("/jwks", "<html>down for maintenance</html>")
            rejected = await running.wait(HttpContentRejected, since=since)
            assert "not a JSON Web Key Set" in rejected.problem.message
            issuer.text("/jwks", " ")
            await running.wait(HttpFetched, lambda event: event.outcome == "failed", since=since)
            await running.quiet()
            assert await status(site, latter) == 200

            # An issuer that withdraws all keys is believed.
            issuer.text("/jwks", key_set().decode())
            await running.wait(WarningRaised, since=since)
            await running.quiet()
            assert await status(site, latter) == 401
            assert await site.get("other.test") == (200, "one")
