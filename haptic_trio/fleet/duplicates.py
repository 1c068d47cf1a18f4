"""Window of recent events that suppresses duplicates."""

from typing import TypeAlias

from haptic_trio.fleet.model import EventType, GroupKey, ReconcileEvent

SWEEP_ABOVE = 100
"""Entries above which old ones are removed."""

_Key: TypeAlias = tuple[EventType, str, str, str]


class DuplicateWindow:
    """Remembers handled events, from the success of the pass that handled them until their window ends."""

    def __init__(self) -> None:
        self._waiting: dict[GroupKey, set[_Key]] = {}
        self._handling: dict[GroupKey, set[_Key]] = {}
        self._handled: dict[_Key, float] = {}

    def is_duplicate(self, event: ReconcileEvent, now: float, *, window: float) -> bool:
        """Whether *event* sets `prevent_duplicate`, and its like was handled less than *window* seconds ago."""
        if not event.prevent_duplicate or event.attempt:
            return False
        handled_at = self._handled.get(_key_of(event))
        return handled_at is not None and now - handled_at < window

    def accept(self, group: GroupKey, event: ReconcileEvent) -> None:
        """Note that the next pass over *group* handles *event*."""
        self._waiting.setdefault(group, set()).add(_key_of(event))

    def begin(self, group: GroupKey) -> None:
        """Note that a pass begins; it handles all events that were accepted before."""
        self._handling.setdefault(group, set()).update(self._waiting.pop(group, set()))

    def succeed(self, group: GroupKey, now: float, *, window: float) -> None:
        """Note that the pass has succeeded."""
        self._handled.update(dict.fromkeys(self._handling.pop(group, set()), now))
        if len(self._handled) > SWEEP_ABOVE:
            self._handled = {key: time for key, time in self._handled.items() if now - time < window}


def _key_of(event: ReconcileEvent) -> _Key:
    return event.type, event.tenant, event.group, event.instance_id
