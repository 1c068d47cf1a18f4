"""An outage of an API server, by a virtual clock."""

import math

import pytest
import trio
from trio.testing import MockClock

from haptic_trio.k8s.api.outage import PROBE_INTERVAL, PROBE_LIMIT, Outage
from haptic_trio.k8s.errors import (
    ApiError,
    ForbiddenError,
    MissingError,
    ServerFailedError,
    ThrottledError,
    UnreachableError,
)


class Server:
    """Fails from second 0 to *until*; notes the times of the probes."""

    def __init__(self, until: float, error: type[ApiError] | None = UnreachableError) -> None:
        self.until = until
        self.error = error
        self.probes: list[float] = []

    async def probe(self) -> None:
        await trio.lowlevel.checkpoint()
        self.probes.append(trio.current_time())
        if trio.current_time() < self.until:
            if self.error is None:
                await trio.sleep_forever()
            else:
                raise self.error("probe", "failed")


# A server that starts does not know its roles, and forbids everything.
@pytest.mark.parametrize("error", [UnreachableError, ServerFailedError, ThrottledError, ForbiddenError])
async def test_end_of_an_outage_ends_all_sleeps_within_a_probe_interval(
    autojump_clock: MockClock, nursery: trio.Nursery, error: type[ApiError]
) -> None:
    outage, server = Outage(), Server(until=30.0, error=error)
    woken: list[float] = []

    async def wait() -> None:
        assert await outage.sleep(1000)
        woken.append(trio.current_time())

    nursery.start_soon(outage.run, server.probe)
    outage.suspect()
    async with trio.open_nursery() as sleepers:
        for _ in range(5):
            sleepers.start_soon(wait)

    assert all(30 <= at <= 30 + PROBE_INTERVAL for at in woken)
    assert 30 <= len(server.probes) <= 62


async def test_probe_without_an_answer_is_given_up_and_repeated(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    outage, server = Outage(), Server(until=30.0, error=None)
    nursery.start_soon(outage.run, server.probe)
    outage.suspect()

    await outage.wait_over()

    assert 30 <= trio.current_time() <= 30 + PROBE_LIMIT + PROBE_INTERVAL


async def test_success_of_another_request_ends_a_known_outage(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    outage, server = Outage(), Server(until=1000.0)
    nursery.start_soon(outage.run, server.probe)
    outage.suspect()

    async def succeed() -> None:
        await trio.sleep(12)
        outage.end()

    nursery.start_soon(succeed)

    assert await outage.sleep(100)
    assert trio.current_time() == 12
    await trio.sleep(50)
    assert max(server.probes) <= 12, "nothing failed since then"


async def test_silent_watch_of_a_hanging_server_ends_within_33_seconds(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    outage, server = Outage(), Server(until=math.inf, error=None)
    nursery.start_soon(outage.run, server.probe)
    outage.note_answer()

    with outage.end_if_hanging() as scope:
        await trio.Event().wait()

    assert scope.cancelled_caught
    assert 30 <= trio.current_time() <= 33


async def test_silent_watch_goes_on_while_the_server_answers_probes(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    outage, server = Outage(), Server(until=0.0)

    async def probe() -> None:
        await server.probe()
        outage.note_answer()

    nursery.start_soon(outage.run, probe)
    outage.note_answer()

    with trio.move_on_after(300), outage.end_if_hanging() as scope:
        await trio.Event().wait()

    assert not scope.cancelled_caught
    assert server.probes


@pytest.mark.parametrize("error", [None, MissingError])
async def test_failure_of_one_request_while_the_server_answers_ends_no_sleep(
    autojump_clock: MockClock, nursery: trio.Nursery, error: type[ApiError] | None
) -> None:
    outage, server = Outage(), Server(until=0.0 if error is None else 1000.0, error=error)
    nursery.start_soon(outage.run, server.probe)

    for _ in range(100):
        outage.suspect()
        assert not await outage.sleep(0.1)

    # One kind that always fails costs at most two probes a second.
    assert len(server.probes) <= 10 / (PROBE_INTERVAL / 2) + 1
