"""Names that a process still uses for removed servers and backends: new ones cannot have them before a reload."""

import re
from collections.abc import Iterable
from typing import Final

from haptic_trio.dataplane.endpoint import PatchRejectedError
from haptic_trio.haproxy.plan.operations import Removal

_BEGINNING: Final = "names of removed servers are still in use in "
_MOST_NAMED: Final = 20
_BACKENDS: Final = re.compile(rf"{_BEGINNING}([\w.:-]+(?:, [\w.:-]+)*)", re.ASCII)


class NamesInUseError(PatchRejectedError):
    """A patch adds servers or backends under names that are in use; process and files are as before the patch."""

    def __init__(self, endpoint: str, removals: Iterable[Removal]) -> None:
        backends = sorted({one.backend for one in removals})
        super().__init__(endpoint, _BEGINNING + ", ".join(backends[:_MOST_NAMED]))


def backends_in_use(error: PatchRejectedError) -> tuple[str, ...]:
    """Return the backends that a NamesInUseError names, also one of an agent, which arrives as its text; else none."""
    found = _BACKENDS.search(str(error))
    return tuple(found[1].split(", ")) if found is not None else ()
