"""A terminal for the tests: tmux of the system, or one that is fetched into a private folder.

    python -m tests.support.processes.tmux     fetches it unless there is one, and prints its path

It is Debian's package, unpacked with the libraries it needs; nothing is
installed. Exits with 3 and the reason where it cannot be had.
"""

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from signal import SIGTERM
from subprocess import DEVNULL
from types import MappingProxyType

import trio

from tests.support.processes.debian_packages import PackageUnavailableError, find_or_fetch

PACKAGE = "tmux"
SHOWN_LIMIT = 60.0
UNAVAILABLE = 3


def find_tmux() -> Path | None:
    """Return the tmux of PATH, or the one that was fetched before; None without either."""
    if found := shutil.which(PACKAGE):
        return Path(found)
    fetched = _cache() / "usr/bin" / PACKAGE
    return fetched if fetched.exists() else None


def fetch_tmux() -> Path:
    """Return a tmux, fetched if there is none; raises PackageUnavailableError."""
    return find_or_fetch(find_tmux, [PACKAGE], _cache())


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "haptic-trio" / "tmux"


class Terminal:
    """A terminal in which one command runs."""

    def __init__(self, binary: Path, socket: Path) -> None:
        self._command = [str(binary), "-u", "-S", str(socket), "-f", "/dev/null"]
        libraries = {path.parent for path in _cache().rglob("*.so*")} if binary.is_relative_to(_cache()) else set()
        self._environment = {name: value for name, value in os.environ.items() if name not in {"TMUX", "NO_COLOR"}}
        self._environment["LC_ALL"] = "C.UTF-8"
        if libraries:
            self._environment["LD_LIBRARY_PATH"] = ":".join(sorted(map(str, libraries)))

    async def run(self, *arguments: str) -> str:
        """Return what tmux prints for a command of its own."""
        result = await trio.run_process(
            [*self._command, *arguments], capture_stdout=True, stdin=DEVNULL, env=self._environment
        )
        return result.stdout.decode()

    async def press(self, *keys: str) -> None:
        """Press *keys*, by their names in tmux, such as `Enter` or `C-c`."""
        await self.run("send-keys", *keys)

    async def type(self, text: str) -> None:
        """Type *text*."""
        await self.run("send-keys", "-l", text)

    async def resize(self, width: int, height: int) -> None:
        """Change the size."""
        await self.run("resize-window", "-x", str(width), "-y", str(height))

    async def terminate(self) -> None:
        """Send SIGTERM to the command."""
        shell = (await self.run("display-message", "-p", "#{pane_pid}")).strip()
        children = await trio.Path(f"/proc/{shell}/task/{shell}/children").read_text()
        (child,) = children.split()
        os.kill(int(child), SIGTERM)

    async def lines(self, *, colours: bool = False) -> list[str]:
        """Return the lines that are visible, with *colours* as escape sequences."""
        text = await self.run("capture-pane", "-p", *(["-e"] if colours else []))
        return [line.rstrip() for line in text.splitlines()]

    async def shows(self, expected: str | Callable[[str], bool]) -> list[str]:
        """Return the visible lines once they hold what is *expected*."""
        lines: list[str] = []
        with trio.move_on_after(SHOWN_LIMIT):
            while True:
                lines = await self.lines()
                text = "\n".join(lines)
                if expected(text) if callable(expected) else expected in text:
                    return lines
                await trio.sleep(0.05)
        raise AssertionError(f"{expected!r} is not in\n" + "\n".join(lines))


@asynccontextmanager
async def open_terminal(
    binary: Path, command: Sequence[str], *, variables: Mapping[str, str] = MappingProxyType({}), height: int = 24
) -> AsyncIterator[Terminal]:
    """Run *command*, with more environment *variables*, in a terminal of 80 columns for the duration of the block.

    After the command, the terminal shows its exit code, and whether the
    settings of the terminal are those of before.
    """
    with tempfile.TemporaryDirectory(prefix="tmux-") as folder:
        terminal = Terminal(binary, Path(folder) / "socket")
        words = ["env", "-u", "LD_LIBRARY_PATH", *(f"{name}={value}" for name, value in variables.items()), *command]
        script = (
            # Ctrl-C is for the command alone.
            f"trap : INT; before=$(stty -g); {shlex.join(words)}; echo exit code $?;"
            ' [ "$(stty -g)" = "$before" ] && echo terminal restored; exec sleep 1000'
        )
        await terminal.run("new-session", "-d", "-x", "80", "-y", str(height), f"sh -c {shlex.quote(script)}")
        try:
            yield terminal
        finally:
            with trio.CancelScope(shield=True):
                await terminal.run("kill-server")


def main() -> int:
    """Fetch it and print its path."""
    try:
        sys.stdout.write(f"{fetch_tmux()}\n")
    except PackageUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return UNAVAILABLE
    return 0


if __name__ == "__main__":
    sys.exit(main())
