"""Packages of this machine's own distribution, unpacked into a private folder.

Nothing is installed, and apt's own lists stay as they are.
"""

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

COMMAND_LIMIT = 180.0
"""Seconds that one command of apt or dpkg may take."""


class PackageUnavailableError(Exception):
    """A package cannot be had here; trying again helps when the source of packages was out of reach."""


def unpack_package(name: str, target: Path) -> str:
    """Unpack the newest package *name* of the configured sources into *target*; return its version.

    Only the package itself: for programs that need no more than the C library.
    """
    with tempfile.TemporaryDirectory(prefix="packages-") as folder:
        root = Path(folder)
        for part in ("lists/partial", "archives/partial", "downloads"):
            (root / part).mkdir(parents=True)
        (root / "status").touch()
        options = [
            *("-o", f"Dir::State::Lists={root}/lists", "-o", f"Dir::State::Status={root}/status"),
            *("-o", f"Dir::Cache={root}", "-o", f"Dir::Cache::Archives={root}/archives"),
            *("-o", "Acquire::Languages=none", "-o", "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled=false"),
            *("-o", "APT::Sandbox::User="),
        ]
        _run(["apt-get", *options, "update"])
        _run(["apt-get", *options, "download", name], directory=root / "downloads")
        package = next((root / "downloads").glob("*.deb"))
        _run(["dpkg-deb", "-x", str(package), str(target)])
        return _run(["dpkg-deb", "-f", str(package), "Version"]).strip()


def _run(command: Sequence[str], *, directory: Path | None = None) -> str:
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
