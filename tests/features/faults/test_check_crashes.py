"""One object crashes `haproxy -c`: it alone is quarantined, the webhook rejects it, and others go on."""

from pathlib import Path
from typing import Any

import pytest

from haptic_trio.messages import Quarantined, Released
from tests.features.harness import Running, Site, controller, ingress
from tests.features.test_webhook import reviewing
from tests.support.processes.haproxy import backend

pytestmark = pytest.mark.haproxy

# An administrator's own snippet. HAProxy dies of `-u` without a number, and phase 1 does not judge lines inside `.if`.
SNIPPET = """\
{% set flags = {"crash": "-u", "fine": "/x"} %}
{% each ingress in resources.ingresses as "own" if ingress | dig("metadata.annotations", {}) | under("example.com/") %}
.if 1
    http-request deny if { path {{ ingress.metadata.annotations["example.com/flag"] | choice(flags) }} }
.endif
{% endeach %}
"""


def flagged(name: str, flag: str) -> dict[str, Any]:
    found = ingress(name, f"{name}.localhost", "web")
    found["metadata"]["annotations"] = {"example.com/flag": flag}
    return found


async def begin(site: Site, running: Running, port: int) -> None:
    site.write_config(templateSnippets={"frontend-rules-own": {"template": SNIPPET}})
    site.write_service("web", port)
    site.write_ingress("web", "web.localhost", "web")
    await running.serves(site, "web.localhost", "one")
    await running.quiet()


async def test_others_are_served_while_an_object_crashes_the_check(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        await begin(site, running, port)

        site.write("evil", flagged("evil", "crash"))
        quarantined = await running.wait(Quarantined)
        site.write("victim", flagged("victim", "fine"))
        await running.serves(site, "victim.localhost", "one")

        assert str(quarantined.ref) == "Ingress default/evil"
        assert "HAProxy crashes on it" in quarantined.problem.message
        assert [str(held.ref) for held in running.serving.process.retained.quarantine.objects] == [
            "Ingress default/evil"
        ]
        assert await site.get("web.localhost") == (200, "one")

        site.write("evil", flagged("evil", "fine"))
        await running.wait(Released)
        await running.serves(site, "evil.localhost", "one")


async def test_attacker_and_victim_in_one_change_are_distinguished(site: Site, haproxy_binary: Path) -> None:
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        await begin(site, running, port)

        objects = [flagged(f"n{number}", "crash" if number == 5 else "fine") for number in range(8)]
        site.write("many", *objects)
        for number in range(8):
            if number != 5:
                await running.serves(site, f"n{number}.localhost", "one")

        await running.wait(Quarantined)
        assert [str(held.ref) for held in running.serving.process.retained.quarantine.objects] == ["Ingress default/n5"]


async def test_the_webhook_rejects_an_object_on_which_haproxy_crashes(
    site: Site, haproxy_binary: Path, tmp_path: Path
) -> None:
    async with backend("one") as port, controller(site, haproxy_binary) as running:
        await begin(site, running, port)
        async with reviewing(running, tmp_path) as server:
            good = await server.ask(flagged("good", "fine"))
            bad = await server.ask(flagged("evil", "crash"))

    assert good["allowed"], good
    assert "warnings" not in good
    assert not bad["allowed"], bad
    assert bad["status"]["message"] == ("Ingress default/evil cannot be served: HAProxy crashes on it (SIGSEGV)")
