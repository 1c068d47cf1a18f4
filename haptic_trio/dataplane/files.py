"""An instance's directory: the generations on disk, and which of them HAProxy loads.

    generations/00000007-3f2a…/generation.json    manifest: paths, kinds, digests
                               haproxy.cfg
                               maps/ ssl/ general/
    current -> generations/00000007-3f2a…         what HAProxy loads at its next start or reload
    journal.json                                  committed, previous and pending generation

A generation's directory is written once, completely and fsynced, before
anything names it, and never changed afterwards; files that are the same as in
the current one are hard links to them. The only switch is the rename of the
`current` link, so whatever HAProxy loads is one whole generation, at whichever
step a crash came.

The journal makes the step around that switch recoverable. Its rules:

- `pending` is written before anything is done to the process (a reload or a
  runtime operation) and removed after the process and `current` agree.
- While it is there, nobody knows what the process runs: `clear` is False,
  and only a load of a known generation ends that.
- After a crash `recover` turns `current` back to the committed generation, so
  a process that died is restarted from what has worked before.
"""

import contextlib
import os
import re
import shutil
from pathlib import Path

import msgspec

from haptic_trio.dataplane.disk import (
    Stamp,
    check_paths,
    fsync_directory,
    read_stamp,
    replace_file,
    replace_link,
    write_file,
)
from haptic_trio.errors import ProblemsError
from haptic_trio.haproxy.model import AuxFile, FileKind, Generation, digest_of, make_generation
from haptic_trio.haproxy.parser import parse_config

CONFIG_NAME = "haproxy.cfg"
MANIFEST_NAME = "generation.json"
RESERVED = frozenset({CONFIG_NAME, MANIFEST_NAME, "process.cfg"})


class Journal(msgspec.Struct, frozen=True):
    """Directory names of generations; empty where there is none."""

    committed: str = ""
    previous: str = ""
    pending: str = ""


class ManifestEntry(msgspec.Struct, frozen=True):
    """A file of a generation."""

    kind: FileKind
    path: str
    digest: str
    secret: bool


class Manifest(msgspec.Struct, frozen=True):
    """What a generation's directory is meant to hold."""

    id: str
    files: tuple[ManifestEntry, ...]


class GenerationFiles:
    """The generations below *root*; every method blocks on the disk, and one caller at a time is assumed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.current = root / "current"
        self._generations = root / "generations"
        self._journal_path = root / "journal.json"
        self._journal = Journal()
        self._seen: Generation | None = None
        self._stamps: dict[str, Stamp] = {}

    @property
    def committed(self) -> str:
        """Directory name of the newest generation that HAProxy has accepted; empty before the first."""
        return self._journal.committed

    @property
    def clear(self) -> bool:
        """Whether the process, if it runs, runs the committed generation."""
        return not self._journal.pending

    def recover(self) -> None:
        """Read what is there, end what a crash has interrupted, and remove what it has left."""
        self._generations.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal = self._read_journal()
        if self._journal.committed:
            self._point_current(self._journal.committed)
        else:
            self.current.unlink(missing_ok=True)
        self._prune()

    def _read_journal(self) -> Journal:
        try:
            journal = msgspec.json.decode(self._journal_path.read_bytes(), type=Journal)
        except (FileNotFoundError, msgspec.MsgspecError):
            # Never half written by us: without it, a current generation is the best guess, and no more than that.
            name = self.current.readlink().name if self.current.is_symlink() else ""
            journal = Journal(committed=name, pending=name)
        if not self.path_of(journal.committed).is_file():
            return Journal(pending=journal.committed or journal.pending)
        return journal

    def stage(self, generation: Generation) -> str:
        """Write *generation* beside the others and return its directory's name; nothing uses it yet."""
        check_paths((file.path for file in generation.files.values()), RESERVED)
        name = self._next_name(generation.id)
        directory = self._generations / name
        directory.mkdir(mode=0o700)
        folders = {directory}
        self._place(directory / CONFIG_NAME, CONFIG_NAME, digest_of(generation.text), generation.text.encode())
        for file in generation.files.values():
            target = directory / file.path
            for folder in reversed(target.relative_to(directory).parents):
                if directory / folder not in folders:
                    (directory / folder).mkdir(mode=0o700)
                    folders.add(directory / folder)
            self._place(target, file.path, file.digest, file.content)
        manifest = Manifest(
            generation.id,
            tuple(ManifestEntry(file.kind, file.path, file.digest, file.secret) for file in generation.files.values()),
        )
        write_file(directory / MANIFEST_NAME, msgspec.json.encode(manifest))
        for folder in folders:
            fsync_directory(folder)
        fsync_directory(self._generations)
        return name

    def _next_name(self, generation_id: str) -> str:
        newest = max((int(entry.name.partition("-")[0]) for entry in self._entries()), default=0)
        return f"{newest + 1:08d}-{re.sub('[^0-9A-Za-z]', '', generation_id)[:16]}"

    def _place(self, target: Path, path: str, digest: str, content: bytes) -> None:
        stamp = self._stamps.get(path)
        source = self.current / path
        # A file that someone has edited in place would spoil every generation that is linked to it.
        if stamp is not None and stamp.digest == digest and read_stamp(source, digest) == stamp:
            with contextlib.suppress(OSError):
                os.link(source, target)
                return
        write_file(target, content)

    def path_of(self, name: str) -> Path:
        """Return the configuration file of the generation in directory *name*."""
        return self._generations / name / CONFIG_NAME

    def begin(self, name: str) -> None:
        """Note that *name* is about to become what the process runs."""
        self._write_journal(msgspec.structs.replace(self._journal, pending=name))

    def switch(self, name: str) -> None:
        """Make *name* what HAProxy loads next."""
        self._point_current(name)

    def commit(self, name: str, generation: Generation) -> None:
        """Note that the process runs *name*, and remove generations that are no longer needed."""
        journal = self._journal
        previous = journal.committed if journal.committed != name else journal.previous
        self._write_journal(Journal(committed=name, previous=previous))
        self._remember(generation)
        self._prune()

    def abandon(self, *, clear: bool) -> None:
        """Go back to the committed generation; *clear* says that the process has never left it."""
        if self._journal.committed:
            self._point_current(self._journal.committed)
        else:
            self.current.unlink(missing_ok=True)
        if clear:
            self._write_journal(msgspec.structs.replace(self._journal, pending=""))
            self._prune()

    def mark_loaded(self) -> None:
        """Note that a process has been started from `current`, whatever ran before it."""
        if self._journal.pending:
            self._write_journal(msgspec.structs.replace(self._journal, pending=""))

    def read_running(self) -> Generation | None:
        """Return the generation that is really on disk, which hands may have changed; None when it is unusable.

        Files whose inode, size and time are those of the last reading are
        not read again.
        """
        try:
            manifest = self._read_manifest()
            stamps, contents = self._read_contents(manifest)
            if self._seen is not None and stamps == self._stamps:
                return self._seen
            text = contents[CONFIG_NAME].decode()
            config = self._seen.config if self._seen is not None and self._seen.text == text else None
            files = (
                AuxFile(entry.kind, entry.path, contents[entry.path], stamps[entry.path].digest, entry.secret)
                for entry in manifest.files
                if entry.path in contents
            )
            generation = make_generation(text, config or parse_config(text, source=CONFIG_NAME), files)
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, msgspec.MsgspecError, ProblemsError):
            return None
        self._seen, self._stamps = generation, stamps
        return generation

    def is_intact(self) -> bool:
        """Whether the current generation's files are as they were written."""
        generation = self.read_running()
        return generation is not None and generation.id == self._read_manifest().id

    def _read_manifest(self) -> Manifest:
        return msgspec.json.decode((self.current / MANIFEST_NAME).read_bytes(), type=Manifest)

    def _read_contents(self, manifest: Manifest) -> tuple[dict[str, Stamp], dict[str, bytes]]:
        stamps: dict[str, Stamp] = {}
        contents: dict[str, bytes] = {}
        for path in (CONFIG_NAME, *(entry.path for entry in manifest.files)):
            known = self._stamps.get(path)
            try:
                if known is not None and read_stamp(self.current / path, known.digest) == known:
                    stamps[path], contents[path] = known, self._seen_content(path)
                    continue
                content = (self.current / path).read_bytes()
                contents[path] = content
                stamp = read_stamp(self.current / path, digest_of(content))
            except FileNotFoundError:
                if path == CONFIG_NAME:
                    raise
                continue
            if stamp is not None:
                stamps[path] = stamp
        return stamps, contents

    def _seen_content(self, path: str) -> bytes:
        assert self._seen is not None
        return self._seen.text.encode() if path == CONFIG_NAME else self._seen.files[path].content

    def _remember(self, generation: Generation) -> None:
        stamps = {CONFIG_NAME: read_stamp(self.current / CONFIG_NAME, digest_of(generation.text))}
        for file in generation.files.values():
            stamps[file.path] = read_stamp(self.current / file.path, file.digest)
        self._seen = generation
        self._stamps = {path: stamp for path, stamp in stamps.items() if stamp is not None}

    def _point_current(self, name: str) -> None:
        target = f"generations/{name}"
        if not self.current.is_symlink() or os.readlink(self.current) != target:  # noqa: PTH115 - compared as text
            replace_link(self.current, target)

    def _write_journal(self, journal: Journal) -> None:
        replace_file(self._journal_path, msgspec.json.encode(journal))
        self._journal = journal

    def _entries(self) -> list[Path]:
        return [entry for entry in self._generations.iterdir() if re.match(r"\d+-", entry.name)]

    def _prune(self) -> None:
        kept = {self._journal.committed, self._journal.previous}
        for entry in self._generations.iterdir():
            if entry.name not in kept:
                shutil.rmtree(entry, ignore_errors=True)
