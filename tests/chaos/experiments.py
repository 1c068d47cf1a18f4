"""Experiments: what is set up, and which faults are injected into it."""

import os
import random
import shutil
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
import trio

from tests.chaos.network import Fault
from tests.chaos.processes import Instance, Limits, send
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


AGENTS: Final = Setup(agents=True)
API: Final = Setup(source="API server")


@experiment("kill -9 of the controller")
async def kill_controller(world: World) -> None:
    for _ in range(6):
        world.wanted.change()
        await world.pause()
        await world.restart(world.controller)
        await world.pause(3.0)
        await world.recover()


@experiment("kill -9 of a worker or master", quick=True)
async def kill_haproxy(world: World) -> None:
    for number in range(2 if world.is_quick else 8):
        world.wanted.change()
        await world.pause()
        await kill_one(world, "worker" if number % 2 else "master")
        await world.recover()


@experiment("kill -9 of a worker during a reload")
async def kill_during_reload(world: World) -> None:
    for number in range(6):
        world.wanted.reload()
        await world.pause(2.0)
        await kill_one(world, "worker" if number % 2 else "master")
        await world.recover()


@experiment("kill -9 of the controller and a master", quick=True)
async def kill_controller_and_master(world: World) -> None:
    for _ in range(1 if world.is_quick else 4):
        world.wanted.change()
        await world.pause()
        await world.controller.kill()
        await kill_one(world, "master")
        world.controller.start()
        await world.recover()


@experiment("kill -9 of everything", outage=True)
async def kill_everything(world: World) -> None:
    for _ in range(3):
        world.wanted.change()
        await world.pause()
        async with outage(world):
            await world.controller.kill()
            await kill_all(world)
            world.controller.start()
            await world.recover()


@experiment("SIGSTOP of the controller, a master or a worker")
async def stop_processes(world: World) -> None:
    for number in range(6):
        instance = world.rng.choice(world.instances)
        victim = (world.controller.pid, instance.master, instance.workers[0])[number % 3]
        await world.pause()
        await stop(world, victim, 3.0)
        await world.recover()


@experiment("SIGSTOP of a worker for ever")
async def hang_worker(world: World) -> None:
    worker = world.rng.choice(world.instances).workers[0]
    await world.pause()
    began = trio.current_time()
    send(signal.SIGSTOP, worker)
    # It is replaced, and ended with its connections.
    await world.recover()
    world.outages.append((began, trio.current_time()))


async def kill_one(world: World, part: str) -> None:
    """Kill the worker or master of a random instance; the other part ends with it."""
    instance = world.rng.choice(world.instances)
    if part == "master":
        await world.kill(instance.master, then=instance.workers)
    else:
        await world.kill(*instance.workers, then=(instance.master,))


async def kill_all(world: World) -> None:
    """Kill every HAProxy."""
    instances: list[Instance] = world.instances
    await world.kill(*(pid for instance in instances for pid in instance.pids))


async def stop(world: World, pid: int, seconds: float) -> None:
    """Stop a process for some time, with changes meanwhile."""
    send(signal.SIGSTOP, pid)
    world.wanted.change()
    await trio.sleep(seconds)
    send(signal.SIGCONT, pid)


@asynccontextmanager
async def outage(world: World) -> AsyncIterator[None]:
    """Have no instance meanwhile: requests are lost."""
    began = trio.current_time()
    yield
    world.dark.append((began, trio.current_time()))


# Agents.


@experiment("agents: kill -9 and SIGSTOP of an agent", AGENTS)
async def kill_agents(world: World) -> None:
    for number in range(6):
        agent = world.rng.choice(world.agents)
        world.wanted.change()
        await world.pause()
        if number % 2:
            await stop(world, agent.pid, 3.0)
        else:
            await world.restart(agent)
        await world.recover()


@experiment("agents: kill -9 of an agent and its HAProxy", AGENTS)
async def kill_agent_and_haproxy(world: World) -> None:
    for _ in range(4):
        index = world.rng.randrange(len(world.agents))
        instance = world.instances[index]
        world.wanted.change()
        await world.pause()
        await world.agents[index].kill()
        await world.kill(instance.master, then=instance.workers)
        world.agents[index].start()
        await world.recover()


def _network_experiment(name: str, fault: Fault, *, quick: bool = False) -> None:
    @experiment(f"agents: {name} network", AGENTS, quick=quick)
    async def disturb(world: World) -> None:
        for _ in range(1 if world.is_quick else 3):
            for network in world.networks:
                network.fault = fault
            for _ in range(5):
                world.wanted.change()
                await world.pause(0.5)
            world.wanted.reload()
            await world.pause(2.0)
            for network in world.networks:
                network.fault = "none"
            await world.recover()


_network_experiment("a cut", "cut", quick=True)
_network_experiment("a slow", "slow")
_network_experiment("a stalled", "stall")
_network_experiment("a corrupting", "corrupt")
_network_experiment("a refusing", "refuse")


# The state directory.


@experiment("state directory: removed", quick=True)
async def remove_state(world: World) -> None:
    await world.pause()
    shutil.rmtree(world.site.state)
    await world.recover()


@experiment("state directory: emptied, and the controller killed")
async def empty_state(world: World) -> None:
    await world.pause()
    await world.controller.kill()
    for entry in world.site.state.iterdir():
        shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
    world.controller.start()
    await world.recover()


@experiment("state directory: corrupted while all runs")
async def corrupt_running(world: World) -> None:
    for _ in range(6):
        await world.pause()
        corrupt(world)
        await world.recover()


@experiment("state directory: corrupted, and controller and HAProxy killed", outage=True)
async def corrupt_dead(world: World) -> None:
    for _ in range(4):
        await world.pause()
        async with outage(world):
            await world.controller.kill()
            await kill_all(world)
            corrupt(world)
            world.controller.start()
            await world.recover()


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


@experiment("state directory: read-only", Setup(limits=Limits(plain_permissions=True)))
async def read_only_state(world: World) -> None:
    for number in range(3):
        folders = [world.site.state, *(path for path in world.site.state.rglob("*") if path.is_dir())]
        modes = [path.stat().st_mode for path in folders if not path.is_symlink()]
        folders = [path for path in folders if not path.is_symlink()]
        for path in folders:
            path.chmod(0o500)
        try:
            await disturb_without_space(world, number)
        finally:
            for path, mode in zip(folders, modes, strict=True):
                path.chmod(mode & 0o7777)
        await world.recover()


@experiment("state directory: full", mount="size=6m")
async def full_state(world: World) -> None:
    for number in range(3):
        filler = world.site.state / "filler"
        try:
            with filler.open("wb", buffering=0) as file:
                while file.write(bytes(4096)):
                    pass
        except OSError:
            pass
        try:
            await disturb_without_space(world, number)
        finally:
            filler.unlink()
        await world.recover()


async def disturb_without_space(world: World, number: int) -> None:
    """Change, reload, or kill while nothing can be written."""
    for _ in range(3):
        world.wanted.change()
        await world.pause(0.5)
    match number:
        case 0:
            world.wanted.reload()
            await world.pause(2.0)
        case 1:
            await kill_one(world, "worker")
            await world.pause(2.0)
        case _:
            await world.restart(world.controller)
            await world.pause(3.0)
    world.wanted.change()
    await world.pause()


# The manifests.


@experiment("manifests: the directory replaced")
async def replace_manifests(world: World) -> None:
    manifests = world.site.manifests
    for number in range(4):
        await world.pause()
        former = manifests.with_name(f"former-{number}")
        fresh = manifests.with_name(f"fresh-manifests-{number}")
        shutil.copytree(manifests, fresh)
        manifests.rename(former)
        await world.pause(0.5)
        fresh.rename(manifests)
        if number % 2:
            shutil.rmtree(former)
        await world.recover()


@experiment("manifests: written in pieces")
async def write_in_pieces(world: World) -> None:
    for _ in range(6):
        path = world.rng.choice(sorted(world.site.manifests.glob("ingress-*.yaml")))
        text = path.read_bytes()
        # A comment ends the file, so that no beginning of it is a smaller, valid object.
        with path.open("wb", buffering=0) as file:
            file.write(b"{" + b" " * 100)
            await world.pause(0.5)
            file.seek(0)
            file.write(b"\n" * 101)
            file.seek(0)
            file.write(text)
            file.truncate()
        await world.recover()


# The API server.


def _server_experiment(name: str, fault: str, *, quick: bool = False) -> None:
    @experiment(f"API server: {name}", API, quick=quick)
    async def disturb(world: World) -> None:
        assert world.api is not None
        faults = world.api.faults
        for _ in range(1 if world.is_quick else 3):
            await world.pause()
            match fault:
                case "stop":
                    world.api.stop()
                case "fail":
                    faults.failing = 10_000
                    world.api.cut_watches()
                case "hang":
                    faults.hanging = True
                    world.api.cut_watches()
                case "slow":
                    faults.delay = 1.0
                    world.api.cut_watches()
                case "expire":
                    faults.expire_watches = 5
                    world.api.expire_watches()
                case "throttle":
                    faults.throttled = 20
                    world.api.cut_watches()
                case "forbid":
                    faults.forbidden |= {"ingresses", "services", "endpointslices", "secrets", "configmaps"}
                    world.api.cut_watches()
            world.wanted.change()
            await world.pause(3.0)
            faults.failing, faults.hanging, faults.delay = 0, False, 0.0
            faults.forbidden.clear()
            if fault == "stop":
                await world.api.start()
            await world.recover()


for _name, _fault in {
    "stopped": "stop",
    "answers 500": "fail",
    "does not answer": "hang",
    "answers late": "slow",
    "forgets versions (410)": "expire",
    "answers 429": "throttle",
    "forbids reading (403)": "forbid",
}.items():
    _server_experiment(_name, _fault)


@experiment("API server: stopped, and the controller killed", API)
async def stop_server_and_kill(world: World) -> None:
    assert world.api is not None
    for _ in range(3):
        await world.pause()
        world.api.stop()
        await world.restart(world.controller)
        await world.pause(3.0)
        await world.api.start()
        await world.recover()


# Limits.


@experiment("ulimit -n 256", Setup(limits=Limits(descriptors=256), apps=10))
async def few_descriptors(world: World) -> None:
    await change_and_reload(world)


@experiment("ulimit -v 700 MB", Setup(limits=Limits(megabytes=700), apps=10))
async def little_memory(world: World) -> None:
    await change_and_reload(world)


async def change_and_reload(world: World) -> None:
    """Make changes of all kinds, with held connections to the admin port."""
    held = [await trio.open_tcp_stream("127.0.0.1", world.admin) for _ in range(40)]
    for _ in range(3):
        for _ in range(10):
            world.wanted.change()
            await world.pause(0.1)
        world.wanted.reload()
        await world.recover()
    for stream in held:
        await stream.aclose()
    await kill_one(world, "worker")
    await world.recover()


# All at once.


@experiment("random faults")
async def random_faults(world: World) -> None:
    faults = [corrupt_once, kill_controller_once, kill_worker_once, stop_controller_once, reload_once]
    for _ in range(12):
        for fault in world.rng.sample(faults, 2):
            await fault(world)
            await world.pause(0.3)
        await world.recover()


async def corrupt_once(world: World) -> None:
    """Spoil files."""
    corrupt(world)


async def kill_controller_once(world: World) -> None:
    """Restart the controller."""
    await world.restart(world.controller)


async def kill_worker_once(world: World) -> None:
    """Kill a worker while two instances serve."""
    if len(world.instances) == world.setup.instances:
        await kill_one(world, "worker")


async def stop_controller_once(world: World) -> None:
    """Stop the controller for a second."""
    await stop(world, world.controller.pid, 1.0)


async def reload_once(world: World) -> None:
    """Change the configuration."""
    world.wanted.reload()


@asynccontextmanager
async def state_directory(experiment: Experiment, root: Path) -> AsyncIterator[None]:
    """Mount a small file system for the state directory of *experiment*, if it wants one; PermissionError if not."""
    if not experiment.mount:
        yield
        return
    state = root / "state"
    state.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", experiment.mount, "tmpfs", str(state)]
    mounted = await trio.run_process(command, capture_stderr=True, check=False)
    if mounted.returncode:
        raise PermissionError(mounted.stderr.decode().strip())
    try:
        yield
    finally:
        with trio.CancelScope(shield=True):
            await trio.run_process(["umount", "-l", str(state)])


def choose_seed() -> int:
    """Return the seed of HAPTIC_CHAOS_SEED, or a new one."""
    return int(os.environ.get("HAPTIC_CHAOS_SEED") or random.SystemRandom().randrange(1 << 32))
