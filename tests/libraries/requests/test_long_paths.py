"""Long paths of requests: PCRE must not run out of memory for them, since a rule then passes what it should see."""

import pytest

from haptic_trio.templating.filters.request_paths import LONGEST, readings
from tests.libraries.conftest import Cluster
from tests.libraries.requests.test_paths import at, closed_sites
from tests.support.traffic.raw import exchange

__all__ = ["closed_sites"]

pytestmark = pytest.mark.haproxy

ENDS = ("", "/", "/x")


@pytest.mark.parametrize("filling", [".", "%20", ".%20", "%2e", "%20."])
def test_no_number_of_dots_and_blanks_passes_a_rule(closed_sites: Cluster, filling: str) -> None:
    for end in ENDS:
        for room in (300, 2_000, LONGEST - 20):
            padding = filling * (room // len(filling)) + end
            for beginning in ("/admin", "/"):
                target = beginning + padding
                found = readings(target)
                assert found is None or found.separated.startswith("/admin")
                answer = exchange(closed_sites.http_port, f"GET {target} HTTP/1.1", f"Host: {at('hi-allow')}")
                assert answer.status in {400, 403}, (beginning, room, end)


@pytest.mark.parametrize("filling", ["/.", "/./", "/%2e", "/x/.."])
def test_no_number_of_dot_segments_passes_a_rule(closed_sites: Cluster, filling: str) -> None:
    for end in ENDS:
        target = filling * ((LONGEST - 20) // len(filling)) + "/admin" + end
        answer = exchange(closed_sites.http_port, f"GET {target} HTTP/1.1", f"Host: {at('hi-allow')}")
        assert answer.status in {400, 403}, end
