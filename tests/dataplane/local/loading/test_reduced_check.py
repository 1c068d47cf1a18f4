from functools import partial
from pathlib import Path

import pytest

from haptic_trio.dataplane.local.loading.reduced_check import passes_reduced_check
from haptic_trio.haproxy.model import Generation
from tests.support.processes.haproxy import BASE, build_generation

pytestmark = pytest.mark.haproxy


def site(balance: str) -> Generation:
    """Return a generation with many backends, of which the last one has this *balance*."""
    head = f"{BASE}\ndefaults profile\n  mode http\nfrontend web\n  bind 127.0.0.1:1\n"
    plain = "".join(f"backend b{number} from profile\n  server s 127.0.0.1:1\n" for number in range(20))
    return build_generation(f"{head}{plain}backend last from profile\n  balance {balance}\n  server s 127.0.0.1:1\n")


async def test_small_change_of_what_runs_is_decided_without_the_rest(tmp_path: Path, haproxy_binary: Path) -> None:
    passes = partial(passes_reduced_check, haproxy_binary, root=tmp_path)

    assert await passes(site("roundrobin"), site("leastconn"))
    assert not await passes(site("roundrobin"), site("nonsense"))
    # Nothing is known to be accepted.
    assert not await passes(None, site("leastconn"))
