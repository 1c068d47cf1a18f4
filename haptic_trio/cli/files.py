"""Files that commands write for people."""

import os
from pathlib import Path

from haptic_trio.dataplane.disk import check_paths
from haptic_trio.haproxy.model import Generation

PUBLIC = 0o644
PRIVATE = 0o600


def replace_file(path: Path, content: str | bytes, *, mode: int = PUBLIC) -> None:
    """Make *content* what *path* holds, at one stroke, as careful editors do: nobody sees half of it."""
    draft = path.with_name(f".{path.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content.encode() if isinstance(content, str) else content)
    draft.replace(path)


def write_generation(directory: Path, generation: Generation, *, config_file: str) -> None:
    """Write *generation* below *directory*, secret files for our eyes only.

    Absolute paths are taken as if *directory* was the root. Raises
    `UnsafePathError` for paths that lead elsewhere. Other files stay.
    """
    config_path = config_file.lstrip("/")
    paths = {file.path: file.path.lstrip("/") for file in generation.files.values()}
    check_paths([config_path, *paths.values()], frozenset())
    for file in generation.files.values():
        _write(directory / paths[file.path], file.content, PRIVATE if file.secret else PUBLIC)
    _write(directory / config_path, generation.text, PUBLIC)


def _write(path: Path, content: str | bytes, mode: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, content, mode=mode)
