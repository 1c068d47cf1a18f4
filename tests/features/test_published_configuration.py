"""Publication of the configuration that a real HAProxy runs: objects of the API server, without content of Secrets."""

import base64
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from haptic_trio.k8s.resource import Resource
from haptic_trio.stages import status_writers
from haptic_trio.status.published import CONFIGURATIONS, FILES
from tests.features.harness import LIMIT, ingress, serving_web
from tests.features.server_site import ServerSite
from tests.support.api_server.server import serving
from tests.support.kubernetes import meta
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.haproxy
DEFINITIONS = Path(__file__).parents[2] / "chart" / "files" / "published-configuration.yaml"
HASH = "$5$abcdefgh$gruCpC7V3CGcYgBL6a8E6y2wYx6TcGkDDCTfXbBBBB."
AUTH = {"type": "basic", "secret": "users"}


@pytest.fixture
async def site(instance_root: Path) -> AsyncIterator[ServerSite]:
    """A site with the kinds that the chart installs, and a Secret with a password for an Ingress."""
    async with serving(*yaml.safe_load_all(DEFINITIONS.read_text())) as server:
        site = ServerSite(instance_root, free_port(), server)
        server.write_kubeconfig(site.kubeconfig, token_file=str(site.token_file))
        site.write_class()
        yield site


def find(site: ServerSite) -> Resource:
    """Return the published configuration; an empty one before it is written."""
    found = site.server.state.collections[CONFIGURATIONS].objects.get(("default", "haptic-trio"))
    return found.resource if found is not None else {}


def contents(site: ServerSite) -> dict[str, str]:
    """Return the published texts by path."""
    stored = site.server.state.collections[FILES].objects.values()
    return {one.resource["spec"]["path"]: one.resource["spec"]["content"] for one in stored}


async def until(site: ServerSite, claim: Callable[[], bool]) -> None:
    with trio.fail_after(LIMIT):
        await site.server.until(claim)


async def test_running_configuration_is_published_without_passwords(
    site: ServerSite, haproxy_binary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_writers, "INTERVAL", 0.1)
    context = {"httpPort": site.port, "bindAddress": "127.0.0.1"}
    libraries = ["base", "ingress", "nginx-annotations"]
    templating = {"libraries": libraries, "extraContext": context}
    site.write_config(controller={"publishConfiguration": True}, templating=templating)
    users = base64.b64encode(f"alice:{HASH}".encode()).decode()
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": meta("users"),
        "data": {"auth": users},
    }
    site.write("users", secret)
    guarded = ingress("guarded", "guarded.localhost", "web")
    guarded["metadata"]["annotations"] = {
        f"nginx.ingress.kubernetes.io/auth-{key}": value for key, value in AUTH.items()
    }
    site.write("guarded", guarded)
    async with serving_web(site, haproxy_binary) as running:
        (instance,) = await running.instances(1)
        await until(site, lambda: find(site).get("status", {}).get("inSync") == "1/1")
        published: dict[str, Any] = find(site)
        texts = contents(site)

        (shown,) = published["status"]["instances"]
        assert (shown["name"], shown["generation"], shown["lastError"]) == (instance.name, instance.generation, "")
        assert published["spec"]["generation"] == instance.generation
        assert texts["maps/path-prefix.map"].splitlines() == [
            "guarded.localhost|/ default_guarded_web_80",
            "web.localhost|/ default_web_80",
        ]
        assert "frontend http" in texts["haproxy.cfg"]
        valid = running.serving.process.retained.newest_valid.value
        assert valid is not None
        assert HASH in valid.generation.text
        assert "# secret, digest " in texts["haproxy.cfg"]
        assert not any(HASH in text for text in texts.values())

        site.write_ingress("more", "more.localhost", "web")
        await running.serves(site, "more.localhost", "one")
        await until(site, lambda: "more.localhost" in contents(site)["maps/path-prefix.map"])


async def test_nothing_is_published_by_default(site: ServerSite, haproxy_binary: Path) -> None:
    site.write_config()
    async with serving_web(site, haproxy_binary) as running:
        await running.quiet()

    assert find(site) == {}
    assert not [line for line in site.server.requests if "published.haptic-trio" in line]
