"""Store for records of instances in memory."""

from collections.abc import Sequence

import trio

from haptic_trio.fleet.model import InstanceRecord


class MemoryStore:
    """Keeps records for as long as the object lives."""

    def __init__(self) -> None:
        self.records: dict[str, InstanceRecord] = {}

    async def load(self) -> Sequence[InstanceRecord]:
        """Return all records."""
        await trio.lowlevel.checkpoint()
        return tuple(self.records.values())

    async def put(self, record: InstanceRecord) -> None:
        """Keep *record*."""
        await trio.lowlevel.checkpoint()
        self.records[record.id] = record

    async def delete(self, instance_id: str) -> None:
        """Drop a record."""
        await trio.lowlevel.checkpoint()
        self.records.pop(instance_id, None)
