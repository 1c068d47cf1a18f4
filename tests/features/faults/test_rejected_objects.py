"""HAProxy serves the last good version of a rejected object completely, or nothing of the object."""

import base64
import ssl
from pathlib import Path
from typing import Any

import pytest
import trio
import trustme

from haptic_trio.messages import ConfigPrepared, InstanceDeployed, Quarantined
from tests.features.harness import Running, Site, controller, ingress
from tests.support.processes.haproxy import backend
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy

NGINX = "nginx.ingress.kubernetes.io/"
LIBRARIES = ["base", "ssl", "ingress", "nginx-annotations"]
AUTHORITY = trustme.CA()


def configure(site: Site, https_port: int | None = None, **fields: Any) -> None:
    """Write a configuration with the annotations of ingress-nginx."""
    extra = {"httpPort": site.port, "bindAddress": "127.0.0.1", **({"httpsPort": https_port} if https_port else {})}
    site.write_config(templating={"libraries": LIBRARIES, "extraContext": extra}, **fields)


def shop(*, host: str = "shop.test", path: str = "/", **annotations: str) -> dict[str, Any]:
    """Return the Ingress `shop`."""
    found = ingress("shop", host, "web", path)
    found["metadata"]["annotations"] = {f"{NGINX}{key.replace('_', '-')}": text for key, text in annotations.items()}
    return found


async def rejected(running: Running, name: str, *, since: int = 0) -> Quarantined:
    """Return why the object was rejected, once what is served instead is deployed."""
    found = await running.wait(Quarantined, lambda event: event.ref.name == name, since=since)
    await running.quiet()
    return found


async def test_ingress_that_was_never_good_is_closed_and_served_in_no_part(site: Site, haproxy_binary: Path) -> None:
    configure(site)
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        # What would be asked if the rejected one was not there.
        site.write("open", ingress("open", "shop.test", "web", "/"))
        await running.serves(site, "shop.test", "one")

        site.write("shop", shop(path="/admin", server_alias="ok.test,~^www", whitelist_source_range="127.0.0.1"))
        found = await rejected(running, "shop")
        await running.answers(site, "shop.test", 503, "/admin/users")
        await running.answers(site, "ok.test", 503, "/admin/users")

        assert not found.has_fallback
        assert await site.get("shop.test", "/") == (200, "one")
        site.write("shop", shop(path="/admin", server_alias="ok.test", whitelist_source_range="127.0.0.1"))
        await running.serves(site, "ok.test", "one", "/admin/users")
        await running.serves(site, "shop.test", "one", "/admin/users")


async def test_rejected_version_leaves_the_former_one_whole(site: Site, haproxy_binary: Path) -> None:
    configure(site)
    async with backend("one") as port, backend("two") as other, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write_service("next", other)
        site.write("shop", shop(host="shop.test"))
        await running.serves(site, "shop.test", "one")

        # Another host, another Service, and something that cannot be.
        changed = shop(host="new.test", proxy_read_timeout="soon")
        changed["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = "next"
        site.write("shop", changed)
        found = await rejected(running, "shop")

        assert found.has_fallback
        assert await site.get("shop.test") == (200, "one")
        assert (await site.get("new.test"))[0] == 404
        # Its endpoints are those of now.
        async with backend("three") as third:
            site.write_service("web", third)
            await running.serves(site, "shop.test", "three")
        del changed["metadata"]["annotations"]
        site.write("shop", changed)
        await running.serves(site, "new.test", "two")
        assert (await site.get("shop.test"))[0] == 404


async def test_ingress_is_not_open_where_it_is_to_be_guarded(site: Site, haproxy_binary: Path) -> None:
    configure(site)
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write("shop", shop(proxy_read_timeout="9"))
        await running.serves(site, "shop.test", "one")

        site.write("shop", shop(proxy_read_timeout="9", whitelist_source_range="127.0.0.1/33"))
        found = await rejected(running, "shop")
        await running.answers(site, "shop.test", 503)
        assert not found.has_fallback

        site.write("shop", shop(whitelist_source_range="192.0.2.1"))
        await running.answers(site, "shop.test", 403)
        since = len(running.events)
        site.write("shop", shop(whitelist_source_range="192.0.2.1/33"))
        assert (await rejected(running, "shop", since=since)).has_fallback
        assert (await site.get("shop.test"))[0] == 403


async def test_a_path_that_a_guarded_ingress_moves_to_is_not_open(site: Site, haproxy_binary: Path) -> None:
    configure(site)
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        # What would be asked for a path that the last good version does not have.
        site.write("open", ingress("open", "shop.test", "web", "/"))
        site.write("shop", shop(path="/old", whitelist_source_range="192.0.2.1"))
        await running.answers(site, "shop.test", 403, "/old/x")

        # The path of the last good version guards those below it.
        since = len(running.events)
        site.write("shop", shop(path="/old/below", whitelist_source_range="192.0.2.1/33"))
        assert (await rejected(running, "shop", since=since)).has_fallback
        assert (await site.get("shop.test", "/old/below"))[0] == 403

        since = len(running.events)
        site.write("shop", shop(path="/new", whitelist_source_range="192.0.2.1/34"))
        await running.answers(site, "shop.test", 503, "/new/x")
        assert not (await rejected(running, "shop", since=since)).has_fallback
        # The new version no longer has it.
        assert (await site.get("shop.test", "/old/x"))[0] == 200


async def test_a_rejected_canary_passes_no_newer_rule_of_the_ingress_that_it_shares(
    site: Site, haproxy_binary: Path
) -> None:
    """The last good version of the canary has the rules of that time: a client could choose it by a header."""
    configure(site)

    def canary(**annotations: str) -> dict[str, Any]:
        found = shop(canary="true", canary_by_header="X-Canary", **annotations)
        found["metadata"]["name"] = "canary"
        found["spec"]["rules"][0]["http"]["paths"][0]["backend"]["service"]["name"] = "next"
        return found

    async with backend("one") as port, backend("two") as other, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write_service("next", other)
        site.write("shop", shop(proxy_read_timeout="9"))
        site.write("canary", canary())
        await running.serves(site, "shop.test", "one")
        await running.quiet()
        assert await site.get("shop.test", X_Canary="always") == (200, "two")

        site.write("canary", canary(no_such_annotation="x"))
        assert (await rejected(running, "canary")).has_fallback
        assert await site.get("shop.test", X_Canary="always") == (200, "two")

        site.write("shop", shop(proxy_read_timeout="9", whitelist_source_range="192.0.2.1"))
        await running.answers(site, "shop.test", 403)
        await running.quiet()
        assert (await site.get("shop.test", X_Canary="always"))[0] == 403

        # Nor does one that is rejected and has lost the annotation.
        site.write("shop", shop(proxy_read_timeout="9"))
        site.write("canary", canary())
        await running.serves(site, "shop.test", "one")
        await running.quiet()
        assert await site.get("shop.test", X_Canary="always") == (200, "two")
        former = canary(no_such_annotation="x")
        del former["metadata"]["annotations"][f"{NGINX}canary"]
        since = len(running.events)
        site.write("canary", former)
        assert not (await rejected(running, "canary", since=since)).has_fallback
        assert await site.get("shop.test", X_Canary="always") == (200, "one")
        site.write("shop", shop(proxy_read_timeout="9", whitelist_source_range="192.0.2.1"))
        await running.answers(site, "shop.test", 403)
        await running.quiet()
        assert (await site.get("shop.test", X_Canary="always"))[0] == 403
        # Its own routes were never good.
        site.remove("shop")
        await running.answers(site, "shop.test", 503)


async def test_an_ingress_that_becomes_a_rejected_canary_is_served_by_its_last_good_version_or_not_at_all(
    site: Site, haproxy_binary: Path
) -> None:
    configure(site)
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        # What would be asked without the routes of the other one.
        site.write("open", ingress("open", "shop.test", "web", "/"))
        site.write("shop", shop(path="/admin", whitelist_source_range="192.0.2.1"))
        await running.answers(site, "shop.test", 403, "/admin")
        await running.quiet()

        site.write("shop", shop(path="/admin", canary="true", no_such_annotation="x"))
        assert (await rejected(running, "shop")).has_fallback
        assert (await site.get("shop.test", "/admin"))[0] == 403
        assert (await site.get("shop.test", "/"))[0] == 200

        # Another Ingress has the path now: the rules of that one count.
        since = len(running.events)
        other = shop(path="/admin", whitelist_source_range="127.0.0.1")
        other["metadata"]["name"] = "other"
        site.write("other", other)
        await running.serves(site, "shop.test", "one", "/admin")
        assert not (await rejected(running, "shop", since=since)).has_fallback
        other["metadata"]["annotations"][f"{NGINX}whitelist-source-range"] = "192.0.2.2"
        site.write("other", other)
        await running.answers(site, "shop.test", 403, "/admin")


def tls_secret(when: str, certificate: trustme.LeafCert, key: trustme.LeafCert, name: str = "late") -> dict[str, Any]:
    """Return a Secret that was created at the time *when*."""
    data = {"tls.crt": certificate.cert_chain_pems[0].bytes(), "tls.key": key.private_key_pem.bytes()}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/tls",
        "metadata": {"name": name, "namespace": "default", "creationTimestamp": when},
        "data": {field: base64.b64encode(text).decode() for field, text in data.items()},
    }


async def has_certificate(port: int, host: str) -> bool:
    """Whether clients that ask for *host* get a certificate of the configuration for it."""
    context = ssl.create_default_context()
    AUTHORITY.configure_trust(context)
    stream = trio.SSLStream(await trio.open_tcp_stream("127.0.0.1", port), context, server_hostname=host)
    try:
        await stream.do_handshake()
    except trio.BrokenResourceError:
        return False
    finally:
        await trio.aclose_forcefully(stream)
    return True


async def test_recreated_secret_keeps_its_last_good_version_before_it_is_checked(
    site: Site, haproxy_binary: Path
) -> None:
    https_port = free_port()
    # The check of what is deployed at runtime comes too late for this test.
    configure(site, https_port, validation={"interval": "10m"})
    good, other = AUTHORITY.issue_cert("late.test"), AUTHORITY.issue_cert("late.test")
    first = AUTHORITY.issue_cert("shop.test")
    wanted = ingress("late", "late.test", "web")
    wanted["spec"]["tls"] = [{"hosts": ["late.test"], "secretName": "late"}]
    served = shop()
    served["spec"]["tls"] = [{"hosts": ["shop.test"], "secretName": "first"}]
    async with backend("one") as port:
        site.write_service("web", port)
        site.write("shop", served, tls_secret("2024-01-01T00:00:00Z", first, first, "first"))
        site.write("late", wanted)
        site.write("bad", ingress("bad", "bad.test", "web", "/a//b"))
        async with controller(site, haproxy_binary) as running:
            await running.serves(site, "shop.test", "one")
            await running.quiet()
            since = len(running.events)
            site.write("secret", tls_secret("2024-01-01T00:00:00Z", good, good))
            await running.wait(ConfigPrepared, since=since)
            await running.wait(InstanceDeployed, since=since)
            assert await has_certificate(https_port, "late.test")

            site.write("secret", tls_secret("2024-02-01T00:00:00Z", good, other))
            found = await rejected(running, "late")

            assert found.has_fallback
            assert await has_certificate(https_port, "late.test")
