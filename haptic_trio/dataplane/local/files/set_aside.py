"""Files of former generations: set aside in one quick step, and removed at any time after it."""

import shutil
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Final

_PREFIX: Final = ".removed-"


def set_aside(generations: Path, folders: Path, kept: Collection[str]) -> tuple[Path, ...]:
    """Rename everything but the generations *kept* and the folders that they use; return the directories to remove.

    Their names are free again. What an earlier call has set aside is among them.
    """
    gone, used = [], set()
    for entry in generations.iterdir():
        if entry.name in kept:
            used |= {one.readlink().name for one in entry.iterdir() if one.is_symlink()}
        else:
            gone.append(entry)
    gone += [entry for entry in folders.iterdir() if entry.name not in used]
    return tuple(_renamed(entry) for entry in gone)


def remove(paths: Iterable[Path]) -> None:
    """Remove the directories *paths* as far as possible."""
    for path in paths:
        shutil.rmtree(path, ignore_errors=True)


def _renamed(entry: Path) -> Path:
    if entry.name.startswith(_PREFIX):
        return entry
    target = entry.with_name(_PREFIX + entry.name)
    # Left by a crash.
    shutil.rmtree(target, ignore_errors=True)
    return entry.rename(target)
