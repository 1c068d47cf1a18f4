"""Generations on a disk that may crash at any step."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from haptic_trio.dataplane.local.files.instance_directory import GenerationFiles
from haptic_trio.dataplane.local.files.set_aside import remove
from haptic_trio.haproxy.model import FileKind, Generation, make_file
from tests.support.processes.haproxy import BASE, build_generation


class Crash(BaseException):
    """Stands for kill -9: no handler of the program may run, so it is no Exception."""


def generation(answer: str, *, certificates: int = 2) -> Generation:
    return build_generation(
        f"{BASE}\nbackend {answer}\n",
        [
            make_file(FileKind.MAP, "maps/host.map", f"example.org {answer}\n"),
            *(make_file(FileKind.CERT, f"ssl/{n}.pem", f"key {n}", secret=True) for n in range(certificates)),
        ],
    )


def opened(root: Path) -> GenerationFiles:
    stored = GenerationFiles(root)
    stored.recover()
    return stored


def deploy(stored: GenerationFiles, desired: Generation) -> None:
    name = stored.stage(desired)
    stored.begin(name)
    stored.switch(name)
    stored.commit(name, desired)
    remove(stored.set_aside())


def loadable(root: Path) -> str:
    """What HAProxy would load now, as a whole: the text and every file."""
    current = root / "current"
    text = (current / "haproxy.cfg").read_text()
    return text.rpartition("backend ")[2].strip() + "/" + (current / "maps/host.map").read_text().split()[1]


def crash_at(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Raise Crash at the *step*-th call that changes the disk."""
    remaining = step

    def counted(function: Callable[..., object]) -> Callable[..., object]:
        def wrapper(*args: object, **kwargs: object) -> object:
            nonlocal remaining
            remaining -= 1
            if remaining < 0:
                raise Crash
            return function(*args, **kwargs)

        return wrapper

    for module, name in (
        (os, "open"),
        (os, "fsync"),
        (os, "fdatasync"),
        (os, "link"),
        (Path, "replace"),
        (Path, "symlink_to"),
        (Path, "mkdir"),
        (Path, "unlink"),
        (shutil, "rmtree"),
    ):
        monkeypatch.setattr(module, name, counted(getattr(module, name)))


def make_disk_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip every wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    monkeypatch.setattr(os, "fdatasync", lambda _: None)
    monkeypatch.setattr(os, "sync", lambda: None)
