"""The whole controller, asked as the API server asks before it accepts an object."""

import base64
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Self

import httpx
import pytest
import trio
import trustme
import yaml
from prometheus_client import CollectorRegistry

from haptic_trio.channels import Latest
from haptic_trio.cli.serving.webhook import serve_reviews
from haptic_trio.k8s.resource import Resource
from haptic_trio.metrics import Families
from haptic_trio.webhook.server import WebhookOptions
from tests.features.harness import LIMIT, Running, Site, controller, ingress
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy
INGRESSES = {"group": "networking.k8s.io", "version": "v1", "resource": "ingresses"}
CONFIG_MAPS = {"group": "", "version": "v1", "resource": "configmaps"}


class ApiServer:
    """Asks, and takes no answer for the best one."""

    def __init__(self, url: str, authority: trustme.CA) -> None:
        context = ssl.create_default_context()
        authority.configure_trust(context)
        authority.issue_cert("api-server.test").configure_cert(context)
        self._client = httpx.AsyncClient(verify=context, trust_env=False, timeout=LIMIT)
        self._url = url

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exc: object) -> None:
        await self._client.aclose()

    async def ask(
        self,
        resource: Resource,
        operation: str = "CREATE",
        old: Resource | None = None,
        kind: Mapping[str, str] = INGRESSES,
    ) -> dict[str, Any]:
        """Return the response to a review of *resource*."""
        request = {
            "uid": "u-1",
            "resource": kind,
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
async def reviewing(running: Running, root: Path, *, known: bool = True) -> AsyncIterator[ApiServer]:
    """Serve the webhook of *running*, and ask it; *known*: the API server has to show its certificate."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    certificate, key = root / "webhook.crt", root / "webhook.key"
    certificate.write_bytes(issued.cert_chain_pems[0].bytes())
    key.write_bytes(issued.private_key_pem.bytes())
    authorities = root / "clients.crt"
    authority.cert_pem.write_to_path(authorities)
    options = WebhookOptions(
        listen="127.0.0.1:0", certificate=certificate, key=key, authorities=authorities if known else None
    )
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
        with trio.fail_after(LIMIT):
            _, (url, *_) = await addresses.wait_newer(0)
        async with ApiServer(url, authority) as server:
            yield server
        nursery.cancel_scope.cancel()


async def serve_web(site: Site, running: Running, port: int) -> None:
    """Write a Service for the server at *port* with an Ingress, and wait until the Ingress is served."""
    site.write_service("web", port)
    site.write_ingress("web", "web.localhost", "web")
    await running.serves(site, "web.localhost", "one")
    await running.quiet()


def broken(name: str) -> Resource:
    found = ingress(name, f"{name}.localhost", "web", "/a b")
    found["spec"]["rules"][0]["http"]["paths"][0]["pathType"] = "Exact"
    return found


async def test_only_what_would_break_the_configuration_is_rejected_and_nothing_of_it_remains(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        await serve_web(site, running, port)
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
        assert 'spec.rules[0].http.paths[0].path: "' in bad["status"]["message"]
        assert second["allowed"], second
        assert gone["allowed"], gone
        state = running.iteration
        assert state is not None
        assert state.components is not None
        assert running.serving.process.retained.quarantine.objects == ()


async def test_objects_that_were_not_reviewed_are_quarantined_without_affecting_others(
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
            corrected = await server.ask(ingress("broken", "broken.localhost", "web"), "UPDATE", broken("broken"))

        assert [held.ref.name for held in running.serving.process.retained.quarantine.objects] == ["broken"]
        assert other == {"uid": "u-1", "allowed": True}
        assert still["allowed"]
        assert touched["allowed"]
        assert "already before" in touched["warnings"][0]
        assert corrected == {"uid": "u-1", "allowed": True}


def config_map(site: Site, **fields: Any) -> Resource:
    """Return the ConfigMap of *site* with other *fields*."""
    found = yaml.safe_load((site.manifests / "config.yaml").read_text())
    config = {**json.loads(found["data"]["config"]), **fields}
    return {**found, "data": {"config": json.dumps(config, indent=1)}}


async def test_configuration_is_reviewed_with_its_tests_and_places_and_nothing_changes(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    missing = {"assertions": [{"type": "contains", "target": "haproxy.cfg", "pattern": "no such line"}]}
    # Only HAProxy knows that this is no regular expression.
    rejected_by_haproxy = {
        "templateSnippets": {
            "backends-broken": {"template": "backend b\n    http-request deny if { path -m reg ([ }\n"}
        },
        "validationTests": {"valid": {"assertions": [{"type": "haproxy_valid"}]}},
    }
    async with controller(site, haproxy_binary) as running:
        await running.settled()
        state = running.iteration
        async with reviewing(running, tmp_path) as server:

            async def ask(**fields: Any) -> dict[str, Any]:
                return await server.ask(config_map(site, **fields), "UPDATE", config_map(site), CONFIG_MAPS)

            good = await ask(reconciler={"debounceInterval": "30ms"})
            unknown = await ask(reconcilers={})
            failing = await ask(validationTests={"lines": missing})
            unreadable = await ask(**rejected_by_haproxy)
        async with reviewing(running, tmp_path, known=False) as server:
            wanted = config_map(site, **rejected_by_haproxy)
            unasked = await server.ask(wanted, "UPDATE", config_map(site), CONFIG_MAPS)
        assert running.iteration is state

    assert good == {"uid": "u-1", "allowed": True}
    assert not unknown["allowed"]
    assert "ConfigMap default/haptic-trio is not a valid configuration" in unknown["status"]["message"]
    assert "line " in unknown["status"]["message"]
    assert "reconcilers" in unknown["status"]["message"]
    assert not failing["allowed"]
    assert "no such line" in failing["status"]["message"]
    assert not unreadable["allowed"], unreadable
    assert "regex" in unreadable["status"]["message"]
    assert unasked["allowed"], unasked


async def test_no_answer_says_whether_a_guess_is_in_a_secret_of_another_namespace(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    """Replaced by a digest or by anything else, a guess in the own object would be confirmed."""
    guess = "correct-horse"
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "database", "namespace": "victim"},
        "data": {"password": base64.b64encode(guess.encode()).decode()},
    }
    site.write_config(watchedResources={"all": {"apiVersion": "v1", "resources": "secrets"}})
    site.write("secret", secret)
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        await serve_web(site, running, port)
        async with reviewing(running, tmp_path) as server:
            warned = await server.ask(ingress("two", "two.localhost", guess))

    assert guess in warned["warnings"][0], warned
