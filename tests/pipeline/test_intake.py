"""The changes that cycles take in, by what a cycle is for."""

import pytest

from haptic_trio.k8s.intake import FIRST_SHARE
from haptic_trio.messages import Reason
from tests.pipeline.heavy import Bench, web

COUNT = 3 * FIRST_SHARE

# The parser asks the binary for its keywords.
pytestmark = pytest.mark.process


async def put_more_than_a_share(bench: Bench) -> None:
    """Let a cycle run, and change more objects than the next one takes in."""
    bench.put(*(web(80, f"s{number}") for number in range(COUNT)))
    await bench.cycle()
    bench.put(*(web(81, f"s{number}") for number in range(COUNT)))
    assert bench.pipeline.is_behind


async def test_cycle_before_an_iteration_serves_leaves_no_change_to_wait_for_another() -> None:
    bench = Bench()
    await put_more_than_a_share(bench)

    await bench.pipeline.prepare("c", Reason.SYNCHRONIZED)

    assert not bench.pipeline.is_behind


@pytest.mark.parametrize("reason", [Reason.CHANGED, Reason.WAITED])
async def test_cycle_of_a_serving_iteration_leaves_changes_beyond_a_share_to_the_next(reason: Reason) -> None:
    bench = Bench()
    await put_more_than_a_share(bench)

    await bench.pipeline.prepare("c", reason)

    assert bench.pipeline.is_behind
