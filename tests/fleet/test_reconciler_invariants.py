"""F5 to F7, F10 and F11 on the real reconciler: terms that end anywhere, on virtual time."""

from itertools import pairwise
from typing import Literal

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from haptic_trio.fleet.model import EventType, GroupKey, ProviderStatus, RetryableError
from tests.fleet.rig.fake_provider import SPEC, WEB, FakeFleet

RATE = 2.0
EXAMPLES = max(200, settings.default.max_examples if settings.default else 0)


class Op(msgspec.Struct, frozen=True):
    kind: Literal["resize", "drift", "kill", "hang", "notice", "ack", "fail", "slow", "demote", "term"]
    choice: int
    notified: bool
    """Whether the event about the change arrives."""
    after: float
    """Virtual seconds before the next."""


OPS = st.lists(
    st.builds(
        Op,
        st.sampled_from(["resize", "drift", "kill", "hang", "notice", "ack", "fail", "slow", "demote", "term", "term"]),
        st.integers(0, 9),
        st.booleans(),
        st.sampled_from([0.01, 0.13, 0.35, 1.1, 4.0, 15.0]),
    ),
    max_size=10,
)
CALLS = ("list_owned", "create", "status", "begin_drain", "drained", "delete")


def happen(fleet: FakeFleet, op: Op) -> None:
    """Apply *op*, except for a change of terms."""
    names = sorted(fleet.provider.things)
    name = names[op.choice % len(names)] if names else ""
    assert fleet.specs is not None
    if op.kind == "resize":
        fleet.specs[WEB] = msgspec.structs.replace(fleet.specs[WEB], size=op.choice % 4)
    elif op.kind == "drift":
        fleet.specs[WEB] = msgspec.structs.replace(fleet.specs[WEB], config_hash=str(op.choice))
    elif op.kind == "kill" and name:
        fleet.provider.things.pop(name)
    elif op.kind == "hang" and name:
        fleet.provider.become(name, ProviderStatus.UNRESPONSIVE)
    elif op.kind == "notice" and name:
        fleet.enqueue(EventType.TERMINATION_NOTICE, name)
    elif op.kind == "ack" and name:
        fleet.enqueue(EventType.DRAIN_ACKED, name)
    elif op.kind == "fail":
        fleet.provider.script[CALLS[op.choice % len(CALLS)]] = [RetryableError("down")] * 2
    elif op.kind == "slow":
        fleet.provider.script[CALLS[op.choice % len(CALLS)]] = [3.0, 30.0]
    elif op.kind == "demote":
        fleet.is_leader = False
    if op.notified:
        fleet.enqueue(EventType.GROUP_CHANGED)


async def live(fleet: FakeFleet, ops: list[Op]) -> None:
    """Apply *ops*, over as many terms as they contain, then wait until the fleet has settled."""
    rest = list(ops)
    while rest:
        async with trio.open_nursery() as nursery:
            fleet.is_leader = True
            nursery.start_soon(fleet.make_reconciler(create_rate_limit=RATE).run)
            began = len(fleet.provider.times_of("create"))
            while rest:
                op = rest.pop(0)
                if op.kind == "term":
                    break
                happen(fleet, op)
                await trio.sleep(op.after)
            nursery.cancel_scope.cancel()
        # The interval is kept within a term only.
        times = fleet.provider.times_of("create")[began:]
        assert all(later - earlier >= RATE for earlier, later in pairwise(times)), "F11"
        fleet.is_leader = True
    fleet.provider.script.clear()
    async with fleet.term():
        await fleet.wait_settled(within=1500.0)


@settings(max_examples=EXAMPLES)
@pytest.mark.slow
@given(OPS)
def test_the_fleet_always_settles_in_its_desired_state(ops: list[Op]) -> None:
    fleet = FakeFleet(specs={WEB: SPEC, GroupKey("api"): msgspec.structs.replace(SPEC, key=GroupKey("api"), size=1)})
    trio.run(live, fleet, ops, clock=MockClock(autojump_threshold=0))
