"""Numbered instance names, such as `local-1`; none is used twice."""

import re
from collections.abc import Iterable
from pathlib import Path

from haptic_trio.dataplane.disk import replace_file
from haptic_trio.fleet.model import GroupKey

_NUMBERED = re.compile(r".*-([0-9]{1,15})")


class NumberedNames:
    """Counts upwards; the number that was used last is in the file at *path*, and survives its instance."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = 0

    def load(self, taken: Iterable[str]) -> None:
        """Begin after what the file says, and after all names that are *taken*; blocks."""
        try:
            self._last = int(self._path.read_text())
        except (OSError, ValueError):
            # Whatever is still there is among the taken ones.
            self._last = 0
        for name in taken:
            self.see(name)

    def see(self, name: str) -> None:
        """Note that *name* is in use."""
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            self._last = max(self._last, int(match[1]))

    def make(self, key: GroupKey) -> str:
        """Return a name for an instance of *key* that none has had."""
        self._last += 1
        return f"{key.group}-{self._last}"

    def keep(self) -> None:
        """Have the names made so far on the disk; blocks."""
        replace_file(self._path, str(self._last).encode())
