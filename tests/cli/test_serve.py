from pathlib import Path

import pytest

from haptic_trio.messages import ConfigInvalid
from tests.features.conftest import haproxy_binary, instance_root, site
from tests.features.harness import Site, controller

__all__ = ["haproxy_binary", "instance_root", "site"]


@pytest.mark.haproxy
async def test_kind_of_instance_that_a_directory_cannot_have_is_rejected(site: Site, haproxy_binary: Path) -> None:
    site.write_config(dataplane={"kind": "agent"})

    async with controller(site, haproxy_binary) as running:
        invalid = await running.wait(ConfigInvalid)

    assert invalid.problems[0].path == "dataplane.kind"
    assert invalid.problems[0].hint == "use `local`"
