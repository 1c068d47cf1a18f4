"""Number and size of the headers that HAProxy takes, as settings."""

from typing import Any

import pytest

from tests.libraries.conftest import Cluster
from tests.libraries.tenants.tenants import ALL, NGINX
from tests.support.kubernetes import ingress, path, rule, service
from tests.support.traffic.raw import exchange

pytestmark = pytest.mark.haproxy

HOST = "a.example.com"


def statuses(cluster: Cluster, **settings: Any) -> dict[str, int]:
    """Return the statuses of requests with many and with long headers; HAProxy itself answers those that it takes."""
    moved = {NGINX + "permanent-redirect": "https://b.example.com"}
    site = ingress("a", rule(HOST, path("/", "web")), annotations=moved)
    cluster.serve(site, service("web"), libraries=ALL, **settings)
    # `Host` and `Connection` count as well.
    tried = {
        "101 lines": [f"X-{number}: a" for number in range(99)],
        "102 lines": [f"X-{number}: a" for number in range(100)],
        "200 lines": [f"X-{number}: a" for number in range(198)],
        "14 kB": ["X-A: " + "a" * 7_000] * 2,
        "21 kB": ["X-A: " + "a" * 7_000] * 3,
        "60 kB": ["X-A: " + "a" * 60_000],
    }
    return {
        name: exchange(cluster.http_port, "GET / HTTP/1.1", f"Host: {HOST}", *lines).status
        for name, lines in tried.items()
    }


def test_by_default_the_limits_are_those_of_haproxy(cluster: Cluster) -> None:
    found = statuses(cluster)

    assert {name for name, status in found.items() if status == 301} == {"14 kB", "101 lines"}
    # Later versions of HAProxy answer a header that is too long with 431.
    assert set(found.values()) <= {301, 400, 431}


def test_settings_raise_both_limits(cluster: Cluster) -> None:
    found = statuses(cluster, maxHeaders=250, bufferSize="64k")

    assert set(found.values()) == {301}


@pytest.mark.parametrize("size", ["1k", "2m"])
def test_a_buffer_of_another_magnitude_is_rejected(cluster: Cluster, size: str) -> None:
    with pytest.raises(Exception, match="bufferSize must be from 16k to 1m"):
        cluster.render(bufferSize=size)
