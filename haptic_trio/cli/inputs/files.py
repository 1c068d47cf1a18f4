"""Files that commands write or read."""

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
    """Make *content* what *path* holds, at one stroke, as careful editors do: nobody sees half of it.

    Where it cannot, nothing is left behind; raises an OSError that names *path*.
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
    """Yield the text of each file of manifests below *directory*, in order of their names.

    What is no file (nobody may ever write to a named pipe), or no text, is
    left out: who reads the cluster has reported it.
    """
    for path in sorted(one for one in directory.rglob("*") if is_manifest(one.name)):
        try:
            if path.is_file():
                yield path, path.read_text("utf-8")
        except (OSError, UnicodeDecodeError):
            continue


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
