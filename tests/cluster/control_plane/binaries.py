"""The programs of the control plane, helm and a firewall's agent, built once into a cache outside the checkout.

    python -m tests.cluster.control_plane.binaries            build what is missing, print the folders

kube-apiserver, kube-controller-manager, helm and coraza-agent are built by Go from the modules in `modules/`; etcd is
that of PATH, or the distribution's package, unpacked. HAPTIC_CLUSTER_CACHE names another cache. Exits with 3 and the
reason where a program cannot be had.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from tests.support.processes.debian_packages import PackageUnavailableError, unpack_package
from tests.support.processes.locks import locked

UNAVAILABLE = 3
MODULES = Path(__file__).parents[1] / "modules"
KUBERNETES = "1.36.1"
HELM = "3.22.0"
CORAZA = "3.8.1"
GO = (1, 26)
BUILD_LIMIT = 3600.0
"""Seconds that the build of one program may take; with empty caches, on one busy core."""


class BinaryUnavailableError(Exception):
    """A program is not in the cache and cannot be made here; the text says why."""


class Binaries(msgspec.Struct, frozen=True):
    """Where the programs of a control plane are."""

    etcd: Path
    apiserver: Path
    controller_manager: Path


class _Recipe(msgspec.Struct, frozen=True):
    module: str
    packages: tuple[str, ...]
    version: str
    linker_flags: str
    version_command: tuple[str, ...]


def _stamps(version: str) -> str:
    major, minor, _ = version.split(".")
    fields = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor, "gitTreeState": "clean"}
    return " ".join(f"-X k8s.io/component-base/version.{name}={value}" for name, value in fields.items())


# One build of both: they share nearly all of what is compiled.
_CONTROL_PLANE = _Recipe(
    module="kubernetes",
    packages=("./kube-apiserver", "./kube-controller-manager"),
    version=KUBERNETES,
    linker_flags=_stamps(KUBERNETES),
    version_command=("--version",),
)
_HELM = _Recipe(
    module="helm",
    packages=("helm.sh/helm/v3/cmd/helm",),
    version=HELM,
    linker_flags=f"-X helm.sh/helm/v3/internal/version.version=v{HELM}",
    version_command=("version", "--short"),
)
# What it prints are the versions of the modules it was built of.
_CORAZA = _Recipe(
    module="coraza",
    packages=("./coraza-agent",),
    version=CORAZA,
    linker_flags="",
    version_command=("-version",),
)


def find_binaries() -> Binaries:
    """Return the programs that are there already; raises BinaryUnavailableError that says how to get them."""
    return _binaries(_require_built)


def provide_binaries() -> Binaries:
    """Return the programs, after building what is missing: about 5 minutes on 2 cores."""
    return _binaries(provide_folder)


def find_helm() -> Path:
    """Return helm if it is there already; raises BinaryUnavailableError."""
    return _require_built(_folder_of(_HELM), _HELM.module, _no_build) / "helm"


def provide_helm() -> Path:
    """Return helm, after building it if it is missing: about 1 minute on 2 cores."""
    return provide_folder(_folder_of(_HELM), _HELM.module, lambda staged: _build(_HELM, staged)) / "helm"


def find_coraza_agent() -> Path:
    """Return coraza-agent if it is there already; raises BinaryUnavailableError."""
    return _require_built(_folder_of(_CORAZA), _CORAZA.module, _no_build) / "coraza-agent"


def provide_coraza_agent() -> Path:
    """Return coraza-agent, after building it if it is missing: about 1 minute on 2 cores."""
    return provide_folder(_folder_of(_CORAZA), _CORAZA.module, lambda staged: _build(_CORAZA, staged)) / "coraza-agent"


def cache_directory() -> Path:
    """Return the folder that holds what was built."""
    if chosen := os.environ.get("HAPTIC_CLUSTER_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "haptic-trio" / "cluster"


_Make = Callable[[Path], None]


def _binaries(get: Callable[[Path, str, _Make], Path]) -> Binaries:
    etcd = shutil.which("etcd")
    if etcd is None:
        etcd = str(get(cache_directory() / "etcd", "etcd", _unpack_etcd) / "usr/bin/etcd")
    built = get(_folder_of(_CONTROL_PLANE), _CONTROL_PLANE.module, lambda staged: _build(_CONTROL_PLANE, staged))
    return Binaries(Path(etcd), built / "kube-apiserver", built / "kube-controller-manager")


def _folder_of(recipe: _Recipe) -> Path:
    """Return the folder of what *recipe* makes; another recipe has another folder."""
    digest = hashlib.sha256(recipe.linker_flags.encode())
    for path in sorted((MODULES / recipe.module).rglob("*")):
        if path.is_file():
            digest.update(path.relative_to(MODULES).as_posix().encode() + b"\0" + path.read_bytes())
    return cache_directory() / f"{recipe.module}-{recipe.version}-{digest.hexdigest()[:8]}"


def _no_build(staged: Path) -> None:
    raise AssertionError("only looked up")


def _require_built(folder: Path, name: str, make: _Make) -> Path:
    if not folder.is_dir():
        raise BinaryUnavailableError(
            f"{name} is not built: `python -m tests.cluster.control_plane.binaries` builds it into {cache_directory()}"
        )
    return folder


def provide_folder(folder: Path, name: str, make: _Make) -> Path:
    """Return *folder*, which *make* fills beside its place; a second caller waits for the first."""
    if folder.is_dir():
        return folder
    with locked(folder):
        if not folder.is_dir():
            sys.stderr.write(f"{name}: into {folder}\n")
            # Beside its place, then moved: an interrupted build is never taken for a whole one.
            staged = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
            try:
                make(staged)
                staged.chmod(0o755)
                staged.rename(folder)
            finally:
                shutil.rmtree(staged, ignore_errors=True)
    return folder


def _unpack_etcd(staged: Path) -> None:
    try:
        version = unpack_package("etcd-server", staged)
    except PackageUnavailableError as exc:
        raise BinaryUnavailableError(f"no etcd: {exc}") from exc
    if f"etcd Version: {version.partition('-')[0]}" not in run_tool([str(staged / "usr/bin/etcd"), "--version"]):
        raise BinaryUnavailableError("the package of etcd holds another version than its own")


def _build(recipe: _Recipe, staged: Path) -> None:
    require_go()
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", f"-s -w {recipe.linker_flags}"]
    command = ["go", "build", *flags, "-o", f"{staged}/", *recipe.packages]
    run_tool(command, directory=MODULES / recipe.module, environment=go_environment())
    for package in recipe.packages:
        printed = run_tool([str(staged / package.rpartition("/")[2]), *recipe.version_command])
        if f"v{recipe.version}" not in printed:
            raise BinaryUnavailableError(f"{package} calls itself {printed.strip()!r}, not v{recipe.version}")


def go_environment() -> dict[str, str]:
    """Return what Go is run with: nothing of the user's own settings, and no other version than is here."""
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "", "GOTOOLCHAIN": "local", "GOWORK": "off"}


def require_go() -> None:
    """Raise BinaryUnavailableError unless a Go is here that can build what is needed."""
    if shutil.which("go") is None:
        raise BinaryUnavailableError("there is no Go here to build it with")
    found = re.search(r"go(\d+)\.(\d+)", run_tool(["go", "version"]))
    if found is None or (int(found[1]), int(found[2])) < GO:
        raise BinaryUnavailableError(f"Go {GO[0]}.{GO[1]} or newer is needed to build it")


def run_tool(command: list[str], *, directory: Path | None = None, environment: dict[str, str] | None = None) -> str:
    """Return what *command* printed; raises BinaryUnavailableError with the end of its complaint."""
    try:
        run = subprocess.run(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=BUILD_LIMIT,
            check=True,
        )
    except subprocess.CalledProcessError as exc:
        raise BinaryUnavailableError(f"{command[0]}: {exc.stderr.strip()[-500:]}") from exc
    except (OSError, subprocess.SubprocessError) as exc:
        raise BinaryUnavailableError(f"{command[0]}: {exc}") from exc
    return run.stdout


def main() -> int:
    """Build what is missing and print where it is."""
    try:
        binaries, helm, agent = provide_binaries(), provide_helm(), provide_coraza_agent()
    except BinaryUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return UNAVAILABLE
    for path in (binaries.etcd, binaries.apiserver, binaries.controller_manager, helm, agent):
        sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
