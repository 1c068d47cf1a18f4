"""Log file for the output of HAProxy, kept short, and log lines about failed starts."""

import os
from pathlib import Path

from haptic_trio.dataplane.local.ports import read_conflicts
from haptic_trio.haproxy.config.check_output import parse_check_output
from haptic_trio.haproxy.config.quoted import describe_problems
from haptic_trio.logs import Logger
from haptic_trio.state_files.reader import open_state_file

SIZE_LIMIT = 4 << 20
"""Bytes after which the file is cut; a reload of 10,000 backends writes about one million."""
KEPT = 64 << 10
"""Bytes at the end that are kept."""
EXCERPT = 4096
"""Limit of a quotation in an error, in bytes."""


class ProcessLog:
    """The file at `path`, which HAProxy opens for appending; every method blocks."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def size(self) -> int:
        """Return its present size, for `read_since`."""
        try:
            return self.path.stat().st_size
        except FileNotFoundError:
            return 0

    def read_since(self, offset: int) -> str:
        """Return the last lines, 4 kB at most, of what was written after *offset*."""
        start = max(offset, self.size() - EXCERPT)
        try:
            with os.fdopen(open_state_file(self.path), "rb") as file:
                file.seek(start)
                text = file.read(EXCERPT).decode(errors="replace")
                # The end of a line does not say what it quotes.
                return (text if start == offset else text.partition("\n")[2]).strip()
        except FileNotFoundError:
            return ""

    def shorten(self) -> None:
        """Cut the file to its end if it has grown too large.

        HAProxy appends, so it continues at the new end; lines that it writes
        meanwhile are lost.
        """
        if self.size() <= SIZE_LIMIT:
            return
        with os.fdopen(open_state_file(self.path, os.O_RDWR), "r+b") as file:
            file.seek(-KEPT, os.SEEK_END)
            rest = file.read(KEPT)
            file.truncate(0)
            file.seek(0)
            file.write(rest)


def describe_load(output: str) -> str:
    """Return why HAProxy did not load a configuration, from its *output*: in one line, without what it quotes."""
    if unbound := read_conflicts(output):
        return "; ".join(map(str, unbound))
    return describe_problems(parse_check_output(output).errors) or "haproxy gave no reason"


class StartFailures:
    """Failed starts of one instance; the caller repeats them."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._logged = ""

    def take(self, error: str) -> None:
        """Log the *error* of a start, unless it is that of the start before."""
        log = self._log.debug if error == self._logged else self._log.error
        log("haproxy did not start", error=error, next="it is tried again")
        self._logged = error

    def end(self) -> None:
        """Forget the failures: HAProxy has started."""
        self._logged = ""
