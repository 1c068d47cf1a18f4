"""Images of the cluster: the local program that each image name stands for."""

import shutil
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from haptic_trio.dataplane.binary import HaproxyNotFoundError, find_haproxy

CHECKOUT: Final = Path(__file__).parents[3]
SYSTEM_PATH: Final = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")


class Program(msgspec.Struct, frozen=True):
    """What runs for an image."""

    entrypoint: tuple[str, ...] = ()
    """Comes before `args`, unless the container has a `command`."""
    folders: tuple[str, ...] = ()
    """Come before the system's in PATH."""
    environment: Mapping[str, str] = {}
    """What the image sets."""


def repository_of(image: str) -> str:
    """Return the last part of an image's name, without tag and digest: `echo` of `registry.test:5000/demo/echo:1`."""
    return image.partition("@")[0].rpartition("/")[2].partition(":")[0]


class Images:
    """The images that containers may name, by the last part of their name."""

    def __init__(self, programs: Mapping[str, Program]) -> None:
        self._programs = dict(programs)

    def add(self, repository: str, program: Program) -> None:
        """Let *program* stand for images of that name from now on."""
        self._programs[repository] = program

    def find(self, image: str) -> Program | None:
        """Return the program of *image*; None for one that cannot be had."""
        return self._programs.get(repository_of(image))


def default_images() -> Images:
    """Return `echo`, `haptic-trio` and `haproxy`, and `host`: a command of this machine."""
    tools = [str(Path(sys.executable).parent)]
    with suppress(HaproxyNotFoundError):
        tools.append(str(find_haproxy().parent))
    python = (sys.executable, "-P", "-X", "faulthandler")
    source = {"PYTHONPATH": str(CHECKOUT), "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"}
    own = Program((*python, "-m", "haptic_trio"), tuple(tools), source)
    programs = {
        "echo": Program((sys.executable, "-I", "-S", str(Path(__file__).parents[1] / "workloads" / "echo.py"))),
        "haptic-trio": own,
        "host": Program((), tuple(tools)),
    }
    if len(tools) == 2:
        programs["haproxy"] = Program((str(Path(tools[1]) / "haproxy"),), tuple(tools))
    return Images(programs)


def command_of(container: Mapping[str, Any], program: Program) -> list[str]:
    """Return what *container* runs, before its variables are filled in."""
    return [*(container.get("command") or program.entrypoint), *(container.get("args") or ())]


def search_path(program: Program) -> str:
    """Return the PATH of *program*."""
    return ":".join([*program.folders, *SYSTEM_PATH])


def needed_filesystems(state: Path) -> list[str]:
    """Return the mount points that a container needs besides the root: the kernel's, and those of what it may run."""
    found = dict.fromkeys(["/dev", "/proc", "/sys"])
    programs = [Path(path) for path in (shutil.which("haproxy"), sys.executable, sys.prefix, sys.base_prefix) if path]
    for path in [CHECKOUT, *programs, *[one.resolve() for one in programs]]:
        mounts = [folder for folder in path.parents if folder.is_mount() and folder != Path("/")]
        found.update(dict.fromkeys(str(folder) for folder in mounts if folder not in state.parents))
    return list(found)
