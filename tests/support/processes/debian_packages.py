"""Packages of this machine's own distribution, unpacked into a private folder.

Nothing is installed, and apt's own lists stay as they are.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from tests.support.processes.locks import locked

COMMAND_LIMIT = 180.0
"""Seconds that one command of apt or dpkg may take."""


class PackageUnavailableError(Exception):
    """A package cannot be had here; trying again helps when the source of packages was out of reach."""


class Apt:
    """apt with lists and archives of its own below *root*, over the machine's sources of packages."""

    def __init__(self, root: Path, *more: str) -> None:
        """*more* are further options of apt."""
        for folder in ("lists/partial", "archives/partial", "debs"):
            (root / folder).mkdir(parents=True)
        (root / "status").touch()
        self._debs = root / "debs"
        self._options = [
            *("-o", f"Dir::State::Lists={root}/lists", "-o", f"Dir::State::Status={root}/status"),
            *("-o", f"Dir::Cache={root}", "-o", f"Dir::Cache::Archives={root}/archives"),
            *("-o", "Acquire::Languages=none", "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
            *("-o", "APT::Sandbox::User=", *more),
        ]
        run_tool(["apt-get", *self._options, "update"])

    @classmethod
    def of_suites(cls, root: Path, suites: Sequence[str]) -> Self:
        """Return one that knows *suites* of the distribution instead of those that the machine has configured."""
        for folder in ("apt.conf.d", "preferences.d"):
            (root / "etc/apt" / folder).mkdir(parents=True)
        address, keys = _read_source()
        sources = root / "etc/apt/sources.list"
        sources.write_text("".join(f"deb [signed-by={keys}] {address} {suite} main\n" for suite in suites))
        return cls(root, "-o", f"Dir::Etc={root}/etc/apt", "-o", f"Dir::Etc::SourceList={sources}")

    def find(self, name: str, version: str) -> str | None:
        """Return the newest version of the package *name* that begins with *version*."""
        rows = run_tool(["apt-cache", *self._options, "madison", name]).splitlines()
        versions = [row.split("|")[1].strip() for row in rows if row.count("|") >= 2]
        return next((one for one in versions if re.match(rf"(\d+:)?{re.escape(version)}\.", one)), None)

    def download(self, name: str) -> Path:
        """Download the package *name*, or `name=version`."""
        before = set(self._debs.iterdir())
        run_tool(["apt-get", *self._options, "download", name], directory=self._debs)
        return (set(self._debs.iterdir()) - before).pop()

    def download_with_libraries(self, package: str) -> list[Path]:
        """Download *package*, the libraries it depends on, and theirs."""
        found: dict[str, Path] = {}
        pending = [package]
        while pending:
            name = pending.pop()
            path = found[name] = self.download(name)
            pending += [one for one in _libraries(path) if one not in found and one not in pending]
        return list(found.values())


def unpack_package(name: str, target: Path) -> str:
    """Unpack the newest package *name* of the configured sources into *target*; return its version.

    Only the package itself: for programs that need no more than the C
    library. Raises PackageUnavailableError.
    """
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        package = Apt(Path(folder)).download(name)
        run_tool(["dpkg-deb", "-x", str(package), str(target)])
        return run_tool(["dpkg-deb", "-f", str(package), "Version"]).strip()


def unpack_with_libraries(names: Sequence[str], target: Path) -> None:
    """Unpack the newest packages *names* into *target*, the first one with the libraries that it needs.

    Raises PackageUnavailableError. An interrupted unpacking leaves no *target*.
    """
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        apt = Apt(Path(folder))
        packages = [*apt.download_with_libraries(names[0]), *(apt.download(name) for name in names[1:])]
        # Beside its place, then moved: an interrupted unpacking is never taken for a whole one.
        staged = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        try:
            for package in packages:
                run_tool(["dpkg-deb", "-x", str(package), str(staged)])
            staged.rename(target)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def find_or_fetch(find: Callable[[], Path | None], names: Sequence[str], target: Path) -> Path:
    """Return the program that *find* finds, after the packages *names* were unpacked into *target* if there was none.

    Raises PackageUnavailableError.
    """
    if found := find():
        return found
    with locked(target):
        # Another worker may have fetched it meanwhile.
        if found := find():
            return found
        unpack_with_libraries(names, target)
    if found := find():
        return found
    raise PackageUnavailableError(f"{names[0]}: the package has another layout than expected")


def run_tool(command: Sequence[str], *, directory: Path | None = None) -> str:
    """Run *command* and return what it prints; raises PackageUnavailableError with what it complains of."""
    try:
        run = subprocess.run(
            command,
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_LIMIT,
            check=True,
        )
    except subprocess.CalledProcessError as exc:
        raise PackageUnavailableError(f"{command[0]}: {exc.stderr.strip()[-300:]}") from exc
    except (OSError, subprocess.SubprocessError) as exc:
        raise PackageUnavailableError(f"{command[0]}: {exc}") from exc
    return run.stdout


def _libraries(package: Path) -> Iterator[str]:
    depends = run_tool(["dpkg-deb", "-f", str(package), "Depends"])
    for alternatives in depends.split(","):
        name = alternatives.strip().partition(" ")[0].partition(":")[0]
        if re.match("lib|zlib", name):
            yield name


def _read_source() -> tuple[str, str]:
    """Return the address and the keys of the distribution's own source."""
    asked = ["apt-get", "indextargets", "--format", "$(CREATED_BY)|$(ORIGIN)|$(LABEL)|$(REPO_URI)"]
    for row in run_tool(asked).splitlines():
        kind, origin, label, address = row.split("|")
        if kind == "Packages" and origin == label == "Debian":
            return address, "/usr/share/keyrings/debian-archive-keyring.gpg"
    raise PackageUnavailableError("apt has no source of Debian packages, or was never updated")
