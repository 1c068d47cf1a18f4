"""Leadership terms: runs a task for as long as, and whenever, this replica leads."""

from collections.abc import Awaitable, Callable

import trio

from haptic_trio.channels import Latest
from haptic_trio.messages import LeadershipChanged


async def _ignore(_state: LeadershipChanged) -> None:
    pass


async def run_terms(
    leadership: Latest[LeadershipChanged],
    lead: Callable[[], Awaitable[None]],
    *,
    notify: Callable[[LeadershipChanged], Awaitable[None]] = _ignore,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run *lead* during each term of leadership until cancelled, one term after another.

    started() when the leader is known. *notify* gets the first state and each
    change of it, before a term begins and after a term has ended. A term ends
    by cancelling *lead*, also if leadership is won again at once; the next
    term begins only after *lead* has returned.
    """
    version, state = await leadership.wait_newer(0)
    task_status.started()
    while True:
        await notify(state)
        if state.is_leader:
            async with trio.open_nursery() as term:
                term.start_soon(lead)
                version, state = await _wait_lost(leadership, version, state.term)
                term.cancel_scope.cancel(reason="leadership lost")
        else:
            version, state = await leadership.wait_newer(version)


async def _wait_lost(leadership: Latest[LeadershipChanged], seen: int, term: int) -> tuple[int, LeadershipChanged]:
    """Wait until *term* is over. The cell keeps the newest value only, so that may be the next term already."""
    while True:
        seen, state = await leadership.wait_newer(seen)
        if not state.is_leader or state.term != term:
            return seen, state
