"""Directory of an instance: the generations on disk, and the one that HAProxy loads.

    generations/00000007-3f2a…/generation.json    manifest: paths, kinds, digests
                               haproxy.cfg
                               maps -> ../../folders/00000007-3f2a….maps
                               ssl -> ../../folders/00000003-91c0….ssl
                               patches.journal    runtime changes since then
    folders/00000003-91c0….ssl/                   files that generations may share
    current -> generations/00000007-3f2a…         the generation of the next start or reload
    journal.json                                  committed, previous and pending generation

A generation's directory is written once, completely and fsynced, before
anything refers to it, and except for its journal it never changes. A folder
without changes is shared with the previous generation; in a changed folder,
unchanged files are hard links. The only switch is the rename of the `current`
link, so HAProxy always loads one complete generation, whenever a crash occurs.

Runtime changes may be *recorded* instead of written out, as deltas in the
journal of patches. The running generation is then the committed files with
these deltas; `join` writes the result to files.

`journal.json` makes the step around the switch recoverable. Its rules:

- `pending` is written before a change of the process (a reload or a runtime
  operation) and removed once the process and `current` agree. A patch that is
  not settled counts as pending, too.
- While `pending` is set, the running generation is unknown: `clear` is False,
  and only a load of a known generation ends that.
- After a crash `recover` points `current` back to the committed generation, so
  a restarted process loads a generation that has worked.
"""

import contextlib
import os
import re
import shutil
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path

import msgspec

from haptic_trio.dataplane.disk import Stamp, by_folder, check_files, folders_of
from haptic_trio.dataplane.local.files.generation_directory import (
    CONFIG_NAME,
    JOURNAL_NAME,
    MANIFEST_NAME,
    GenerationDirectory,
    Manifest,
    ManifestEntry,
)
from haptic_trio.dataplane.local.files.journal import PatchJournal, write_kept
from haptic_trio.dataplane.local.files.set_aside import remove, set_aside
from haptic_trio.errors import ProblemsError
from haptic_trio.haproxy.model import AuxFile, Generation
from haptic_trio.haproxy.plan.delta import Delta, DeltaError, apply_delta, decode_delta, encode_delta, make_delta
from haptic_trio.state_files.reader import StateFileError, decode_state_file
from haptic_trio.state_files.writer import fsync_directory, replace_file, replace_link, wait_written, write_file

__all__ = ["CONFIG_NAME", "MANIFEST_NAME", "RESERVED", "GenerationFiles"]

RESERVED = frozenset({CONFIG_NAME, MANIFEST_NAME, JOURNAL_NAME, "process.cfg"})


class Journal(msgspec.Struct, frozen=True):
    """Directory names of generations; empty if there is none."""

    committed: str = ""
    previous: str = ""
    pending: str = ""


class GenerationFiles:
    """The generations below *root*; every method blocks on the disk and may not be called concurrently."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.current = root / "current"
        self._generations = root / "generations"
        self._folders = root / "folders"
        self._journal_path = root / "journal.json"
        self._journal = Journal()
        self._directory = GenerationDirectory(self.current)
        self._patches = PatchJournal(self.current / JOURNAL_NAME)
        self._deltas: tuple[Delta, ...] = ()
        self._open_patch: Delta | None = None
        self._patched: tuple[Generation, Generation] | None = None

    @property
    def committed(self) -> str:
        """Directory name of the newest generation that HAProxy has accepted; empty before the first."""
        return self._journal.committed

    @property
    def clear(self) -> bool:
        """Whether the process, if it runs, runs the committed generation with the recorded patches."""
        return not self._journal.pending and self._open_patch is None

    def recover(self) -> None:
        """Read the directory; if it is writable, roll back an interrupted change, and remove leftovers."""
        for directory in (self._generations, self._folders):
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._journal = self._read_journal()
        with contextlib.suppress(OSError):
            self._point_back()
        self._directory.forget()
        self._read_patches()
        with contextlib.suppress(OSError):
            remove(self.set_aside())

    def _read_journal(self) -> Journal:
        try:
            journal = decode_state_file(self._journal_path, Journal)
        except (FileNotFoundError, StateFileError):
            # Damaged or missing: the current generation is a guess, so it counts as pending.
            name = self.current.readlink().name if self.current.is_symlink() else ""
            journal = Journal(committed=name, pending=name)
        if not self.path_of(journal.committed).is_file():
            return Journal(pending=journal.committed or journal.pending)
        return journal

    def _read_patches(self) -> None:
        """Read the patches on top of the committed generation."""
        self._patches.close()
        self._patches = PatchJournal(self.path_of(self._journal.committed).with_name(JOURNAL_NAME))
        self._patched = None
        try:
            records = self._patches.read()
            self._deltas = tuple(map(decode_delta, records.kept))
            self._open_patch = decode_delta(records.open) if records.open is not None else None
        except (DeltaError, StateFileError):
            # Written by another version: the running generation is unknown.
            self._deltas, self._open_patch = (), Delta("", "")

    def stage(self, generation: Generation) -> str:
        """Write *generation* to a new directory and return its name; `current` is unchanged."""
        check_files(generation.files, RESERVED)
        name = self._next_name(generation.id)
        directory = self._generations / name
        directory.mkdir(mode=0o700)
        written: list[str] = []
        for folder, files in by_folder(generation.files.values()).items():
            if not folder:
                written += [self._place(f"{directory}/{file.path}", file) for file in files]
                continue
            target = self._same_folder(folder, files)
            if not target:
                target = f"{name}.{folder}"
                written += self._stage_folder(target, folder, files)
            (directory / folder).symlink_to(f"../../folders/{target}")
        wait_written([path for path in written if path])
        write_file(directory / CONFIG_NAME, generation.text.encode(errors="surrogateescape"))
        manifest = Manifest(
            generation.id,
            tuple(ManifestEntry(file.kind, file.path, file.digest, file.secret) for file in generation.files.values()),
        )
        write_file(directory / MANIFEST_NAME, msgspec.json.encode(manifest))
        fsync_directory(directory)
        fsync_directory(self._folders)
        fsync_directory(self._generations)
        return name

    def _same_folder(self, folder: str, files: Iterable[AuxFile]) -> str:
        """Return the name of the current folder if it holds *files* and nothing else; empty otherwise."""
        known = self._directory.generation
        link = self.current / folder
        if known is None or not link.is_symlink():
            return ""
        former = [file for file in known.files.values() if file.path.startswith(f"{folder}/")]
        if _fingerprint(former) != _fingerprint(files) or not self._directory.is_unchanged(folder):
            return ""
        return link.readlink().name

    def _stage_folder(self, name: str, folder: str, files: Iterable[AuxFile]) -> list[str]:
        root = self._folders / name
        # A crash of an earlier deployment may have left it.
        shutil.rmtree(root, ignore_errors=True)
        root.mkdir(mode=0o700)
        made = {folder: root}
        written = []
        for file in files:
            for inner in folders_of(file.path):
                if inner not in made:
                    made[inner] = root / inner.removeprefix(f"{folder}/")
                    made[inner].mkdir(mode=0o700)
            written.append(self._place(f"{root}/{file.path.removeprefix(f'{folder}/')}", file))
        for one in made.values():
            fsync_directory(one)
        return written

    def _next_name(self, generation_id: str) -> str:
        newest = max((int(entry.name.partition("-")[0]) for entry in self._entries()), default=0)
        return f"{newest + 1:08d}-{re.sub('[^0-9A-Za-z]', '', generation_id)[:16]}"

    def _place(self, target: str, file: AuxFile) -> str:
        """Write or link *file* at *target*; returns *target* if it was written and is not synced."""
        stamp = self._directory.stamps.get(file.path)
        # A file that was edited in place must not be linked.
        if stamp is not None and stamp.digest == file.digest and self._directory.is_untouched(file.path):
            with contextlib.suppress(OSError):
                os.link(f"{self.current}/{file.path}", target)
                return ""
        write_file(target, file.content, durable=False)
        return target

    def path_of(self, name: str) -> Path:
        """Return the configuration file of the generation in directory *name*."""
        return self._generations / name / CONFIG_NAME

    def begin(self, name: str) -> None:
        """Record that the process is about to run *name*."""
        self._write_journal(msgspec.structs.replace(self._journal, pending=name))

    def switch(self, name: str) -> None:
        """Point `current` to *name*: HAProxy loads it next."""
        self._point_current(name)

    def commit(self, name: str, generation: Generation, running: Generation | None = None) -> None:
        """Record that the process runs the files *name*, or *running*; the caller removes `set_aside` later."""
        if running is not None and running.id != generation.id:
            write_kept(self.path_of(name).with_name(JOURNAL_NAME), [encode_delta(make_delta(generation, running))])
        kept = self._kept_stamps(generation)
        journal = self._journal
        previous = journal.committed if journal.committed != name else journal.previous
        self._write_journal(Journal(committed=name, previous=previous))
        self._directory.remember(generation, kept)
        self._read_patches()

    def _kept_stamps(self, generation: Generation) -> Mapping[str, Stamp]:
        """Return the stamps of files that are the same object as before: they were not written."""
        known = self._directory.generation
        stamps = self._directory.stamps
        return {
            path: stamps[path]
            for path, file in generation.files.items()
            if known is not None and path in stamps and known.files.get(path) is file
        }

    def abandon(self, *, clear: bool) -> None:
        """Point `current` to the committed generation; *clear*: the process still runs it."""
        self._point_back()
        if clear:
            self._write_journal(msgspec.structs.replace(self._journal, pending=""))
            remove(self.set_aside())

    def mark_loaded(self) -> None:
        """Record that a process was started from `current`, without the recorded patches."""
        if self._deltas or self._open_patch is not None:
            self._patches.remove()
            self._read_patches()
        if self._journal.pending:
            self._write_journal(msgspec.structs.replace(self._journal, pending=""))

    def distrust(self) -> None:
        """Treat the running generation as unknown until the next load, in memory only."""
        self._journal = msgspec.structs.replace(self._journal, pending=self._journal.committed)

    def record_patch(self, delta: Delta) -> None:
        """Record, synced to disk, that *delta* is about to be applied to the generation of `read_running`."""
        self._patches.append(encode_delta(delta))
        self._open_patch = delta

    def settle(self, generation: Generation | None) -> None:
        """Settle the last patch: the process runs *generation*, or None if the patch was not applied."""
        assert self._open_patch is not None
        self._patches.settle(kept=generation is not None)
        if generation is not None:
            base = self._directory.generation
            self._deltas += (self._open_patch,)
            self._patched = (base, generation) if base is not None else None
        self._open_patch = None

    def read_patches(self) -> tuple[Delta, ...]:
        """Return the patches since the committed files were written."""
        return self._deltas

    def join(self, generation: Generation) -> None:
        """Write *generation*, the result of recorded patches, to the committed files; later patches stay recorded.

        The process is not changed. Raises ValueError if no patch has this result.
        """
        places = [number for number, delta in enumerate(self._deltas, 1) if delta.id == generation.id]
        if not places or self._open_patch is not None:
            raise ValueError(f"no settled patch has the result {generation.id}")
        running = self.read_running()
        name = self.stage(generation)
        later = self._deltas[places[-1] :]
        if later:
            write_kept(self.path_of(name).with_name(JOURNAL_NAME), map(encode_delta, later))
        self._point_current(name)
        self.commit(name, generation)
        if later and running is not None:
            self._patched = generation, running

    def absorb(self) -> None:
        """Write the result of settled patches to files, before a process is started; none may be running."""
        if self._open_patch is not None:
            self.settle(None)
        running = self.read_running() if self._deltas else None
        if running is not None:
            self.join(running)

    def roll_back(self) -> bool:
        """Make the previous generation the committed one; False if there is none."""
        if not self._journal.previous:
            return False
        self._write_journal(Journal(committed=self._journal.previous))
        self._point_current(self._journal.committed)
        self._directory.forget()
        self._read_patches()
        return True

    def read_running(self, *, thorough: bool = False) -> Generation | None:
        """Return the generation on disk, patches and manual edits included; None if it is unusable.

        Compares only some of many files, in turn, unless *thorough*; see
        `generation_directory`.
        """
        try:
            base = self._directory.read(thorough=thorough)
            if not self._deltas:
                return base
            if self._patched is None or self._patched[0] is not base:
                running = base
                for delta in self._deltas:
                    running = apply_delta(running, delta)
                self._patched = base, running
        except (FileNotFoundError, NotADirectoryError, UnicodeDecodeError, StateFileError, ProblemsError):
            self._directory.forget()
            return None
        except DeltaError:  # the files that the patches are based on have changed
            return None
        return self._patched[1]

    def find_running(self) -> Generation | None:
        """Return the generation of `read_running` if no file has to be read for it (fast); else None."""
        base = self._directory.find()
        if base is None or not self._deltas:
            return base
        return self._patched[1] if self._patched is not None and self._patched[0] is base else None

    def read_intact(self) -> Generation | None:
        """Return the generation of `read_running`; None if files of the current generation were changed by hand."""
        running = self.read_running()
        base = self._directory.generation
        return running if base is not None and base.id == self._directory.intended else None

    def find_edited(self) -> tuple[str, ...]:
        """Return the files of the current generation that were changed by hand; compares all."""
        try:
            manifest = self._directory.read_manifest()
        except OSError:
            return (MANIFEST_NAME,)
        running = self.read_running(thorough=True)
        base = self._directory.generation
        if base is None:
            return (CONFIG_NAME,)
        if base.id == manifest.id:
            return () if running is not None else (JOURNAL_NAME,)
        here = {path: file.digest for path, file in base.files.items()}
        return tuple(one.path for one in manifest.files if here.get(one.path) != one.digest) or (CONFIG_NAME,)

    def _point_back(self) -> None:
        if self._journal.committed:
            self._point_current(self._journal.committed)
        else:
            self.current.unlink(missing_ok=True)

    def _point_current(self, name: str) -> None:
        target = f"generations/{name}"
        if not self.current.is_symlink() or os.readlink(self.current) != target:  # noqa: PTH115 - compared as text
            replace_link(self.current, target)

    def _write_journal(self, journal: Journal) -> None:
        replace_file(self._journal_path, msgspec.json.encode(journal))
        self._journal = journal

    def _entries(self) -> list[Path]:
        return [entry for entry in self._generations.iterdir() if re.match(r"\d+-", entry.name)]

    def set_aside(self) -> tuple[Path, ...]:
        """Return what no generation in use needs, to be removed by `set_aside.remove`; quick.

        The generation of `current` is in use: if a deployment was cut off, HAProxy may still load it.
        """
        loading = self.current.readlink().name if self.current.is_symlink() else ""
        return set_aside(self._generations, self._folders, {self._journal.committed, self._journal.previous, loading})


def _fingerprint(files: Iterable[AuxFile]) -> bytes:
    return blake2b(b"".join([file.seal for file in files]), digest_size=20).digest()
