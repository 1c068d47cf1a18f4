import pytest

from tests.attacks.site import Site
from tests.support.processes.haproxy import haproxy_binary

__all__ = ["haproxy_binary", "site"]


@pytest.fixture(scope="session")
def site() -> Site:
    """One site for all tests of a worker: it renders again only what changes."""
    return Site()
