"""A lock between processes, for folders that several workers may make at once."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Have only one process at a time in the block for *folder*; its parent is made."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f".{folder.name}.lock").open("w") as file:
        # The kernel releases it when the holder dies, however it dies.
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
