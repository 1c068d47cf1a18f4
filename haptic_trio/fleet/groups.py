"""All groups of a term: loaded from store and provider, and reconciled with what exists.

An object of the provider without a record is an orphan. It is adopted if it
serves, reports its id, and belongs to a desired group; otherwise it is
removed once two listings, at least `grace` seconds apart, contain it.
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

_SERVING = frozenset({ProviderStatus.RUNNING, ProviderStatus.DETACHED})
UNKNOWN_GROUP = GroupKey("")
"""Group of orphans that do not report their group."""


class GroupStates:
    """The states of all groups, by key; instances by id."""

    def __init__(self, *, grace: float) -> None:
        self._grace = grace
        self._states: dict[GroupKey, GroupState] = {}
        self._orphans: dict[str, float] = {}

    def __iter__(self) -> Iterator[GroupState]:
        return iter(tuple(self._states.values()))

    def state_of(self, key: GroupKey) -> GroupState:
        """Return the state of the group; an empty one for a new group."""
        return self._states.setdefault(key, GroupState(key))

    def drop_empty(self, key: GroupKey) -> None:
        """Forget a group without records and notices."""
        state = self._states.get(key)
        if state is not None and not state.records and not state.notices:
            del self._states[key]

    def find(self, instance_id: str) -> tuple[GroupState, InstanceRecord] | None:
        """Return the record of an instance and its group; None for an unknown one."""
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
        """Return new records for orphans in *listing*: those to adopt are STARTING, those to remove are DELETING."""
        names = {item.provider_id for state in self._states.values() for item in state.records.values()}
        unknown = [item for item in listing if item.provider_id not in names and self.find(item.id) is None]
        # The grace period of an orphan begins again after a listing without it.
        self._orphans = {item.provider_id: self._orphans.get(item.provider_id, now) for item in unknown}
        found = []
        for item in unknown:
            if item.id and item.key in wanted and item.status in _SERVING:
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
