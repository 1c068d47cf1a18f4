"""The registry of experiments, and what many of them do."""

import os
import random
import signal
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.chaos.processes import send
from tests.chaos.world import Setup, World

Inject = Callable[[World], Awaitable[None]]


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """One row of the report."""

    name: str
    inject: Inject
    setup: Setup = Setup()
    quick: bool = False
    """Also part of `make test`."""
    outage: bool = False
    """All instances are dead for a time, in which requests are lost."""
    mount: str = ""
    """Options of a tmpfs for the state directory; empty for none."""


EXPERIMENTS: Final[list[Experiment]] = []


def experiment(
    name: str,
    setup: Setup | None = None,
    *,
    quick: bool = False,
    outage: bool = False,
    mount: str = "",
) -> Callable[[Inject], Inject]:
    """Add the decorated function to `EXPERIMENTS`."""

    def add(inject: Inject) -> Inject:
        EXPERIMENTS.append(
            Experiment(name=name, inject=inject, setup=setup or Setup(), quick=quick, outage=outage, mount=mount)
        )
        return inject

    return add


async def kill_one(world: World, part: str) -> None:
    """Kill the worker or master of a random instance; the other part ends with it."""
    instance = world.rng.choice(world.instances)
    if part == "master":
        await world.kill(instance.master)
    else:
        await world.kill(*instance.workers)


async def kill_all(world: World) -> None:
    """Kill every HAProxy."""
    await world.kill(*(pid for instance in world.instances for pid in instance.pids))


async def stop(world: World, pid: int, seconds: float) -> None:
    """Stop a process for some time, with changes meanwhile."""
    send(signal.SIGSTOP, pid)
    world.desired.change()
    await trio.sleep(seconds)
    send(signal.SIGCONT, pid)


def corrupt(world: World) -> None:
    """Truncate, fill or remove some files of the instances."""
    files = sorted(
        path
        for directory in world.directories
        for path in directory.rglob("*")
        if path.is_file() and not path.is_symlink() and path.name not in {"haproxy.log", "lock"}
    )
    for path in world.rng.sample(files, 3):
        data = path.read_bytes()
        path.chmod(0o600)
        match world.rng.randrange(3):
            case 0:
                path.write_bytes(data[: world.rng.randint(0, len(data))])
            case 1:
                path.write_bytes(world.rng.randbytes(len(data)))
            case _:
                path.unlink()


@asynccontextmanager
async def outage(world: World) -> AsyncIterator[None]:
    """Have no instance meanwhile: requests are lost."""
    began = trio.current_time()
    yield
    world.dark.append((began, trio.current_time()))


@asynccontextmanager
async def root_of(experiment: Experiment, root: Path) -> AsyncIterator[Path]:
    """Return where *experiment* keeps its files: *root*, or one with a small file system for the state directory.

    Raises PermissionError where no file system can be mounted. A mount that
    is left behind must not be below *root*: pytest would fail to remove it.
    """
    if not experiment.mount:
        yield root
        return
    with tempfile.TemporaryDirectory(prefix="haptic-chaos-") as name:
        state = Path(name) / "state"
        state.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", experiment.mount, "tmpfs", str(state)]
        mounted = await trio.run_process(command, capture_stderr=True, check=False)
        if mounted.returncode:
            raise PermissionError(mounted.stderr.decode().strip())
        try:
            yield Path(name)
        finally:
            with trio.CancelScope(shield=True):
                await trio.run_process(["umount", "-l", str(state)])


def choose_seed() -> int:
    """Return the seed of HAPTIC_CHAOS_SEED, or a new one."""
    return int(os.environ.get("HAPTIC_CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
