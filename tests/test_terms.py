"""Each term of leadership is one run of the leader's work."""

from functools import partial

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from haptic_trio.channels import Latest
from haptic_trio.messages import LeadershipChanged
from haptic_trio.terms import run_terms


def state(term: int, *, is_leader: bool = True) -> LeadershipChanged:
    return LeadershipChanged(is_leader=is_leader, identity="me", transitions=1, term=term)


class Work:
    """Work of a leader that takes a second to end, and the notifications about the terms."""

    def __init__(self) -> None:
        self.story: list[str] = []
        self.notified: list[tuple[bool, int]] = []

    async def lead(self) -> None:
        self.story.append("begin")
        try:
            await trio.sleep_forever()
        finally:
            with trio.move_on_after(1, shield=True):
                await trio.sleep_forever()
            self.story.append("end")

    async def notify(self, message: LeadershipChanged) -> None:
        self.notified.append((message.is_leader, message.term))


async def test_leadership_that_was_lost_and_won_between_two_looks_ends_the_term(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    leadership, work = Latest[LeadershipChanged](), Work()
    leadership.put(state(1))
    await nursery.start(partial(run_terms, leadership, work.lead, notify=work.notify))
    await wait_all_tasks_blocked()

    leadership.put(state(1, is_leader=False))
    leadership.put(state(2))
    await trio.sleep(10)

    assert work.story == ["begin", "end", "begin"]
    assert work.notified == [(True, 1), (True, 2)]


async def test_repeated_state_does_not_end_the_term(autojump_clock: MockClock, nursery: trio.Nursery) -> None:
    leadership, work = Latest[LeadershipChanged](), Work()
    leadership.put(state(1))
    await nursery.start(run_terms, leadership, work.lead)
    await wait_all_tasks_blocked()

    leadership.put(state(1))
    await trio.sleep(10)

    assert work.story == ["begin"]
