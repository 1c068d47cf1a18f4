"""Numbered instance names, such as `local-1`; none is used twice."""

import re
from collections.abc import Iterable
from pathlib import Path

from haptic_trio.errors import text_of
from haptic_trio.fleet.model import GroupKey
from haptic_trio.logs import get_logger
from haptic_trio.state_files.reader import read_state_file
from haptic_trio.state_files.writer import replace_file

_NUMBERED = re.compile(r".*-([0-9]{1,15})")


class NumberedNames:
    """Numbers that only count up; the last used number is kept in the file at *path*."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last = 0

    def load(self, taken: Iterable[str]) -> None:
        """Continue after the number in the file, and after all names in *taken*; blocks."""
        try:
            self._last = int(read_state_file(self._path))
        except FileNotFoundError:
            self._last = 0
        except (OSError, ValueError) as exc:
            # The numbers of existing instances are in `taken`.
            get_logger("fleet").warning(
                "ignored the last number of an instance", path=str(self._path), error=text_of(exc)
            )
            self._last = 0
        for name in taken:
            self.note_used(name)

    def note_used(self, name: str) -> None:
        """Note that *name* is in use."""
        match = _NUMBERED.fullmatch(name)
        if match is not None:
            self._last = max(self._last, int(match[1]))

    def make(self, key: GroupKey) -> str:
        """Return a name for an instance of *key* that was never used before."""
        self._last += 1
        return f"{key.group}-{self._last}"

    def save(self) -> None:
        """Write the last used number durably; blocks."""
        replace_file(self._path, str(self._last).encode())
