"""Every kind of change is applied as the page on runtime changes says."""

from pathlib import Path

import pytest

from haptic_trio.dataplane.binary import probe_version
from tests.support.scenarios.runtime_changes import PAGE, VERSIONS, changes, perform, read_column, write_table


@pytest.mark.haproxy
async def test_every_kind_of_change_takes_what_the_page_says(instance_root: Path, haproxy_binary: Path) -> None:
    version = ".".join(map(str, probe_version(haproxy_binary).number[:2]))
    if version not in VERSIONS:
        pytest.skip(f"the page has no HAProxy {version}")
    assert await perform(haproxy_binary, instance_root) == read_column(version)


def test_writing_the_table_again_keeps_the_rest_of_the_page() -> None:
    page = PAGE.read_text()

    assert write_table(page, {version: read_column(version) for version in VERSIONS}, list(changes())) == page
