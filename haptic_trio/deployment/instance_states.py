"""State of each instance: its newest generation, and the outcome of its last deployment."""

from collections.abc import Iterable, Mapping

import msgspec

from haptic_trio.channels import InstanceState, Latest
from haptic_trio.dataplane.endpoint import SyncResult


class InstanceStates:
    """Writer of the cell *states*, which holds the state of every instance by name; each value is a new mapping."""

    def __init__(self, states: Latest[Mapping[str, InstanceState]]) -> None:
        self._cell = states
        self._states = dict(states.value or {})

    def announce(self, names: Iterable[str], generation: str) -> None:
        """Record that *generation* is scheduled for the instances *names*."""
        for name in names:
            known = self._states.get(name)
            self._states[name] = (
                InstanceState(wanted=generation) if known is None else msgspec.structs.replace(known, wanted=generation)
            )
        self._publish()

    def record(self, name: str, generation: str, result: SyncResult | None, error: str = "") -> None:
        """Record the *result* of the deployment of *generation* to the instance *name*, or the *error* without one."""
        known = self._states.get(name) or InstanceState(wanted=generation)
        if result is None:
            known = msgspec.structs.replace(known, error=error)
        else:
            known = InstanceState(
                wanted=known.wanted, generation=generation, held=result.held, is_partial=result.is_partial
            )
        self._states[name] = known
        self._publish()

    def forget(self, name: str) -> None:
        """Remove the lost instance *name*."""
        if self._states.pop(name, None) is not None:
            self._publish()

    def _publish(self) -> None:
        self._cell.put(dict(self._states))
