"""Directories that no process can write to, not even one of root."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest


@contextmanager
def made_read_only(directory: Path) -> Iterator[None]:
    """Have *directory* and all below it be read-only meanwhile; raises PermissionError where root cannot mount.

    For root it is a read-only file system, as permissions do not apply to it.
    """
    if os.geteuid() != 0:
        folders = [directory, *(path for path in directory.rglob("*") if path.is_dir() and not path.is_symlink())]
        modes = [path.stat().st_mode & 0o7777 for path in folders]
        for path in folders:
            path.chmod(0o500)
        try:
            yield
        finally:
            for path, mode in zip(folders, modes, strict=True):
                path.chmod(mode)
        return
    mounted = subprocess.run(["mount", "--bind", directory, directory], capture_output=True, check=False)
    if mounted.returncode:
        raise PermissionError(mounted.stderr.decode().strip())
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", directory], capture_output=True, check=True)
        yield
    finally:
        subprocess.run(["umount", "-l", directory], capture_output=True, check=True)


@pytest.fixture
def read_only(tmp_path: Path) -> Callable[[Path], AbstractContextManager[None]]:
    """Return `made_read_only`; skips the test where it is impossible."""
    try:
        with made_read_only(tmp_path):
            pass
    except PermissionError as exc:
        pytest.skip(f"no file system can be mounted here: {exc}")
    return made_read_only
