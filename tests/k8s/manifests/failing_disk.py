"""File system that fails below a directory, as a network file system or missing permissions do."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def fail_below(directory: Path, code: int, patch: pytest.MonkeyPatch) -> None:
    """Let each access below *directory*, and its listing, fail with the error *code*."""

    def failing(function: Callable[..., Any], *, itself: bool) -> Callable[..., Any]:
        def call(path: Any = ".", *args: Any, **options: Any) -> Any:
            name = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
            if name.startswith(f"{directory}/") or (itself and name == str(directory)):
                raise OSError(code, os.strerror(code), name)
            return function(path, *args, **options)

        return call

    for name, itself in (("stat", False), ("lstat", False), ("open", False), ("scandir", True)):
        patch.setattr(os, name, failing(getattr(os, name), itself=itself))
