"""The official conformance suite and its backend, built once into a cache outside the checkout.

    python -m tests.conformance.programs        build what is missing, print where it is

Go builds both from `modules/suite`, and the definitions of the API's kinds are those of the same module.
HAPTIC_CONFORMANCE_CACHE names another cache. Exits with 3 and the reason where they cannot be had.
"""

import hashlib
import os
import shutil
import sys
from pathlib import Path
from typing import Final

import msgspec

from tests.cluster.control_plane.binaries import (
    UNAVAILABLE,
    BinaryUnavailableError,
    go_environment,
    provide_folder,
    require_go,
    run_tool,
)

MODULE: Final = Path(__file__).parent / "modules" / "suite"
VERSION: Final = "1.6.3"
CHANNEL: Final = "experimental"
API_MODULE: Final = "sigs.k8s.io/gateway-api"
_BACKEND: Final = "sigs.k8s.io/gateway-api/conformance/echo-basic"


class Programs(msgspec.Struct, frozen=True):
    """What was built."""

    folder: Path

    @property
    def suite(self) -> Path:
        """The tests, as a program."""
        return self.folder / "gateway-conformance"

    @property
    def backend(self) -> Path:
        """What answers in the suite's Pods."""
        return self.folder / "echo-basic"

    @property
    def definitions(self) -> list[Path]:
        """The files that define the kinds of the API."""
        return sorted(one for one in (self.folder / "definitions").iterdir() if one.name != "kustomization.yaml")


def cache_directory() -> Path:
    """Return the folder that holds what was built."""
    if chosen := os.environ.get("HAPTIC_CONFORMANCE_CACHE"):
        return Path(chosen).absolute()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "haptic-trio" / "conformance"


def find_programs() -> Programs:
    """Return the programs if they are there already; raises BinaryUnavailableError that says how to get them."""
    folder = _folder()
    if not folder.is_dir():
        raise BinaryUnavailableError(
            f"the conformance suite is not built: `python -m tests.conformance.programs` builds it into {folder.parent}"
        )
    return Programs(folder)


def provide_programs() -> Programs:
    """Return the programs, after building what is missing: about 3 minutes on 2 cores."""
    return Programs(provide_folder(_folder(), "conformance suite", _build))


def _folder() -> Path:
    """Return the folder of what this module's files make; other files have another folder."""
    digest = hashlib.sha256(f"{VERSION} {CHANNEL}".encode())
    for path in sorted(one for one in MODULE.iterdir() if one.is_file()):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return cache_directory() / f"suite-{VERSION}-{digest.hexdigest()[:8]}"


def _build(staged: Path) -> None:
    require_go()
    programs = Programs(staged)
    flags = ["-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags", "-s -w"]
    for command in (
        ["go", "build", *flags, "-o", str(programs.backend), _BACKEND],
        ["go", "test", "-c", *flags, "-o", str(programs.suite), "."],
    ):
        run_tool(command, directory=MODULE, environment=go_environment())
    listed = run_tool(
        ["go", "list", "-m", "-f", "{{.Version}} {{.Dir}}", API_MODULE], directory=MODULE, environment=go_environment()
    )
    version, _, source = listed.strip().partition(" ")
    if version != f"v{VERSION}":
        raise BinaryUnavailableError(f"{MODULE / 'go.mod'} takes {version} of the API, not v{VERSION}")
    definitions = staged / "definitions"
    definitions.mkdir()
    for path in sorted((Path(source) / "config" / "crd" / CHANNEL).glob("*.yaml")):
        # The module cache is read-only; what is copied of it must not be.
        shutil.copyfile(path, definitions / path.name)


def main() -> int:
    """Build what is missing and print where it is."""
    try:
        programs = provide_programs()
    except BinaryUnavailableError as exc:
        sys.stderr.write(f"{exc}\n")
        return UNAVAILABLE
    sys.stdout.write(f"{programs.suite}\n{programs.backend}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
