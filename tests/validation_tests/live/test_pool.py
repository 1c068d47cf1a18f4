from pathlib import Path

import pytest
import trio

from haptic_trio.config.assertions import Answer, Request
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import Generation, make_generation
from haptic_trio.validation_tests.live.instance import Instance, InstanceError
from haptic_trio.validation_tests.live.pool import InstancePool
from tests.support.processes.haproxy import live_haproxies

pytestmark = pytest.mark.haproxy


def answering(status: int) -> Generation:
    text = (
        "defaults\n    mode http\n    timeout connect 1s\n    timeout client 5s\n    timeout server 5s\n"
        f"frontend web\n    bind *:8080\n    http-request return status {status}\n"
    )
    return make_generation(parse_config(text), [])


async def ask(pool: InstancePool, generation: Generation, nursery: trio.Nursery) -> tuple[int, Instance]:
    """Return the status of an answer, and which instance gave it."""
    async with pool.borrow(generation, nursery=nursery) as instance:
        reply, _ = await instance.ask(Request(host="any"), Answer())
        return reply.status, instance


async def test_the_same_configuration_is_run_once(haproxy_binary: Path, tmp_path: Path) -> None:
    pool = InstancePool(haproxy_binary, most_idle=1, scratch=tmp_path)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            first = await ask(pool, answering(200), nursery)
            assert await ask(pool, answering(200), nursery) == first
            other = await ask(pool, answering(404), nursery)
            assert (first[0], other[0]) == (200, 404)
            assert (await ask(pool, answering(404), nursery)) == other
            # The one that was used longest ago has had to go.
            assert (await ask(pool, answering(200), nursery))[1] is not first[1]
            nursery.cancel_scope.cancel()

    assert live_haproxies(tmp_path) == []


async def test_a_failed_start_is_reported_to_all_waiting_tests(tmp_path: Path) -> None:
    pool = InstancePool(tmp_path / "no-such-haproxy", most_idle=1, scratch=tmp_path)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            with pytest.raises(InstanceError, match=r"could not be started: .*no-such-haproxy"):
                await ask(pool, answering(200), nursery)
            nursery.cancel_scope.cancel()
