"""Directory of one generation: its manifest, and the files that it actually contains.

Unchanged files are not read again. Changes are found by stamps (inode, size,
mtime). Of many files each reading compares only some, in turn, and always the
folders, whose mtimes show added, removed and replaced files. An in-place edit
of one file among thousands is found after some readings, at the latest by a
thorough one.
"""

import os
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from haptic_trio.dataplane.disk import Stamp, folders_of, read_stamp
from haptic_trio.haproxy.config.parser import parse_config
from haptic_trio.haproxy.model import AuxFile, Config, FileKind, Generation, digest_of, make_file, make_generation
from haptic_trio.state_files.reader import CONTENT_BYTES, decode_state_file, read_state_file

CONFIG_NAME: Final = "haproxy.cfg"
MANIFEST_NAME: Final = "generation.json"
JOURNAL_NAME: Final = "patches.journal"

CHECKED_AT_ONCE: Final = 64
"""Files whose stamps are compared by a reading that is not thorough."""


class ManifestEntry(msgspec.Struct, frozen=True):
    """A file of a generation."""

    kind: FileKind
    path: str
    digest: str
    secret: bool


class Manifest(msgspec.Struct, frozen=True):
    """Intended content of a generation's directory."""

    id: str
    files: tuple[ManifestEntry, ...]


class GenerationDirectory:
    """The directory at *path*, possibly a link; raises the errors of reading and decoding."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation: Generation | None = None
        """As of the last reading."""
        self.intended = ""
        """The id that the manifest names, as of the last reading."""
        self.stamps: dict[str, Stamp] = {}
        """Of each file, by path, and of the manifest."""
        self._folders: dict[str, tuple[int, int]] = {}
        self._turn = 0

    def forget(self) -> None:
        """Read all files again with the next reading."""
        self.generation, self.intended, self.stamps, self._folders = None, "", {}, {}

    def remember(self, generation: Generation, kept: Mapping[str, Stamp]) -> None:
        """Record that *generation* was just written here; *kept* are stamps that are still valid."""
        manifest = read_stamp(self.path / MANIFEST_NAME, "")
        config = read_stamp(self.path / CONFIG_NAME, digest_of(generation.text))
        stamps = {
            file.path: kept.get(file.path) or read_stamp(f"{self.path}/{file.path}", file.digest)
            for file in generation.files.values()
        }
        found = {MANIFEST_NAME: manifest, CONFIG_NAME: config, **stamps}
        self.generation, self.intended = generation, generation.id
        self.stamps = {path: stamp for path, stamp in found.items() if stamp is not None}
        self._folders = self._read_folders()

    def find(self, *, thorough: bool = False) -> Generation | None:
        """Return the generation if nothing changed since the last reading (fast); else None."""
        known = self.generation
        return known if known is not None and self._is_untouched(thorough=thorough) else None

    def read(self, *, thorough: bool = False) -> Generation:
        """Return the generation on disk, manual edits included; see the docstring of the module."""
        if (known := self.find(thorough=thorough)) is not None:
            return known
        manifest = self.read_manifest()
        stamps, contents = self._read_contents(manifest)
        generation = make_generation(
            self._read_config(contents),
            [file for entry in manifest.files if (file := self._file(entry, contents, stamps))],
        )
        self.generation, self.intended, self.stamps = generation, manifest.id, stamps
        self._folders = self._read_folders()
        return generation

    def read_manifest(self) -> Manifest:
        """Return the intended content."""
        return decode_state_file(self.path / MANIFEST_NAME, Manifest, CONTENT_BYTES)

    def is_untouched(self, path: str) -> bool:
        """Whether the file *path* is unchanged since the last reading."""
        known = self.stamps.get(path)
        return known is not None and read_stamp(f"{self.path}/{path}", known.digest) == known

    def is_unchanged(self, folder: str) -> bool:
        """Whether *folder* is unchanged since the last reading; not thorough."""
        inner = [one for one in self._folders if one == folder or one.startswith(f"{folder}/")]
        if not inner or any(_read_folder(f"{self.path}/{one}") != self._folders[one] for one in inner):
            return False
        paths = [path for path in self.stamps if path.startswith(f"{folder}/")]
        return len(paths) > CHECKED_AT_ONCE or all(map(self.is_untouched, paths))

    def _is_untouched(self, *, thorough: bool) -> bool:
        if any(_read_folder(f"{self.path}/{folder}") != known for folder, known in self._folders.items()):
            return False
        if not (self.is_untouched(CONFIG_NAME) and self.is_untouched(MANIFEST_NAME)):
            return False
        count = len(self.stamps)
        if thorough or count <= CHECKED_AT_ONCE:
            return all(map(self.is_untouched, self.stamps))
        start, self._turn = self._turn, (self._turn + CHECKED_AT_ONCE) % count
        paths = list(islice(self.stamps, start, start + CHECKED_AT_ONCE))
        return all(map(self.is_untouched, paths))

    def _read_folders(self) -> dict[str, tuple[int, int]]:
        paths = {folder for path in self.stamps for folder in folders_of(path)}
        found = {path: _read_folder(f"{self.path}/{path}") for path in paths}
        return {path: status for path, status in found.items() if status is not None}

    def _read_config(self, contents: Mapping[str, bytes | None]) -> Config:
        content = contents[CONFIG_NAME]
        if content is None:
            assert self.generation is not None
            return self.generation.config
        return parse_config(content.decode(errors="surrogateescape"), source=CONFIG_NAME)

    def _file(
        self, entry: ManifestEntry, contents: Mapping[str, bytes | None], stamps: Mapping[str, Stamp]
    ) -> AuxFile | None:
        if entry.path not in contents:
            return None
        content = contents[entry.path]
        if content is not None:
            return make_file(entry.kind, entry.path, content, secret=entry.secret)
        assert self.generation is not None
        known = self.generation.files[entry.path]
        if (known.kind, known.secret) == (entry.kind, entry.secret):
            return known
        return AuxFile(entry.kind, entry.path, known.content, stamps[entry.path].digest, entry.secret)

    def _read_contents(self, manifest: Manifest) -> tuple[dict[str, Stamp], dict[str, bytes | None]]:
        """Return stamps and contents of all existing files; None for a content that is known."""
        stamps: dict[str, Stamp] = {}
        contents: dict[str, bytes | None] = {}
        for path in (CONFIG_NAME, *(entry.path for entry in manifest.files)):
            if self.generation is not None and self.is_untouched(path):
                stamps[path], contents[path] = self.stamps[path], None
                continue
            try:
                content = read_state_file(f"{self.path}/{path}", CONTENT_BYTES)
                stamp = read_stamp(self.path / path, digest_of(content))
            except FileNotFoundError:
                if path == CONFIG_NAME:
                    raise
                continue
            contents[path] = content
            if stamp is not None:
                stamps[path] = stamp
        own = read_stamp(self.path / MANIFEST_NAME, "")
        return (stamps if own is None else {MANIFEST_NAME: own, **stamps}), contents


def _read_folder(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)  # noqa: PTH116 - called for each folder at each deployment
    except (FileNotFoundError, NotADirectoryError):
        return None
    return status.st_ino, status.st_mtime_ns
