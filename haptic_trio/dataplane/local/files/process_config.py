"""Settings of an instance, which HAProxy reads before its configuration: sockets, and the base of relative paths.

HAProxy hands its sockets over from worker to worker, and for a moment two
workers accept connections on the same one. So each load names one more socket,
under another name than the loads before it: the new worker alone has it, and
creates it some milliseconds before it serves.
"""

import re
from pathlib import Path
from string import ascii_lowercase
from typing import Final

from haptic_trio.state_files.reader import StateFileError, read_state_file
from haptic_trio.state_files.writer import replace_file

_NAME: Final = re.compile(rb"/new-([a-z])\.sock")


class ProcessConfig:
    """The file at *path*, which begins with the lines *prelude*; every method blocks, and raises OSError."""

    def __init__(self, path: Path, prelude: str) -> None:
        self.path = path
        self._prelude = prelude

    def keep(self, sockets: Path) -> None:
        """Write the settings, with sockets in the directory *sockets*, unless they are on disk."""
        present = self._read()
        letter = _letter_in(present) or ascii_lowercase[0]
        # Nothing is written for a restart of the controller, so that a full disk does not prevent it.
        if present != (content := self._content(sockets, letter)):
            replace_file(self.path, content)

    def renew(self, sockets: Path) -> Path:
        """Write the settings for a load, and return the socket in *sockets* that the new worker alone will have."""
        letter = _letter_in(self._read())
        after = (ascii_lowercase.index(letter) + 1) % len(ascii_lowercase) if letter else 0
        path = _socket(sockets, ascii_lowercase[after])
        # Of earlier loads: each was needed for a moment only.
        for former in sockets.glob("new-?.sock"):
            former.unlink(missing_ok=True)
        replace_file(self.path, self._content(sockets, ascii_lowercase[after]))
        return path

    def _content(self, sockets: Path, letter: str) -> bytes:
        shared = f'    stats socket "{sockets}/admin.sock" mode 600 level admin expose-fd listeners\n'
        own = f'    stats socket "{_socket(sockets, letter)}" mode 600 level admin\n'
        return (self._prelude + shared + own).encode()

    def _read(self) -> bytes:
        try:
            return read_state_file(self.path)
        except (FileNotFoundError, StateFileError):
            # It is replaced.
            return b""


def _letter_in(content: bytes) -> str:
    found = _NAME.search(content)
    return found[1].decode() if found is not None else ""


def _socket(sockets: Path, letter: str) -> Path:
    return sockets / f"new-{letter}.sock"
