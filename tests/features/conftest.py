from pathlib import Path

import pytest

from tests.features.harness import Site
from tests.support.processes.haproxy import haproxy_binary, instance_root
from tests.support.processes.ports import free_port

__all__ = ["haproxy_binary", "instance_root"]


@pytest.fixture
def site(instance_root: Path) -> Site:
    """A site with a configuration and a class, and nothing to serve yet."""
    site = Site(instance_root, free_port())
    site.write_config()
    site.write_class()
    return site
