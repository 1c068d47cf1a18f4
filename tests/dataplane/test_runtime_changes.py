"""Every kind of change is applied as the page on runtime changes says."""

from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import probe_version
from tests.support.scenarios.runtime_changes import VERSIONS, perform, read_column


@pytest.mark.haproxy
async def test_every_kind_of_change_takes_what_the_page_says(instance_root: Path, haproxy_binary: Path) -> None:
    version = ".".join(map(str, probe_version(haproxy_binary).number[:2]))
    if version not in VERSIONS:
        pytest.skip(f"the page has no HAProxy {version}")
    assert await perform(haproxy_binary, instance_root) == read_column(version)
