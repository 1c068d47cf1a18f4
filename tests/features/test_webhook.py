"""The whole controller, asked as the API server asks before it accepts an object."""

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import trio
import trustme
from prometheus_client import CollectorRegistry

from haptic_trio.channels import Latest
from haptic_trio.cli.webhook_service import serve_reviews
from haptic_trio.k8s.resource import Resource
from haptic_trio.metrics import Families
from haptic_trio.webhook.server import WebhookOptions
from tests.features.harness import Running, Site, controller, ingress
from tests.support.haproxy import backend

pytestmark = pytest.mark.haproxy
INGRESSES = {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"}


class ApiServer:
    """Asks, and takes no answer for the best one."""

    def __init__(self, url: str, authority: trustme.CA) -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        self._client = httpx.AsyncClient(verify=context, trust_env=False, timeout=10)
        self._url = url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._client.aclose()

    async def connect_until_refused(self) -> None:
        """Raises OSError, once nobody listens."""
        port = httpx.URL(self._url).port
        while True:
            stream = await trio.open_tcp_stream("127.0.0.1", port or 443)
            await stream.aclose()

    async def ask(self, resource: Resource, operation: str = "CREATE", old: Resource | None = None) -> dict[str, Any]:
        """Return the response to a review of *resource*."""
        request = {
            "uid": "u-1",
            "resource": INGRESSES,
            "name": resource["metadata"]["name"],
            "namespace": "default",
            "operation": operation,
            "object": None if operation == "DELETE" else resource,
            "oldObject": resource if operation == "DELETE" else old,
        }
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
        answer = await self._client.post(f"{self._url}?timeout=5s", json=review)
        assert answer.status_code == 200, answer.text
        response = answer.json()["response"]
        assert response["uid"] == "u-1"
        return dict(response)


@asynccontextmanager
async def reviewing(running: Running, root: Path) -> AsyncIterator[ApiServer]:
    """Serve the webhook of *running*, and ask it."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = root / "webhook.crt", root / "webhook.key"
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    options = WebhookOptions(listen="127.0.0.1:0", certificate=certificate, key=key)
    addresses: Latest[tuple[str, ...]] = Latest()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(
            partial(
                serve_reviews,
                running.serving.process,
                options,
                Families(CollectorRegistry()),
                lambda source, problems: pytest.fail(f"{source}: {problems}"),
                addresses=addresses,
            )
        )
        with trio.fail_after(20):
            _, (url, *_) = await addresses.wait_newer(0)
        async with ApiServer(url, authority) as server:
            yield server
        nursery.cancel_scope.cancel()


def broken(name: str) -> Resource:
    found = ingress(name, f"{name}.localhost", "web", "/a b")
    found["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Exact"
    return found


async def test_only_what_would_break_the_configuration_is_refused_and_nothing_of_it_remains(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        await running.quiet()
        async with reviewing(running, tmp_path) as server:
            good = await server.ask(ingress("two", "two.localhost", "web"))
            bad = await server.ask(broken("three"))
            second = await server.ask(ingress("four", "web.localhost", "web"))
            gone = await server.ask(ingress("web", "web.localhost", "web"), "DELETE")
            assert await site.get("web.localhost") == (200, "one")
            assert (await site.get("two.localhost"))[0] == 404

        assert good["allowed"], good
        assert not bad["allowed"], bad
        assert "Ingress default/three" in bad["status"]["message"]
        assert "url_path: the value holds a space" in bad["status"]["message"]
        assert second["allowed"], second
        assert gone["allowed"], gone
        state = running.iteration
        assert state is not None
        assert state.parts is not None
        assert running.serving.process.quarantine.held == ()


async def test_what_comes_while_nobody_is_asked_is_quarantined_and_does_not_stand_in_the_way_of_others(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        site.write("ingress-broken", broken("broken"))
        await running.serves(site, "web.localhost", "one")
        await running.quiet()
        async with reviewing(running, tmp_path) as server:
            other = await server.ask(ingress("two", "two.localhost", "web"))
            still = await server.ask(broken("broken"), "UPDATE", broken("broken"))
            labelled = broken("broken")
            labelled["metadata"]["labels"] = {"owner": "me"}
            touched = await server.ask(labelled, "UPDATE", broken("broken"))
            mended = await server.ask(ingress("broken", "broken.localhost", "web"), "UPDATE", broken("broken"))

        assert [held.ref.name for held in running.serving.process.quarantine.held] == ["broken"]
        assert other == {"uid": "u-1", "allowed": True}
        assert still["allowed"]
        assert touched["allowed"]
        assert "as before" in touched["warnings"][0]
        assert mended == {"uid": "u-1", "allowed": True}


async def test_port_is_open_only_while_the_configuration_wants_reviews(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        site.write_service("web", port)
        site.write_ingress("web", "web.localhost", "web")
        await running.serves(site, "web.localhost", "one")
        async with reviewing(running, tmp_path) as server:
            assert (await server.ask(ingress("two", "two.localhost", "web")))["allowed"]
            wanted = running.serving.process.reviewing
            seen = wanted.version
            site.write_config(
                watchedResources={"ingresses": {"apiVersion": "networking.k8s.io/v1", "resources": "ingresses"}}
            )
            with trio.fail_after(20):
                await wanted.wait_newer(seen)
            with pytest.raises(OSError, match="failed"), trio.fail_after(20):
                await server.connect_until_refused()
