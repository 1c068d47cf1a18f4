"""State directory of the controller: its parts, created at the start and again after they were removed."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import trio

from haptic_trio.errors import text_of
from haptic_trio.httpstore.content_files import ContentFiles
from haptic_trio.httpstore.entry import ContentMemory
from haptic_trio.logs import get_logger
from haptic_trio.stages.process import RetainedState
from haptic_trio.state_files.reader import make_own_directory

SCRATCH_NAME = "scratch"
"""Directory of temporary files, which may hold keys."""
CONTENTS_NAME = "contents"
"""Directory of contents that templates have fetched."""
KEEP_INTERVAL = 1.0
"""Seconds between two looks for removed directories."""


def make_scratch(state: Path) -> tuple[Path, tuple[Path, ...]]:
    """Return a private directory, and what it still holds of a killed process, which may be keys. Blocks.

    That is removed unless *state* cannot be written, which does not prevent
    the start: HAProxy is adopted, and changes wait. Raises StateFileError if
    the directory is a link: what it leads to must not be removed.
    """
    scratch = state / SCRATCH_NAME
    shutil.rmtree(scratch, ignore_errors=True)
    make_own_directory(scratch)
    return scratch, tuple(scratch.iterdir())


def retained_in(state: Path) -> RetainedState:
    """Return the state of a process before its first iteration, which keeps fetched contents below *state*."""
    return RetainedState(contents=ContentMemory(ContentFiles(state / CONTENTS_NAME)))


async def keep_directories(state: Path, remnants: Sequence[Path] = ()) -> None:
    """Create removed directories of *state* again, with a warning, until cancelled; remove *remnants* once possible.

    Their contents are lost: the provider replaces the instances, and the
    store of records and the checks write their files when they need them.
    """
    log = get_logger("serve")
    failure = ""
    while True:
        await trio.sleep(KEEP_INTERVAL)
        try:
            made = await trio.to_thread.run_sync(_make_missing, state)
        except OSError as exc:
            if str(exc) != failure:
                log.warning("cannot create the state directory", path=str(state), error=text_of(exc))
            failure = str(exc)
            continue
        failure = ""
        if remnants:
            remnants = await trio.to_thread.run_sync(_remove, remnants)
        if made:
            log.warning("the state directory was removed, and is created again", path=str(state), missing=made)


def _remove(paths: Sequence[Path]) -> list[Path]:
    """Remove *paths* and return those that stay; blocks."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)
    return [path for path in paths if path.exists()]


def _make_missing(state: Path) -> tuple[str, ...]:
    """Create the missing directories of *state* and return their names; blocks."""
    made = []
    for path in (state, state / SCRATCH_NAME):
        if not path.is_dir():
            path.mkdir(mode=0o700, parents=True)
            made.append(path.name)
    return tuple(made)
