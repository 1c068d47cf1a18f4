"""Resources that controller, agents and HAProxy use, and what of them leaked."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec

from tests.chaos.processes import Instance, Program, count_tasks, descriptors_of, megabytes_of

MORE_MEGABYTES: Final = 60
"""Resident memory that a program may use beyond that after its start: caches and threads that had no work then."""
MORE_TASKS: Final = 30
"""Tasks that the controller may have beyond those after its start: requests and deployments in progress."""
MORE_DESCRIPTORS: Final = 12
"""Descriptors that a process may have open beyond those after its start: connections, and files in use."""


class Usage(msgspec.Struct, frozen=True):
    """What the processes use at one moment."""

    descriptors: dict[str, int]
    megabytes: dict[str, float]
    """Resident memory of each program."""
    tasks: int
    """Of the controller."""

    def leaked_since(self, first: "Usage") -> list[str]:
        """Return what is used in excess of *first*."""
        found = [
            f"{name}: {count} descriptors, {first.descriptors[name]} at first"
            for name, count in self.descriptors.items()
            if count > first.descriptors.get(name, count) + MORE_DESCRIPTORS
        ]
        found += [
            f"{name}: {megabytes:.0f} MB, {first.megabytes[name]:.0f} MB at first"
            for name, megabytes in self.megabytes.items()
            if megabytes > first.megabytes[name] + MORE_MEGABYTES
        ]
        if self.tasks > first.tasks + MORE_TASKS:
            found.append(f"controller: {self.tasks} tasks, {first.tasks} at first")
        return found


async def measure(programs: Sequence[Program], instances: Sequence[Instance], state: Path) -> Usage:
    """Return what *programs* and the masters of *instances* use; *state* is the state directory of the controller."""
    descriptors = {program.name: descriptors_of(program.pid) for program in programs}
    descriptors["master"] = max((descriptors_of(instance.master) for instance in instances), default=0)
    megabytes = {program.name: megabytes_of(program.pid) for program in programs}
    return Usage(descriptors, megabytes, await count_tasks(state))
