"""F1 to F8, F10 and F11: passes over a group in a world where everything goes wrong, at any await."""

from collections.abc import Awaitable

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from haptic_trio.errors import HapticError
from haptic_trio.fleet.group_pass import GroupPass
from haptic_trio.fleet.group_state import CreateGate, GroupState, Notice
from haptic_trio.fleet.groups import GroupStates
from haptic_trio.fleet.model import GroupSpec, InstanceState, ProviderStatus
from haptic_trio.fleet.plan import plan
from tests.fleet.rig.world import GROUP, Thing, World, drive
from tests.support.histories import HISTORIES

GRACE = 60.0
CALLS = ("put", "forget", "create", "status", "drained", "begin_drain", "delete")
CHOICE = st.integers(0, 9)
NOTIFIED = st.booleans()
"""Whether the event about a change arrives (F10: it is never needed)."""


class FleetMachine(RuleBasedStateMachine):
    """Whatever happens, no pass breaks an invariant, and when the faults end the group is as it should be."""

    @initialize(
        size=st.integers(0, 4),
        surge=st.integers(1, 2),
        drain=st.sampled_from([0.0, 30.0]),
        forced=st.sampled_from([0.0, 0.0, 200.0]),
        eligible=st.sampled_from([0.0, 0.0, 150.0]),
        rate=st.sampled_from([0.0, 0.0, 7.0]),
    )
    def begin(self, size: int, surge: int, drain: float, forced: float, eligible: float, rate: float) -> None:
        self.spec: GroupSpec | None = GroupSpec(
            key=GROUP,
            size=size,
            surge=surge,
            drain_timeout=drain,
            forced_age=forced,
            eligible_age=eligible,
            start_timeout=20.0,
            health_interval=5.0,
            config_hash="1",
        )
        self.removed = self.spec
        self.world = World(rate_limit=rate)
        self.begin_term()

    def begin_term(self) -> None:
        world = self.world
        self.states = GroupStates(grace=GRACE)
        for record in world.records.values():
            self.states.state_of(record.key).track(record, world.time)
        self.gate = CreateGate(world.rate_limit)
        if world.rate_limit and world.succeeded:
            # A term knows nothing of the creations of the one before, so it is not asked to keep its distance.
            world.succeeded.clear()
        self.observe()
        self.due = world.time

    def observe(self) -> None:
        if not self.world.is_leader:
            return
        groups = [GROUP] if self.spec is not None else []
        for record in self.states.compare(self.world.listing(), groups, self.world.time):
            self.world.records[record.id] = record
            self.states.state_of(record.key).track(record, self.world.time)

    @property
    def state(self) -> GroupState:
        return self.states.state_of(GROUP)

    def make_pass(self, steps: int = -1, then: str = "") -> float | None:
        world = self.world
        world.spec = self.spec or GroupSpec(key=GROUP, size=0)
        one = GroupPass(self.state, world, self.gate, new_id=world.new_id)

        def lose() -> None:
            world.is_leader = False

        delay: float | None = drive(contain(one.run(self.spec)), steps=steps, then=lose if then == "lose" else None)
        return delay

    def settle(self, passes: int = 40) -> None:
        """Make passes for as long as they are due now."""
        for _ in range(passes):
            if not self.world.is_leader or self.due > self.world.time:
                return
            delay = self.make_pass()
            self.due = self.world.time + (5.0 if delay is None else min(delay, 60.0))
        raise AssertionError("passes without an end")

    def notify(self, notified: bool) -> None:
        if notified:
            self.due = self.world.time
            self.settle()

    def pick(self, choice: int) -> Thing | None:
        things = list(self.world.things.values())
        return things[choice % len(things)] if things else None

    @rule(notified=NOTIFIED)
    def pass_now(self, notified: bool) -> None:
        self.notify(notified)

    @rule(size=st.integers(0, 4), notified=NOTIFIED)
    def resize(self, size: int, notified: bool) -> None:
        if self.spec is not None:
            self.spec = msgspec.structs.replace(self.spec, size=size)
        self.notify(notified)

    @precondition(lambda self: self.spec is not None)
    @rule(notified=NOTIFIED)
    def drift(self, notified: bool) -> None:
        assert self.spec is not None
        self.spec = msgspec.structs.replace(self.spec, config_hash=self.spec.config_hash + "1")
        self.notify(notified)

    @rule(notified=NOTIFIED)
    def toggle_group(self, notified: bool) -> None:
        if self.spec is None:
            self.spec = self.removed
        else:
            self.removed, self.spec = self.spec, None
        self.notify(notified)

    @rule(choice=CHOICE, notified=NOTIFIED, gone=st.booleans())
    def kill(self, choice: int, notified: bool, gone: bool) -> None:
        thing = self.pick(choice)
        if thing is not None:
            thing.status = ProviderStatus.FAILED
            if gone:
                del self.world.things[thing.id]
        self.notify(notified)

    @rule(choice=CHOICE, notified=NOTIFIED)
    def hang(self, choice: int, notified: bool) -> None:
        thing = self.pick(choice)
        if thing is not None and thing.status is ProviderStatus.RUNNING:
            thing.status = ProviderStatus.UNRESPONSIVE
        self.notify(notified)

    @rule(choice=CHOICE)
    def wake(self, choice: int) -> None:
        thing = self.pick(choice)
        if thing is not None and thing.status is ProviderStatus.UNRESPONSIVE:
            thing.status = ProviderStatus.RUNNING

    @rule(choice=CHOICE)
    def occupy(self, choice: int) -> None:
        thing = self.pick(choice)
        if thing is not None:
            thing.busy = not thing.busy

    @rule(choice=CHOICE)
    def ask_for_another(self, choice: int) -> None:
        thing = self.pick(choice)
        if thing is not None and thing.id in self.state.records:
            self.state.notice_of(thing.id).unwanted = True
            self.notify(True)

    @rule(choice=CHOICE, wait=st.sampled_from([None, 0.0, 10.0]), again=st.booleans())
    def give_notice(self, choice: int, wait: float | None, again: bool) -> None:
        thing = self.pick(choice)
        if thing is not None and thing.id in self.state.records:
            until = None if wait is None else self.world.time + wait
            for _ in range(1 + again):
                self.state.notice_of(thing.id).merge(Notice(doomed=True, doomed_until=until))
            self.notify(True)

    @rule(choice=CHOICE)
    def acknowledge(self, choice: int) -> None:
        thing = self.pick(choice)
        if thing is not None and thing.id in self.state.records:
            self.state.notice_of(thing.id).acked = True
            self.notify(True)

    @rule(seconds=st.sampled_from([0.5, 3.0, 16.0, 70.0]))
    def tick(self, seconds: float) -> None:
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        until = self.world.time + seconds
        # A long wait is walked in a few steps, so that one example does not poll for minutes.
        step = max(0.5, seconds / 8)
        while self.world.time < until:
            self.world.time = min(until, max(self.world.time + step, min(self.due, until)))
            self.settle()

    @rule(call=st.sampled_from(CALLS), times=st.integers(1, 3), notified=NOTIFIED)
    def fail(self, call: str, times: int, notified: bool) -> None:
        self.world.failures[call] = times
        self.notify(notified)

    @rule(steps=st.integers(0, 25))
    def crash(self, steps: int) -> None:
        if self.world.is_leader:
            self.make_pass(steps)
        self.begin_term()

    @rule(steps=st.integers(0, 25))
    def lose_leadership(self, steps: int) -> None:
        if self.world.is_leader:
            self.make_pass(steps, "lose")
        self.world.is_leader = False

    @rule()
    def win_leadership(self) -> None:
        self.world.is_leader = True
        self.begin_term()

    @rule(choice=CHOICE)
    def lose_record(self, choice: int) -> None:
        """The store loses a record while there is no leader."""
        if not self.world.is_leader and self.world.records:
            names = sorted(self.world.records)
            del self.world.records[names[choice % len(names)]]

    def teardown(self) -> None:
        """The faults end: size, hash and provider agree, and nothing is left to do (F6, F7, F10)."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.failures.clear()
        for thing in world.things.values():
            thing.busy = False
        if not world.is_leader:
            self.win_leadership()
        self.due = world.time
        for _ in range(100):
            self.settle()
            if self.is_settled():
                return
            world.time += max(5.0, min(self.due - world.time, 20.0))
            self.observe()
        raise AssertionError(f"not settled: {world.records} {world.things} {self.spec}")

    def is_settled(self) -> bool:
        spec = self.spec or GroupSpec(key=GROUP, size=0)
        records = self.state.records
        ready = [record for record in records.values() if record.state is InstanceState.READY]
        return (
            len(ready) == len(records) == spec.size
            and all(record.config_hash == spec.config_hash for record in ready)
            and records.keys() == self.world.records.keys() == self.world.things.keys()
            and plan(spec, records.values(), self.world.time) == []
            and not any(thing.draining for thing in self.world.things.values())
        )


async def contain(work: Awaitable[float]) -> float | None:
    """Take errors as the controller of the passes does: try again later."""
    try:
        return await work
    except HapticError:
        return None


TestFleetMachine = pytest.mark.slow(FleetMachine.TestCase)
TestFleetMachine.settings = settings(max_examples=HISTORIES, stateful_step_count=20)
