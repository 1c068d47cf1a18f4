"""Addresses that HAProxy could not bind: excluded from rendering, and retried with exponential backoff.

An endpoint rejects a whole generation because of one address that another
process uses. So the address becomes an object of the store `takenPorts`.
Objects that need it are rendered without it, and the next generation is
deployed with everything else. Each retry may cost one deployment, so all
addresses that are due are retried together, and at most once in
`FIRST_PAUSE` seconds.
"""

import math
from collections.abc import Iterable, Mapping
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
"""Seconds before an address is retried: doubled from the first to the longest."""
MOST_ADDRESSES: Final = 10_000
"""Limit of excluded addresses; further ones are only reported by the failed deployment."""

_LISTENING: Final = ("httpPort", "httpsPort", "metricsPort", "passthroughPort")
_FREE: Final = "stop the process that has the address, or change the setting; it is retried"
_ABSENT: Final = "set templating.extraContext.bindAddress to an address of this machine; it is retried"
_UNPRIVILEGED: Final = (
    "give HAProxy the capability CAP_NET_BIND_SERVICE, lower the sysctl net.ipv4.ip_unprivileged_port_start, or use a"
    " port from 1024"
)

_Address = tuple[str, int]
_log = get_logger("ports")


class _Taken(msgspec.Struct):
    reason: str
    failures: int
    until: float
    is_tried: bool = False
    """The pause is over, and the address is rendered again."""


class TakenPorts:
    """Excluded addresses of all iterations of a process; times are seconds of any monotonic clock.

    Only `report` and `wait` read Trio's clock.
    """

    def __init__(self) -> None:
        self._taken: dict[_Address, _Taken] = {}
        self._last_retry = -math.inf
        self._changed = trio.Event()
        self.settings: Mapping[int, str] = {}
        """Settings of the configuration that make HAProxy listen on a port."""

    def report(self, error: PortsUnavailableError) -> None:
        """Exclude the addresses of *error* from now on, log them, and wake `wait`."""
        for address in self.note(error.addresses, trio.current_time()):
            self._log(address, error.endpoint)
        self._changed.set()

    def _log(self, address: UnboundAddress, endpoint: str) -> None:
        fields = {"address": f"{address.host}:{address.port}", "reason": address.reason, "endpoint": endpoint}
        setting = self.settings.get(address.port)
        if setting is None:
            # The port of a Gateway's listener: its owner gets the condition `PortUnavailable`.
            _log.warning("port unavailable", **fields)
            return
        fix = _UNPRIVILEGED if "ermission" in address.reason and address.port < 1024 else _FREE
        if "annot assign" in address.reason:
            fix = _ABSENT
        _log.error("port unavailable: HAProxy cannot serve", **fields, setting=setting, fix=fix)

    async def wait(self) -> None:
        """Return after a `report`, or when `retry` is due."""
        due = self.due()
        with trio.move_on_at(math.inf if due is None else due):
            await self._changed.wait()
        self._changed = trio.Event()

    def note(self, addresses: Iterable[UnboundAddress], now: float) -> list[UnboundAddress]:
        """Exclude *addresses*, which HAProxy could not bind; return those that were not excluded before."""
        added = []
        for address in addresses:
            key = address.host, address.port
            known = self._taken.get(key)
            if known is not None and not known.is_tried:
                # Another endpoint, or a deployment in progress, has the same error.
                continue
            if known is None and len(self._taken) >= MOST_ADDRESSES:
                continue
            failures = known.failures + 1 if known is not None else 1
            self._taken[key] = _Taken(address.reason, failures, now + _pause(failures))
            added.append(address)
        return added

    def due(self) -> float | None:
        """Return when `retry` is due; None if it is not."""
        waiting = [taken.until for taken in self._taken.values() if not taken.is_tried]
        forgotten = [taken.until + 2 * _pause(taken.failures) for taken in self._taken.values() if taken.is_tried]
        times = ([max(min(waiting), self._last_retry + FIRST_PAUSE)] if waiting else []) + forgotten
        return min(times, default=None)

    def retry(self, now: float) -> None:
        """Retry addresses whose pause is over; forget retried ones that did not fail again."""
        is_time = self._last_retry + FIRST_PAUSE <= now
        for key, taken in list(self._taken.items()):
            if taken.is_tried and taken.until + 2 * _pause(taken.failures) <= now:
                del self._taken[key]
            elif is_time and not taken.is_tried and taken.until <= now:
                taken.is_tried = True
                self._last_retry = now
                taken.until = now

    def objects(self) -> list[dict[str, Any]]:
        """Return the objects of the store: the excluded addresses."""
        return [
            taken_port(host, port, taken.reason)
            for (host, port), taken in sorted(self._taken.items())
            if not taken.is_tried
        ]


def listening_settings(context: Mapping[str, Any]) -> dict[int, str]:
    """Return the settings in *context*, `templating.extraContext`, by the port that HAProxy listens on."""
    names = [name for name in _LISTENING if isinstance(context.get(name), int) and context[name]]
    return {context[name]: f"templating.extraContext.{name}" for name in reversed(names)}


def _pause(failures: int) -> float:
    return min(FIRST_PAUSE * 2.0 ** min(failures - 1, 30), LONGEST_PAUSE)


async def run_taken_ports(
    changes: trio.MemorySendChannel[Change],
    store: Store | None,
    *,
    taken: TakenPorts,
    settings: Mapping[int, str] | None = None,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Keep *store* equal to *taken* and send its changes, until cancelled.

    Without a store no template reads the addresses, and nothing is excluded.
    *settings* names the setting of a port in the log. Takes ownership of
    *changes*.
    """
    taken.settings = settings or {}
    with changes:
        if store is not None:
            store.replace(taken.objects())
        task_status.started()
        while True:
            await taken.wait()
            taken.retry(trio.current_time())
            if store is not None and (changed := store.replace(taken.objects())):
                await changes.send(ResourceChanged(stores=(store.name,), refs=changed.refs))
