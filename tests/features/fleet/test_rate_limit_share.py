"""Rate limits of all instances: each instance learns how many there are, without a reload."""

from pathlib import Path

import pytest

from tests.features.harness import Site, controller

pytestmark = pytest.mark.haproxy
SHOW = """\
    http-request return status 200 content-type text/plain lf-string %[var(txn.instances)] if { path /instances }
"""


def write_config(site: Site, size: int) -> None:
    site.write_config(
        instances={"size": size},
        templateSnippets={"frontend-rules-999-show": {"template": SHOW}},
        templating={
            "extraContext": {
                "httpPort": site.port,
                "bindAddress": "127.0.0.1",
                "rateLimit": 1_000_000,
                "rateLimitScope": "fleet",
            }
        },
    )


async def test_instances_learn_their_number_without_a_reload(site: Site, haproxy_binary: Path) -> None:
    write_config(site, 1)
    async with controller(site, haproxy_binary) as running:
        await running.serves(site, "a.test", "1", "/instances")
        await running.quiet()
        before = await running.reloads()

        write_config(site, 2)
        await running.instances(2)
        await running.serves(site, "a.test", "2", "/instances")

        write_config(site, 1)
        await running.serves(site, "a.test", "1", "/instances")
        await running.quiet()
        assert await running.reloads() == before
