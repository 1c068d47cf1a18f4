"""Reload pacing: a namespace whose changes cause many reloads gets fewer of them, and its changes are collected.

Each reload leaves an old worker behind that finishes its connections, and
HAProxy ends the oldest worker when there are too many (`maxOldProcesses`), or
when it is too old (`hardStopAfter`). A tenant who causes a reload whenever one
is permitted would so end the WebSockets of all others. Reloads are therefore
counted per namespace: after the first few, each one is followed by a hold, in
which the changes of this namespace alone reload no endpoint. A reload for
another namespace includes them.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

FREE: Final = 5
"""Reloads of a namespace that no hold follows."""
_FIRST: Final = 1 / 16
"""Share of the interval that the first hold takes; each further one takes twice the time, up to the interval."""
_MOST: Final = FREE + 5
"""Number of reloads from which the hold is as long as the interval."""


class _Account(msgspec.Struct, frozen=True):
    count: float
    """Reloads, less those that are forgotten."""
    counted: float
    """Time of the last reload."""
    until: float
    """End of the hold."""


class ReloadPacing:
    """Counts the reloads of each namespace. Has no clock: times are seconds of any monotonic clock."""

    def __init__(self, interval: float = 0.0) -> None:
        """A namespace gets one reload in *interval* seconds on average, beside the first ones; 0 means no limit."""
        self._interval = interval
        self._accounts: dict[str, _Account] = {}

    def set_interval(self, interval: float) -> None:
        """Go on with another *interval*. Holds end when they would have, or now if there is no limit."""
        self._interval = interval
        if not interval:
            self._accounts.clear()

    def record(self, namespaces: Iterable[str], now: float) -> None:
        """Count a reload for each of *namespaces*. One reload is forgotten in each interval."""
        if not self._interval:
            return
        self._accounts = {name: one for name, one in self._accounts.items() if self._count(one, now) > 0}
        for name in namespaces:
            known = self._accounts.get(name)
            count = min(1 + (self._count(known, now) if known is not None else 0), _MOST)
            hold = self._interval * min(1.0, _FIRST * 2 ** (count - FREE - 1)) if count > FREE else 0.0
            self._accounts[name] = _Account(count, now, now + hold)

    def _count(self, account: _Account, now: float) -> float:
        return max(0.0, account.count - (now - account.counted) / self._interval)

    @property
    def holds(self) -> tuple[tuple[str, float], ...]:
        """The namespaces with a hold, each with its end, which may be over."""
        return tuple(sorted((name, one.until) for name, one in self._accounts.items() if one.until > one.counted))
