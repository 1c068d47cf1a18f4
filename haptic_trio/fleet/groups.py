"""All groups of a term: loaded from store and provider, and reconciled with what exists.

An object of the provider without a record is an orphan. It is adopted when it
answers, says which instance it is, and belongs to a group that is wanted;
otherwise it is removed once two listings, `grace` seconds apart, have shown it.
"""

from collections.abc import Collection, Iterator

from haptic_trio.fleet.group_state import GroupState
from haptic_trio.fleet.model import (
    GroupKey,
    InstanceRecord,
    InstanceState,
    ProviderInstance,
    ProviderStatus,
)

UNKNOWN_GROUP = GroupKey("")
"""Of orphans that do not say where they belong."""


class Roster:
    """The states of all groups, by key; instances by id."""

    def __init__(self, *, grace: float) -> None:
        self._grace = grace
        self._states: dict[GroupKey, GroupState] = {}
        self._orphans: dict[str, float] = {}

    def __iter__(self) -> Iterator[GroupState]:
        return iter(tuple(self._states.values()))

    def state_of(self, key: GroupKey) -> GroupState:
        """Return the state of the group, which is empty for a new one."""
        return self._states.setdefault(key, GroupState(key))

    def drop_empty(self, key: GroupKey) -> None:
        """Forget a group that has nothing left to look after."""
        state = self._states.get(key)
        if state is not None and not state.records and not state.facts:
            del self._states[key]

    def find(self, instance_id: str) -> tuple[GroupState, InstanceRecord] | None:
        """Return an instance and its group; None when it is unknown."""
        for state in self._states.values():
            record = state.records.get(instance_id)
            if record is not None:
                return state, record
        return None

    def keys(self) -> set[GroupKey]:
        """Return the groups that have instances."""
        return {key for key, state in self._states.items() if state.records}

    def compare(
        self, listing: Collection[ProviderInstance], wanted: Collection[GroupKey], now: float
    ) -> list[InstanceRecord]:
        """Return records to be kept for the orphans in *listing*: to look after them, or to remove them."""
        names = {item.provider_id for state in self._states.values() for item in state.records.values()}
        unknown = [item for item in listing if item.provider_id not in names and self.find(item.id) is None]
        # Only what was shown without a gap counts as shown before.
        self._orphans = {item.provider_id: self._orphans.get(item.provider_id, now) for item in unknown}
        found = []
        for item in unknown:
            if item.id and item.key in wanted and item.status is ProviderStatus.RUNNING:
                found.append(_record_of(item, InstanceState.STARTING))
            elif now - self._orphans[item.provider_id] >= self._grace and self._orphans[item.provider_id] < now:
                found.append(_record_of(item, InstanceState.DELETING))
        return found


def _record_of(item: ProviderInstance, state: InstanceState) -> InstanceRecord:
    return InstanceRecord(
        id=item.id or item.provider_id,
        key=item.key or UNKNOWN_GROUP,
        state=state,
        created_at=item.created_at,
        config_hash=item.config_hash,
        provider_id=item.provider_id,
        status=item.status,
    )
