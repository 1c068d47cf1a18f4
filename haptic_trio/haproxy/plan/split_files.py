"""Selection of changed files that can be applied before a reload brings the rest.

An entry of a map waits for the reload if it names a backend that only the
reload adds. All entries of a map or list wait if the reload changes the use
of the file. Certificates, crt-lists and authorities wait if they depend on a
file that waits.
"""

import re
from collections.abc import Sequence
from typing import Final

import msgspec

from haptic_trio.haproxy.config.maps import MapUse, find_map_use, has_entries, parse_map_file
from haptic_trio.haproxy.model import AuxFile, Config, FileChange, FileKind, Files, Generation, make_file
from haptic_trio.haproxy.plan.capabilities import Capabilities
from haptic_trio.haproxy.plan.certificates import CertificatePlanner
from haptic_trio.haproxy.plan.diff import diff_files

SERVING_KINDS: Final = ("backend", "listen")

_WORD: Final = re.compile(r"[A-Za-z0-9_:.-]+")


def choose_files(
    running: Generation, desired: Generation, effective: Config, *, missing: set[str], capabilities: Capabilities
) -> Files:
    """Return the files of *desired* that a process with *running* can use together with *effective*.

    *missing* are the names of backends that only the reload adds.
    """
    maps: list[FileChange] = []
    others: list[FileChange] = []
    for change in diff_files(running.files, desired.files):
        if not has_entries(running, change):
            others.append(change)
        elif (taken := _take_map(running, desired, change, missing)) is not None:
            maps.append(taken)
    count = -1
    # A file that depends on a removed one is found in the next round.
    while count != len(others):
        count = len(others)
        candidate = msgspec.structs.replace(desired, config=effective, files=_with(running.files, others))
        planner = CertificatePlanner(running, candidate, capabilities)
        others = [change for change in others if planner.plan(change) is not None]
    return _with(running.files, [*maps, *others])


def _with(files: Files, changes: Sequence[FileChange]) -> Files:
    return files.changed(
        [change.desired for change in changes if change.desired is not None],
        [change.path for change in changes if change.desired is None],
    )


def _take_map(running: Generation, desired: Generation, change: FileChange, missing: set[str]) -> FileChange | None:
    """Return *change* of a map or list without entries for *missing* backends; None if the whole file has to wait."""
    before, after, path = change.running, change.desired, change.path
    if before is None or after is None or _uses(running.config, path) != _uses(desired.config, path):
        return None
    use = find_map_use(running, path)
    if use in {MapUse.NONE, MapUse.OTHER}:
        return None
    if use is MapUse.LIST:
        return change
    new = parse_map_file(after.content)
    held = {key for key, value in new if not missing.isdisjoint(_WORD.findall(value))} if missing else set()
    if not held:
        return change
    former = parse_map_file(before.content)
    if use is MapUse.ORDERED or not (_is_unique(former) and _is_unique(new)):
        return None
    return FileChange(path, before, _without(after, new, dict(former), held, secret=before.secret))


def _without(
    file: AuxFile, entries: Sequence[tuple[str, str]], former: dict[str, str], held: set[str], *, secret: bool
) -> AuxFile:
    """Return a map with *entries*, in which the keys *held* have their former values or are missing."""
    kept = [(key, former[key] if key in held else value) for key, value in entries if key not in held or key in former]
    # The leading blank keeps a key that begins with `#` from being a comment.
    content = "".join(f" {key} {value}\n" for key, value in kept)
    return make_file(FileKind.MAP, file.path, content, secret=secret or file.secret)


def _is_unique(entries: Sequence[tuple[str, str]]) -> bool:
    return len({key for key, _ in entries}) == len(entries)


def _uses(config: Config, path: str) -> set[tuple[object, ...]]:
    return {(line.words, line.raw) for line in config.naming(path)}
