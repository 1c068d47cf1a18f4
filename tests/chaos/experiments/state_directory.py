"""Experiments with the state directory, and random ones."""

import shutil

from tests.chaos.experiments.registry import corrupt, experiment, kill_all, kill_one, outage, stop
from tests.chaos.world import World
from tests.support.processes.read_only import made_read_only


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
            # A damaged generation is replaced by the one before it.
            world.desired.unsettle()
            corrupt(world)
            world.controller.start()
            await world.recover()


@experiment("state directory: read-only")
async def read_only_state(world: World) -> None:
    for number in range(3):
        with made_read_only(world.site.state):
            await disturb_without_space(world, number)
        world.is_writable = True
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
            world.is_writable = True
            filler.unlink()
        await world.recover()


async def disturb_without_space(world: World, number: int) -> None:
    """Change, reload, or kill while nothing can be written."""
    world.is_writable = False
    for _ in range(3):
        world.desired.change()
        await world.pause(0.5)
    match number:
        case 0:
            world.desired.reload()
            await world.pause(2.0)
        case 1:
            await kill_one(world, "worker")
            await world.pause(2.0)
        case _:
            await world.restart(world.controller)
            await world.controller.listens()
            await world.pause(3.0)
    world.desired.change()
    await world.pause()


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
    world.desired.reload()
