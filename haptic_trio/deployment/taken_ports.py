"""Addresses that HAProxy could not listen on: what needs them is left out, and tried again later and later.

An endpoint rejects a whole generation for one address that another process
has. So the address becomes an object of the store `takenPorts`; who needs it
is rendered without it, and the next generation is deployed with everything
else. Each retry may cost one deployment, so all that are due are tried
together, and no two retries are closer than `FIRST_PAUSE`.
"""

import math
from collections.abc import Iterable
from typing import Any, Final

import msgspec
import trio

from haptic_trio.channels import Change
from haptic_trio.dataplane.endpoint import PortsUnavailableError, UnboundAddress
from haptic_trio.gateway.listeners.port_rules import taken_port
from haptic_trio.k8s.store import Store
from haptic_trio.logs import get_logger
from haptic_trio.messages import ResourceChanged

FIRST_PAUSE: Final = 15.0
LONGEST_PAUSE: Final = 900.0
"""Seconds until an address is tried again: doubled from the first to the longest."""
MOST_ADDRESSES: Final = 10_000
"""Addresses that are remembered; of more, the newest are only reported by the failed deployment."""

_Address = tuple[str, int]
_log = get_logger("ports")


class _Taken(msgspec.Struct):
    reason: str
    failures: int
    until: float
    is_tried: bool = False
    """The pause is over, and it is rendered again."""


class TakenPorts:
    """The decision, for all iterations of a process; times are seconds of any monotonic clock.

    Only `report` and `wait` have a clock of their own.
    """

    def __init__(self) -> None:
        self._taken: dict[_Address, _Taken] = {}
        self._last_retry = -math.inf
        self._changed = trio.Event()

    def report(self, error: PortsUnavailableError) -> None:
        """Do `note` for an endpoint that failed with *error* now, and wake `wait`."""
        for address in self.note(error.addresses, trio.current_time()):
            _log.warning("a port is not available", endpoint=error.endpoint, error=str(address))
        self._changed.set()

    async def wait(self) -> None:
        """Return after a `report`, or once `retry` has something to do."""
        due = self.due()
        with trio.move_on_at(math.inf if due is None else due):
            await self._changed.wait()
        self._changed = trio.Event()

    def note(self, addresses: Iterable[UnboundAddress], now: float) -> list[UnboundAddress]:
        """Note that HAProxy could not listen on *addresses*; return those that are news."""
        news = []
        for address in addresses:
            key = address.host, address.port
            known = self._taken.get(key)
            if known is not None and not known.is_tried:
                # Another endpoint, or a deployment that was under way, says the same.
                continue
            if known is None and len(self._taken) >= MOST_ADDRESSES:
                continue
            failures = known.failures + 1 if known is not None else 1
            self._taken[key] = _Taken(address.reason, failures, now + _pause(failures))
            news.append(address)
        return news

    def due(self) -> float | None:
        """Return when `retry` has something to do; None for never."""
        waiting = [taken.until for taken in self._taken.values() if not taken.is_tried]
        forgotten = [taken.until + 2 * _pause(taken.failures) for taken in self._taken.values() if taken.is_tried]
        times = ([max(min(waiting), self._last_retry + FIRST_PAUSE)] if waiting else []) + forgotten
        return min(times, default=None)

    def retry(self, now: float) -> None:
        """Have addresses tried again whose pause is over, and forget those that have not failed again since."""
        is_time = self._last_retry + FIRST_PAUSE <= now
        for key, taken in list(self._taken.items()):
            if taken.is_tried and taken.until + 2 * _pause(taken.failures) <= now:
                del self._taken[key]
            elif is_time and not taken.is_tried and taken.until <= now:
                taken.is_tried = True
                self._last_retry = now
                taken.until = now

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects of the store: what is left out now."""
        return [
            taken_port(host, port, taken.reason)
            for (host, port), taken in sorted(self._taken.items())
            if not taken.is_tried
        ]


def _pause(failures: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE)


async def run_taken_ports(
    changes: trio.MemorySendChannel[Change],
    store: Store | None,
    *,
    taken: TakenPorts,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *store* what *taken* says, and announce its changes, until cancelled.

    Without a store nothing that is rendered can be left out. Takes ownership
    of *changes*.
    """
    with changes:
        if store is not None:
            store.replace(taken.objects())
        task_status.started()
        while True:
            await taken.wait()
            taken.retry(trio.current_time())
            if store is not None and (changed := store.replace(taken.objects())):
                await changes.send(ResourceChanged(stores=(store.name,), refs=changed.refs))
