"""At most one candidate believes that it holds the lease, whatever the network does and however unequal clocks run."""

import heapq
from collections.abc import Callable
from itertools import count
from random import Random
from typing import Any

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from haptic_trio.k8s.lease_election import Bid, Election, LeaseSettings, LeaseView, released_spec, view_of
from haptic_trio.k8s.resource import Resource

DEFAULTS = LeaseSettings()


class Server:
    """Stores one Lease, and replaces only the version that a write names."""

    def __init__(self) -> None:
        self.stored: Resource | None = None
        self._version = 0

    def read(self) -> LeaseView | None:
        return view_of(self.stored) if self.stored is not None else None

    def write(self, base: str | None, spec: dict[str, Any]) -> LeaseView | None:
        present = self.read()
        if (present.version if present is not None else None) != base:
            return None
        self._version += 1
        self.stored = {"metadata": {"resourceVersion": str(self._version)}, "spec": dict(spec)}
        return self.read()

    def carry_out(self, bid: Bid) -> LeaseView | None:
        return self.write(bid.base.version if bid.base is not None else None, dict(bid.spec))


def attempt(election: Election, server: Server, now: float) -> bool:
    """Read if need be, and bid; return whether the lease is held then."""
    if election.must_read:
        election.observe(server.read(), now)
    bid = election.bid(now)
    if bid is not None:
        stored = server.carry_out(bid)
        if stored is None:
            election.collide()
        else:
            election.succeed(bid, stored, now)
    return election.is_held(now)


def candidate(name: str, **durations: float) -> Election:
    return Election(name, LeaseSettings(**durations) if durations else DEFAULTS)


def test_first_candidate_creates_the_lease_and_holds_it_for_the_renew_deadline() -> None:
    server, one = Server(), candidate("one")

    assert attempt(one, server, 100)

    assert server.stored is not None
    assert server.stored["spec"] == {"holderIdentity": "one", "leaseDurationSeconds": 15, "leaseTransitions": 0}
    assert one.next_bid() == 102
    assert one.is_held(109.9)
    assert not one.is_held(110)


def test_lease_that_is_seen_to_change_is_never_taken_and_one_that_is_not_is_taken_after_its_duration() -> None:
    server, one, two = Server(), candidate("one"), candidate("two")
    attempt(one, server, 0)
    for now in range(2, 60, 2):
        attempt(one, server, now)
        two.update(server.read(), now)
        assert not attempt(two, server, now)

    assert two.next_bid() == 58 + 15
    assert not attempt(two, server, 72.9)
    assert attempt(two, server, 73)
    assert two.transitions == 1
    assert not one.is_held(73)


def test_candidate_that_missed_the_renewals_collides_instead_of_taking_the_lease() -> None:
    server, one, two = Server(), candidate("one"), candidate("two")
    attempt(one, server, 0)
    attempt(two, server, 0)
    attempt(one, server, 14)

    assert not attempt(two, server, 20)
    assert two.must_read
    assert not attempt(two, server, 20)
    assert two.next_bid() == 35


def test_released_lease_is_taken_at_once() -> None:
    server, one, two = Server(), candidate("one"), candidate("two")
    attempt(one, server, 0)
    attempt(two, server, 1)
    lease = server.read()
    assert lease is not None
    server.write(lease.version, released_spec(lease))

    two.update(server.read(), 3.5)

    assert two.next_bid() <= 3.5
    assert attempt(two, server, 3.5)
    assert two.transitions == 1


def test_duration_of_the_holder_counts_not_our_own() -> None:
    server, one, two = Server(), candidate("one", duration=60), candidate("two", duration=5, renew_deadline=3)
    attempt(one, server, 0)
    attempt(two, server, 0)

    assert two.next_bid() == 60


def test_foreign_lease_without_duration_is_taken_after_our_own() -> None:
    server, one = Server(), candidate("one")
    server.write(None, {"holderIdentity": "somebody", "leaseDurationSeconds": None})

    assert not attempt(one, server, 0)
    assert one.next_bid() == 15


def test_renewal_whose_answer_is_lost_extends_nothing_and_is_made_up_for() -> None:
    server, one = Server(), candidate("one")
    attempt(one, server, 0)
    lost = one.bid(2)
    assert lost is not None
    server.carry_out(lost)
    one.fail(2)

    assert one.held_until == 10
    assert one.next_bid() == 4
    assert attempt(one, server, 4)
    assert one.held_until == 14
    assert one.transitions == 0


def test_holder_that_hears_of_another_one_looks_and_gives_up() -> None:
    server, one = Server(), candidate("one")
    attempt(one, server, 0)
    lease = server.read()
    assert lease is not None
    server.write(lease.version, {"holderIdentity": "two", "leaseDurationSeconds": 15})

    one.update(server.read(), 1)
    assert one.next_bid() == 1
    assert not attempt(one, server, 1)


def test_holder_that_hears_late_of_its_predecessor_keeps_the_lease() -> None:
    server, one, two = Server(), candidate("one"), candidate("two")
    attempt(one, server, 0)
    old = server.read()
    attempt(two, server, 0)
    attempt(two, server, 15)

    two.update(old, 16)
    assert two.is_held(16)
    assert attempt(two, server, 16)


def test_other_durations_are_bid_at_once_and_lose_nothing() -> None:
    server, one = Server(), candidate("one")
    attempt(one, server, 0)

    one.change_settings(LeaseSettings(duration=4, renew_deadline=3, retry_period=1), 0.5)

    assert one.next_bid() == 0.5
    assert one.is_held(0.5)
    assert attempt(one, server, 0.5)
    assert one.held_until == 3.5
    assert server.stored is not None
    assert server.stored["spec"]["leaseDurationSeconds"] == 4


def test_shorter_durations_whose_answer_is_lost_shorten_the_belief() -> None:
    one = candidate("one")
    attempt(one, Server(), 0)
    one.change_settings(LeaseSettings(duration=4, renew_deadline=3, retry_period=1), 0.5)

    one.bid(0.5)

    assert one.held_until == 3.5


def test_followers_with_other_durations_do_not_bid_because_of_that() -> None:
    server, one, two = Server(), candidate("one"), candidate("two")
    attempt(one, server, 0)
    attempt(two, server, 0)

    two.change_settings(LeaseSettings(duration=4, renew_deadline=3, retry_period=1), 1)

    assert two.next_bid() == 15


@pytest.mark.parametrize("spec", [None, {}, {"leaseDurationSeconds": "x", "leaseTransitions": True}])
def test_lease_that_says_nothing_is_free(spec: dict[str, Any] | None) -> None:
    election = candidate("one")
    election.observe(view_of({"metadata": {"resourceVersion": "7"}, "spec": spec}), 0)

    assert election.bid(0) is not None


class Candidate:
    """A candidate at work: it acts whenever an action is due, and its network is what the weather makes of it."""

    def __init__(self, world: "World", number: int) -> None:
        self.world = world
        self.rate = world.random.uniform(0.9, 1.1)
        self.offset = world.random.uniform(-1e6, 1e6)
        self.lives = 0
        self.is_frozen = False
        self.number = number
        self.restart()

    @property
    def clock(self) -> float:
        return self.offset + self.rate * self.world.now

    @property
    def is_leader(self) -> bool:
        return self.election.is_held(self.clock)

    def restart(self) -> None:
        """Become a new process; what the old one has sent is under way still."""
        self.lives += 1
        self.election = Election(f"candidate-{self.number}-{self.lives}", DEFAULTS)
        self.attempt: object | None = None
        self.given_up = 0.0

    def act(self) -> None:
        election, now, world = self.election, self.clock, self.world
        if self.attempt is not None:
            if now >= self.given_up:
                self.attempt = None
                election.fail(now)
            return
        if election.next_bid() > now:
            return
        attempt = self.attempt = object()
        self.given_up = now + DEFAULTS.renew_deadline / 2
        if election.must_read:
            world.send(lambda: self.answer(attempt, world.server.read(), election.observe))
        elif (bid := election.bid(now)) is not None:

            def carry_out() -> None:
                stored = world.server.carry_out(bid)
                world.report()

                def take(stored: LeaseView | None, now: float) -> None:
                    if stored is None:
                        election.collide()
                    else:
                        election.succeed(bid, stored, now)

                self.answer(attempt, stored, take)

            world.send(carry_out)
        else:
            self.attempt = None

    def answer(self, attempt: object, found: LeaseView | None, take: Callable[[LeaseView | None, float], None]) -> None:
        def arrive() -> None:
            if self.attempt is attempt:
                self.attempt = None
                take(found, self.clock)

        self.world.send(arrive)

    def update(self, lease: LeaseView | None) -> None:
        election = self.election
        self.world.send(lambda: election.update(lease, self.clock) if election is self.election else None)

    def release(self) -> None:
        lease = self.election.lease
        self.election.give_up()
        self.election.must_read = True
        if lease is not None and lease.holder == self.election.identity:

            def carry_out() -> None:
                self.world.server.write(lease.version, released_spec(lease))
                self.world.report()

            self.world.send(carry_out)


class World:
    """Candidates, a server, and messages that are delayed, reordered and lost; all of it decided by *random*."""

    def __init__(self, random: Random, candidates: int) -> None:
        self.random = random
        self.now = 0.0
        self.server = Server()
        self.loss, self.delay = 0.0, 0.01
        self.terms = 0
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self.candidates = [Candidate(self, number) for number in range(candidates)]

    def send(self, carry: Callable[[], None]) -> None:
        if self.random.random() >= self.loss:
            due = self.now + self.random.expovariate(1 / self.delay)
            heapq.heappush(self._due, (due, next(self._serial), carry))

    def report(self) -> None:
        for each in self.candidates:
            each.update(self.server.read())

    def disturb(self) -> None:
        """Change the conditions, or the action of a replica."""
        self.loss = self.random.choice([0.0, 0.0, 0.2, 0.9])
        self.delay = self.random.choice([0.01, 0.01, 0.3, 4.0, 12.0])
        someone = self.random.choice(self.candidates)
        match self.random.randrange(8):
            case 0:
                someone.restart()
            case 1:
                someone.release()
            case 2 | 3:
                someone.is_frozen = not someone.is_frozen
            case 4:
                short = LeaseSettings(duration=6, renew_deadline=4, retry_period=1)
                someone.election.change_settings(self.random.choice([short, DEFAULTS]), someone.clock)

    def run(self, seconds: float) -> None:
        """Let time pass in small steps, looking after each at who believes to hold the lease."""
        leader = ""
        disturbed = 0.0
        while self.now < seconds:
            self.now += 0.25
            if self.now >= disturbed:
                disturbed = self.now + self.random.uniform(3, 30)
                self.disturb()
            while self._due and self._due[0][0] <= self.now:
                heapq.heappop(self._due)[2]()
            for each in self.candidates:
                if not each.is_frozen:
                    each.act()
            leaders = [each.election.identity for each in self.candidates if each.is_leader]
            assert len(leaders) <= 1, f"at {self.now}: {leaders}"
            if leaders and leaders[0] != leader:
                leader = leaders[0]
                self.terms += 1


@pytest.mark.slow
@given(random=st.randoms(use_true_random=True), candidates=st.integers(2, 3))
@settings(max_examples=200, deadline=None)
def test_at_most_one_candidate_believes_to_hold_the_lease(random: Random, candidates: int) -> None:
    world = World(random, candidates)

    world.run(400)

    event(f"{min(world.terms, 8)} terms")


@given(seed=st.integers(0, 2**32), candidates=st.integers(2, 3))
@settings(max_examples=20, deadline=None)
def test_a_leader_is_elected_soon_after_the_network_recovers(seed: int, candidates: int) -> None:
    world = World(Random(seed), candidates)
    world.run(200)
    world.loss, world.delay = 0.0, 0.01
    for each in world.candidates:
        each.is_frozen = False
        each.election.change_settings(DEFAULTS, each.clock)
    world.disturb = lambda: None  # type: ignore[method-assign]

    # An attempt that waits for a lost answer is given up, then the duration runs, of a clock that may be slow.
    world.run(200 + 5 / 0.9 + 2 / 0.9 + 15 / 0.9 + 1)

    assert any(each.is_leader for each in world.candidates)
