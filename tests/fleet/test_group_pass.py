"""Passes over a group whose provider cannot drain or remove an instance, on virtual time."""

import trio
from trio.testing import MockClock

from haptic_trio.fleet.model import InstanceState, ProviderStatus, Reason, RetryableError
from haptic_trio.workqueue.outcome import PermanentError
from tests.fleet.rig.fake_provider import SPEC, FakeFleet


async def test_a_removal_that_fails_permanently_waits_for_another_specification(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        fleet.provider.script["delete"] = [PermanentError("is protected")] * 2
        fleet.provider.become(first, ProviderStatus.FAILED)
        await trio.sleep(3600)

        # Its successor serves.
        assert len(fleet.ready) == SPEC.size
        assert fleet.errors == ["is protected"]
        assert [record.id for record in fleet.records(InstanceState.DELETING)] == [first]

        fleet.change(drain_timeout=40.0)
        await fleet.wait(lambda: fleet.errors == ["is protected"] * 2)
        fleet.change(drain_timeout=50.0)
        await fleet.wait_settled()


async def test_a_removal_that_fails_permanently_is_tried_once_by_the_next_term(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        fleet.provider.script["delete"] = [PermanentError("is protected")]
        fleet.provider.become(first, ProviderStatus.FAILED)
        await fleet.wait(lambda: fleet.errors == ["is protected"])
    async with fleet.term():
        await fleet.wait_settled()


async def test_an_instance_that_cannot_be_removed_is_forgotten_once_it_is_gone(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        fleet.provider.script["delete"] = [PermanentError("is protected")]
        fleet.provider.become(first, ProviderStatus.FAILED)
        await trio.sleep(600)
        assert first in fleet.store.records

        fleet.provider.things.pop(first)
        await fleet.wait_settled()
        assert fleet.errors == ["is protected"]


async def test_a_drain_that_fails_permanently_is_reported_and_ends_at_its_deadline(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    fleet.change_before_start(drain_timeout=600.0)
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        fleet.provider.script["begin_drain"] = [PermanentError("has no drain")] * 1000
        fleet.change(size=1)
        await trio.sleep(300)

        assert fleet.drains == [(first, Reason.SCALE_DOWN)]
        assert fleet.errors == ["has no drain"]
        assert len(fleet.records(InstanceState.DRAINING)) == 1
        # A removal that fails is retried, although the drain was not.
        fleet.provider.script["delete"] = [RetryableError("busy")] * 3
        await fleet.wait_settled()
        assert fleet.errors == ["has no drain", *["busy"] * 3]


async def test_a_drain_that_does_not_begin_is_reported_once_and_retried(autojump_clock: MockClock) -> None:
    fleet = FakeFleet()
    fleet.change_before_start(drain_timeout=600.0)
    async with fleet.term():
        first, _ = await fleet.wait_settled()
        fleet.provider.script["begin_drain"] = [RetryableError("busy")] * 3
        fleet.change(size=1)
        await fleet.wait(lambda: bool(fleet.provider.times_of("begin_drain")))

        assert fleet.drains == [(first, Reason.SCALE_DOWN)]
        assert fleet.errors == ["busy"] * 3
