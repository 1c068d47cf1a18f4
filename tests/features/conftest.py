import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.features.cert_manager import Edge
from tests.features.harness import Site
from tests.features.server_site import ServerSite
from tests.support.api_server.server import serving
from tests.support.processes.chromium import fetch_chromium, find_chromium
from tests.support.processes.haproxy import haproxy_binary, instance_root
from tests.support.processes.ports import free_port
from tests.support.processes.tmux import fetch_tmux, find_tmux

__all__ = ["haproxy_binary", "instance_root"]


@pytest.fixture
def site(instance_root: Path) -> Site:
    """A site with a configuration and a class, and nothing to serve yet."""
    site = Site(instance_root, free_port())
    site.write_config()
    site.write_class()
    return site


@pytest.fixture
async def edge(instance_root: Path) -> AsyncIterator[Edge]:
    """A site in an API server, without objects yet."""
    async with serving() as server:
        site = ServerSite(instance_root, free_port(), server)
        server.write_kubeconfig(site.kubeconfig, token_file=str(site.token_file))
        yield Edge(site)


@pytest.fixture(scope="session")
def chromium() -> Path:
    """A browser; without one the test is skipped, or, under HAPTIC_REQUIRE_CHROMIUM=1, one is fetched."""
    found = fetch_chromium() if os.environ.get("HAPTIC_REQUIRE_CHROMIUM") == "1" else find_chromium()
    if found is None:
        pytest.skip("there is no Chromium: python -m tests.support.processes.chromium fetches one")
    return found


@pytest.fixture(scope="session")
def tmux() -> Path:
    """A terminal; without one the test is skipped, or, under HAPTIC_REQUIRE_TMUX=1, one is fetched."""
    found = fetch_tmux() if os.environ.get("HAPTIC_REQUIRE_TMUX") == "1" else find_tmux()
    if found is None:
        pytest.skip("there is no tmux: python -m tests.support.processes.tmux fetches one")
    return found
