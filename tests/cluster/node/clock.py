"""The clock of single processes, set by a test while they run; needs a C compiler.

A machine has one time of day, and a time namespace does not change that: so
a library comes between the process and the kernel.
"""

import shutil
import struct
import subprocess
from pathlib import Path
from typing import Final

SOURCE: Final = Path(__file__).with_name("clock.c")
_LIBRARY: Final = "clock.so"
_OFFSET: Final = "offset"
_WIDTH: Final = 8


class NoCompilerError(Exception):
    """There is no C compiler here."""


def build_library(directory: Path) -> Path:
    """Return the library, built in *directory*; raises NoCompilerError."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompilerError("there is no `cc` here to build the clock of a process with")
    library = directory / _LIBRARY
    command = [compiler, "-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-o", str(library), str(SOURCE)]
    subprocess.run(command, check=True)
    return library


class Clock:
    """The clock of the processes that get `environment` of it."""

    def __init__(self, library: Path, directory: Path) -> None:
        self._library = library
        self._file = directory / _OFFSET
        self._file.write_bytes(bytes(_WIDTH))

    @property
    def environment(self) -> dict[str, str]:
        """The variables that make a process read this clock; the paths must be its as well."""
        return {"LD_PRELOAD": str(self._library), "CLOCK_FILE": str(self._file)}

    def jump(self, seconds: int) -> None:
        """Set the clock to real time and *seconds*, from this moment on."""
        with self._file.open("r+b") as file:
            # In place: the processes have the file mapped.
            file.write(struct.pack("=q", seconds))
