"""Files that subcommands read and write."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from haptic_trio.dataplane.disk import check_paths
from haptic_trio.haproxy.model import Generation
from haptic_trio.k8s.manifests.files import is_manifest

PUBLIC = 0o644
PRIVATE = 0o600


def replace_file(path: Path, content: str | bytes, *, mode: int = PUBLIC) -> None:
    """Replace *path* by a file with *content*, atomically.

    Raises an OSError that names *path*; no temporary file is left behind.
    """
    draft = path.with_name(f".{path.name}.new")
    try:
        draft.unlink(missing_ok=True)
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
        draft.replace(path)
    except OSError as exc:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise OSError(exc.errno, exc.strerror, str(path)) from exc


def manifest_texts(directory: Path) -> Iterator[tuple[Path, str]]:
    """Yield path and text of each manifest file below *directory*, sorted by path.

    Skips pipes and files that are not UTF-8: the directory's client reports them.
    """
    for path in sorted(one for one in directory.rglob("*") if is_manifest(one.name)):
        try:
            if path.is_file():
                yield path, path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue


def write_generation(directory: Path, generation: Generation, *, config_file: str) -> None:
    """Write *generation* below *directory*; secret files get mode 0600. Other files stay.

    Absolute paths are relative to *directory*. Raises `UnsafePathError` for
    paths that leave it.
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
