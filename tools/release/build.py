"""Builds the files of a release from the committed and changed files of a checkout."""

import gzip
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from haptic_trio import __version__
from tools.release.project import ROOT, absolute_links, metadata, release_notes
from tools.release.sbom import write_sbom

LIMIT: Final = 300.0
"""Seconds for one command."""
SUMS: Final = "SHA256SUMS"
NOTES: Final = "release-notes.md"
PAGES: Final = ("README.md", "chart/README.md")
"""Pages that are published apart from the repository, where their relative links would lead nowhere."""
_DIAGRAM: Final = re.compile(r"```mermaid\n.*?\n```\n", re.DOTALL)


def run(command: Sequence[str | Path], *, cwd: Path, **environment: str) -> str:
    """Return what *command* writes; raises CalledProcessError, after showing its output."""
    done = subprocess.run(
        [str(one) for one in command],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
        done.check_returncode()
    return done.stdout


def stage(target: Path) -> None:
    """Copy the files of the checkout to *target*: those of git, with the pages as they are published."""
    listed = run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target / name)
    for page in PAGES:
        file = target / page
        file.write_text(published(file.read_text("utf-8"), page), "utf-8")


def published(text: str, page: str) -> str:
    """Return the page as a package index shows it: with links to the documentation site, and without drawings."""
    site = metadata()["urls"]["Documentation"]
    drawn = _DIAGRAM.sub(f"[Diagram]({site}architecture/#5-the-path-of-a-change)\n", text)
    return absolute_links(drawn, page, site)


def build(source: Path, out: Path, helm: Path, *, final: bool) -> None:
    """Write all files of the release of the staged checkout *source* to the directory *out*, replacing it."""
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    epoch = os.environ.get("SOURCE_DATE_EPOCH") or run(["git", "log", "-1", "--format=%ct"], cwd=ROOT).strip()
    hatchling: list[str | Path] = [sys.executable, "-m", "hatchling", "build", "--directory", out]
    run([*hatchling, "--target", "sdist"], cwd=source, SOURCE_DATE_EPOCH=epoch)
    # The wheel is what the sdist makes: so the sdist is complete.
    (sdist,) = out.glob("*.tar.gz")
    unpacked = source.parent / "unpacked"
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    run([*hatchling, "--target", "wheel"], cwd=unpacked / f"haptic_trio-{__version__}", SOURCE_DATE_EPOCH=epoch)
    (wheel,) = out.glob("*.whl")
    run([helm, "package", source / "chart", "--destination", out], cwd=source)
    set_times(out / f"haptic-trio-{__version__}.tgz", int(epoch))
    write_sbom(wheel, ROOT / "requirements/run.txt", __version__, out / f"haptic-trio-{__version__}.cdx.json")
    notes = release_notes((ROOT / "CHANGELOG.md").read_text("utf-8"), __version__, final=final)
    (out / NOTES).write_text(absolute_links(notes, "CHANGELOG.md", metadata()["urls"]["Documentation"]), "utf-8")
    write_sums(out)


def set_times(package: Path, epoch: int) -> None:
    """Write the chart *package* again with *epoch* as the time of all files: helm writes the time of its run."""
    with tarfile.open(package) as archive:
        members = [(member, archive.extractfile(member)) for member in archive.getmembers() if member.isfile()]
        contents = [(member, content.read()) for member, content in members if content is not None]
    with (
        package.open("wb") as file,
        gzip.GzipFile(filename="", fileobj=file, mode="wb", mtime=epoch) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for member, content in contents:
            member.mtime = epoch
            archive.addfile(member, io.BytesIO(content))


def write_sums(folder: Path) -> None:
    """Write the file of checksums that `sha256sum --check` reads."""
    files = sorted(file for file in folder.iterdir() if file.name != SUMS)
    lines = [f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files]
    (folder / SUMS).write_text("".join(lines), "utf-8")
