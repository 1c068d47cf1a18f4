"""The volumes of a Pod as directories, whose content is replaced at once, the way a kubelet does it."""

import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from haptic_trio.k8s.resource import Resource
from tests.cluster.node.environment import SourceMissingError, Sources, find_source, read_field

Files = dict[str, tuple[bytes, int]]
"""Content and mode by path below the volume's directory."""
_FILE_MODE: Final = 0o644
_KINDS: Final = ("secret", "configMap", "projected", "downwardAPI")


def needed_tokens(volume: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the service account tokens that *volume* projects."""
    sources = (volume.get("projected") or {}).get("sources") or ()
    return [source["serviceAccountToken"] for source in sources if "serviceAccountToken" in source]


def files_of_volume(
    volume: Mapping[str, Any], pod: Resource, sources: Sources, tokens: Mapping[str, str]
) -> Files | None:
    """Return what *volume* holds; None for one that begins empty and belongs to the Pod.

    *tokens* are by path. Raises SourceMissingError for what is absent, and for a kind of volume that this cluster
    does not have.
    """
    if "emptyDir" in volume:
        return None
    kind = next((one for one in _KINDS if one in volume), None)
    if kind is None:
        raise SourceMissingError(f"volume {volume['name']} is of a kind that this cluster does not have")
    body = volume[kind]
    mode = body.get("defaultMode", _FILE_MODE)
    parts = body.get("sources") or () if kind == "projected" else [{kind: body}]
    result: Files = {}
    for part in parts:
        ((name, source),) = part.items()
        if name == "serviceAccountToken":
            result[source["path"]] = (tokens[source["path"]].encode(), 0o600)
        elif name == "downwardAPI":
            for item in source.get("items") or ():
                text = read_field(pod, item["fieldRef"]["fieldPath"])
                result[item["path"]] = (text.encode(), item.get("mode", mode))
        else:
            result |= _keyed_files(name, source, pod, sources, mode)
    return result


def _keyed_files(kind: str, source: Mapping[str, Any], pod: Resource, sources: Sources, mode: int) -> Files:
    name, optional = source.get("secretName") or source.get("name"), source.get("optional", False)
    found = find_source(sources, pod["metadata"]["namespace"], kind, str(name), optional=optional) or {}
    items = source.get("items")
    if not items:
        return {key: (content, mode) for key, content in found.items()}
    missing = [item["key"] for item in items if item["key"] not in found]
    if missing and not optional:
        raise SourceMissingError(f"{kind} {name} has no key {missing[0]}")
    return {item["path"]: (found[item["key"]], item.get("mode", mode)) for item in items if item["key"] in found}


def write_files(directory: Path, files: Files) -> bool:
    """Make *directory* hold *files*, all replaced in one step; return whether anything changed.

    Every file is a link through `..data`, which is moved: a reader never sees old and new together.
    """
    current = directory / "..data"
    if current.is_symlink() and _read_files(current) == files:
        return False
    old = current.readlink() if current.is_symlink() else None
    fresh = Path(tempfile.mkdtemp(prefix="..version-", dir=directory))
    fresh.chmod(0o755)
    for path, (content, mode) in files.items():
        target = fresh / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        target.chmod(mode)
    staged = directory / "..data_tmp"
    staged.symlink_to(fresh.name)
    staged.replace(current)
    names = {path.partition("/")[0] for path in files}
    for entry in [one for one in directory.iterdir() if not one.name.startswith("..") and one.name not in names]:
        entry.unlink()
    for name in names:
        if not (directory / name).is_symlink():
            (directory / name).symlink_to(f"..data/{name}")
    if old is not None:
        shutil.rmtree(directory / old)
    return True


def _read_files(current: Path) -> Files:
    root = current.resolve()
    found = [path for path in root.rglob("*") if path.is_file()]
    return {os.fspath(path.relative_to(root)): (path.read_bytes(), path.stat().st_mode & 0o7777) for path in found}
