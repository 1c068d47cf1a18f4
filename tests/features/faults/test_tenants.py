"""One tenant's objects cost the others nothing: what is slow or large is quarantined, and changes go on."""

from pathlib import Path
from typing import Any

import pytest
import trio

from haptic_trio.messages import ConfigRendered, Quarantined, Released, ValidationFailed
from tests.features.harness import Site, controller, ingress
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy

NGINX = "nginx.ingress.kubernetes.io"
PATHS = 700
CANARIES = 3
SLOW = """\
{% set turns = ingress | dig("metadata.annotations", {}) %}
{% for a in range(turns["example.com/turns"] | default(1) | to_int) %}
{% for b in range(turns["example.com/turns"] | default(1) | to_int) %}
{% endfor %}
{% endfor %}
"""


def pair(name: str) -> list[dict[str, Any]]:
    """Return an Ingress of an attacker with very many paths, and its canary."""
    found = []
    for role, annotations in (("main", {}), ("canary", {f"{NGINX}/canary": "true", f"{NGINX}/canary-weight": "50"})):
        resource = ingress(f"{name}-{role}", f"{name}.localhost", "attacker")
        resource["metadata"].update(namespace="attacker", annotations=annotations)
        (rule,) = resource["spec"]["rules"]
        port = {"service": {"name": "attacker", "port": {"number": 80}}}
        rule["http"]["paths"] = [{"path": f"/{n}", "pathType": "Prefix", "backend": port} for n in range(PATHS)]
        found.append(resource)
    return found


async def test_canaries_with_very_many_paths_do_not_hold_up_others(site: Site, haproxy_binary: Path) -> None:
    libraries = ["base", "ssl", "ingress", "nginx-annotations"]
    extra = {"httpPort": site.port, "bindAddress": "127.0.0.1"}
    site.write_config(templating={"libraries": libraries, "extraContext": extra})
    async with backend("victim") as port:
        site.write_service("web", port)
        site.write_ingress("before", "before.localhost", "web")
        for number in range(CANARIES):
            site.write(f"attack-{number}", *pair(f"attack{number}"))
        async with controller(site, haproxy_binary) as running:
            await running.serves(site, "before.localhost", "victim")
            await running.quiet()

            site.write_ingress("after", "after.localhost", "web")
            await running.serves(site, "after.localhost", "victim")

            assert not running.events.all(Quarantined)
            assert not running.events.all(ValidationFailed)
            # The victim pays for its own change alone.
            assert running.events.all(ConfigRendered)[-1].fragments_rendered < 20


async def test_an_object_that_is_too_slow_is_quarantined_and_the_others_are_served(
    site: Site, haproxy_binary: Path
) -> None:
    extra = {"httpPort": site.port, "bindAddress": "127.0.0.1"}
    libraries = ["base", "ssl", "ingress", "haproxy-org-annotations"]
    site.write_config(
        templating={"libraries": libraries, "extraContext": extra, "fragmentTimeout": "500ms"},
        templateSnippets={"ingress-backend-slow": {"template": SLOW}},
    )
    slow = ingress("slow", "slow.localhost", "web")
    # The first one gives it a backend of its own.
    annotations = {"haproxy.org/timeout-server": "5s", "example.com/turns": "100000"}
    slow["metadata"]["annotations"] = annotations
    async with backend("victim") as port:
        site.write_service("web", port)
        site.write_ingress("before", "before.localhost", "web")
        site.write("attack", slow)
        async with controller(site, haproxy_binary) as running:
            quarantined = await running.wait(Quarantined)
            assert str(quarantined.ref) == "Ingress default/slow"
            assert "took longer than" in quarantined.problem.message
            assert quarantined.problem.source.endswith("/attack.yaml")
            await running.serves(site, "before.localhost", "victim")

            site.write_ingress("after", "after.localhost", "web")
            await running.serves(site, "after.localhost", "victim")

            assert not running.events.all(ValidationFailed)
            assert [str(event.ref) for event in running.events.all(Quarantined)] == ["Ingress default/slow"]
            with trio.fail_after(60):
                slow["metadata"]["annotations"] = annotations | {"example.com/turns": "2"}
                site.write("attack", slow)
                await running.wait(Released)
                await running.serves(site, "slow.localhost", "victim")
